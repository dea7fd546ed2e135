"""From settings and a broker's capabilities to one consumer: what cannot be honoured is refused here."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from redelivery.core.capabilities import HOLDABLE
from redelivery.core.commands import Subscribe
from redelivery.core.counted import CountedEngine
from redelivery.core.dead_letter import DeadLetters
from redelivery.core.engine import Engine
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.destination import Destination
    from redelivery.core.policy import Policy
    from redelivery.core.policy_map import RedeliveryPolicyMap
    from redelivery.core.schedule import Ordering
    from redelivery.drive.arguments import ConsumerOptions
    from redelivery.settings import Settings

__all__ = ["planned"]

_MANY = {"*", ">"}  # tokens of a pattern
DEFAULT_MAX_PARKED = 1000


def planned(
    number: int,
    destination: Destination,
    options: ConsumerOptions,
    settings: Settings,
    capabilities: Capabilities,
    *,
    transacted: bool = False,
    counted: bool = False,
) -> tuple[Subscribe, Engine]:
    """Return the subscription and the engine of a new consumer.

    `transacted`: it belongs to such a session; `counted`: by a ledger.

    Raises:
        ConfigurationError: this broker, over this protocol, cannot do what is asked for.
    """
    dead_letters = _dead_letters(settings)
    ordering = options.get("ordering") or settings.ordering
    _refuse(destination, ordering, dead_letters, capabilities)
    _refuse_features(destination, options, capabilities)
    _refuse_long_holds(destination, settings.policies, capabilities)
    max_parked = _max_parked(settings, capabilities)
    subscription = options.get("subscription")
    credit = options.get("credit")
    if credit is None:
        topic = settings.topic_credit if subscription is None else settings.durable_topic_credit
        credit = topic if destination.is_topic else settings.credit
    engine = (CountedEngine if counted else Engine)(
        number,
        policies=settings.policies,
        dead_letters=dead_letters,
        credit=credit,
        max_parked=max_parked,
        ordering=ordering,
        maximum_deferrals=settings.maximum_deferrals,
        transacted=transacted,
        random=Random(),  # noqa: S311 - collision avoidance, not a secret
    )
    copies = dead_letters.may_forward(capabilities)
    subscribe = Subscribe(
        consumer=number,
        destination=str(destination),
        window=credit + max_parked,
        selector=options.get("selector"),
        subscription=subscription,
        dead_letter=dead_letters.destination_on(capabilities) if copies else None,
    )
    return subscribe, engine


def _dead_letters(settings: Settings) -> DeadLetters:
    return DeadLetters(
        route=settings.dead_letter,
        destination=settings.dead_letter_destination,
        process_expired=settings.process_expired,
        process_non_persistent=settings.process_non_persistent,
        expiration=settings.dead_letter_expiration,
        empty_is_whole=settings.empty_body == "forward",
    )


def _refuse(
    destination: Destination, ordering: Ordering, dead_letters: DeadLetters, capabilities: Capabilities
) -> None:
    if ordering == "per_group" and not capabilities.groups:
        raise ConfigurationError(
            f"ordering=per_group: {capabilities.broker} does not tell the group of a message over this protocol",
            option="redelivery.ordering",
        )
    native = capabilities.poison_persistent or capabilities.poison_on_request
    if dead_letters.route == "ack" and not native:
        raise ConfigurationError(
            f"redelivery.deadLetter=ack: {capabilities.broker} has no poison acknowledgement over this protocol "
            "that keeps the message; use auto or forward",
            option="redelivery.deadLetter",
        )
    if dead_letters.route != "discard" and dead_letters.destination_on(capabilities) == str(destination):
        raise ConfigurationError(
            f"{destination} is the dead-letter destination of this connection: to read the dead letters, add "
            "redelivery.deadLetterDestination=<another queue> to the URI: what fails again goes there",
            option="redelivery.deadLetterDestination",
        )


def _refuse_features(destination: Destination, options: ConsumerOptions, capabilities: Capabilities) -> None:
    many = destination.kind == "queue" and _MANY & set(destination.name.split("."))
    if many and not capabilities.queue_wildcards:
        raise ConfigurationError(
            f"{destination}: {capabilities.broker} has no wildcards for queues; make a consumer for each queue",
            option="destination",
        )
    if options.get("selector") is not None and not capabilities.selectors:
        raise ConfigurationError(
            f"selector=: {capabilities.broker} ignores selectors over this protocol, so the consumer would get every "
            "message; filter in the handler, or bind a queue to what you want",
            option="selector",
        )
    if options.get("subscription") is not None and not capabilities.subscriptions:
        raise ConfigurationError(
            f"subscription={options.get('subscription')}: {capabilities.broker} has no durable topic subscriptions "
            "over this protocol; bind a durable queue to the topic and consume that",
            option="subscription",
        )


def _refuse_long_holds(
    destination: Destination, policies: RedeliveryPolicyMap, capabilities: Capabilities
) -> None:
    """Refuse a policy whose delays together pass what the broker lets a consumer hold.

    Past the limit the broker would take the message back, or close the connection, in the middle of a delay.
    """
    most = capabilities.most_delay
    if most is None:
        return
    for name, policy in _serving(destination, policies):
        worst = policy.worst_case_ms()
        if worst is None or worst > most * 1000:
            lasts = (
                "holds a message without end"
                if worst is None
                else f"holds a message for {worst / 1000:.0f} s"
            )
            raise ConfigurationError(
                f"the redelivery policy {name} {lasts}, but {capabilities.broker} lets a consumer hold one for "
                f"{capabilities.max_hold:.0f} s, prefetch and handlers included: at most {most:.0f} s may be delays",
                option="jms.redeliveryPolicy",
            )


def _serving(destination: Destination, policies: RedeliveryPolicyMap) -> Iterable[tuple[str, Policy]]:
    """Return the policies that may serve a consumer's messages: each is served by its own destination's."""
    if destination.kind != "native" and not _MANY & set(destination.name.split(".")):
        name = policies.pattern_for(destination)
        return [(f"for {name or destination}", policies.policy_for(destination))]
    return [*((f"for {name}", policy) for name, policy in policies.entries), ("by default", policies.default)]


def _max_parked(settings: Settings, capabilities: Capabilities) -> int:
    if settings.max_parked is not None:
        return settings.max_parked
    if capabilities.max_unacknowledged is None:
        return DEFAULT_MAX_PARKED
    # Past its limit the broker sends nothing more, so what is parked would starve the others.
    return min(DEFAULT_MAX_PARKED, int(capabilities.max_unacknowledged * HOLDABLE))
