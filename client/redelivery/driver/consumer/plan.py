"""Plan of a consumer from settings and the broker's capabilities; refuses what the broker cannot do."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from redelivery.core.capabilities import HOLDABLE
from redelivery.core.commands import Subscribe
from redelivery.core.credit import MOST_CREDIT, CreditPace, first_credit
from redelivery.core.dead_lettering.circles import Circling, refuse_circle
from redelivery.core.dead_lettering.dead_letter_strategy import dead_letter_place
from redelivery.core.dead_lettering.routing import DeadLetterRouting
from redelivery.core.engine import Engine
from redelivery.core.ledger_engine import LedgerEngine
from redelivery.core.policy.wildcards import is_pattern, refuse_wildcard
from redelivery.driver.arguments import checked_rate
from redelivery.driver.connection.broker_redelivery_probe import rescheduling_for
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redelivery.classifier import Classifier
    from redelivery.core.breaker import Breaker
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.dead_lettering.dead_letter_strategy import DeadLetterStrategy
    from redelivery.core.dead_lettering.redrive import DeadLetterRoute
    from redelivery.core.destination import Destination
    from redelivery.core.dispatch_gate import Rate
    from redelivery.core.dispatch_order import Ordering
    from redelivery.core.policy.policy_map import RedeliveryPolicyMap
    from redelivery.core.policy.redelivery_policy import Policy
    from redelivery.driver.arguments import ConsumerOptions
    from redelivery.settings import Settings

__all__ = ["credit_of", "dead_letters_of", "planned"]


# ---- Credit plan -----------------------------------------------------------------------------------------
# Credit of a new consumer: a given number, or `auto`, which begins small and follows the rate of its handlers.

# Seconds. A consumer with a rate limit prefetches messages for so long: a broker may limit how long one is unsettled.
AHEAD = 60.0


@dataclass(frozen=True, slots=True)
class CreditPlan:
    """Credit of a consumer.

    `most`: messages that the application may have unsettled; `first`: messages that the broker may send at first.
    """

    most: int
    first: int
    pace: CreditPace | None = None


def credit_of(
    destination: Destination,
    options: ConsumerOptions,
    settings: Settings,
    capabilities: Capabilities,
    *,
    rate: Rate | None,
    workers: int | None,
) -> CreditPlan:
    """Return the credit of a consumer.

    `workers`: number of workers of its listener; 0: the application pulls; None: never `auto`.
    """
    asked = _asked(destination, options, settings)
    most = MOST_CREDIT if asked is None else asked
    most = most if rate is None else min(most, rate.ahead(AHEAD))
    order = options.get("ordering") or settings.ordering
    # Over STOMP a consumer grows by further subscriptions; the broker may not keep the order over several of them.
    able = capabilities.flow or (capabilities.grows and order == "non_blocking")
    if asked is not None or workers is None or destination.kind != "queue" or not able:
        return CreditPlan(most, most)
    first = first_credit(workers)
    return CreditPlan(most, first, CreditPace(first, most)) if first < most else CreditPlan(most, most)


def _asked(destination: Destination, options: ConsumerOptions, settings: Settings) -> int | None:
    """Return the credit that the arguments or settings give; None: `auto`."""
    credit = options.get("credit")
    if credit is not None:
        return credit
    if not destination.is_topic:
        return settings.credit
    return settings.topic_credit if options.get("subscription") is None else settings.durable_topic_credit


# ---- Plan ------------------------------------------------------------------------------------------------

DEFAULT_MAX_PARKED = 1000


def planned(
    number: int,
    destination: Destination,
    options: ConsumerOptions,
    settings: Settings,
    capabilities: Capabilities,
    *,
    transacted: bool = False,
    redrive: DeadLetterRoute | None = None,
    counted: bool = False,
    breaker: Breaker | None = None,
    workers: int | None = None,
    alone: bool = True,
) -> tuple[Subscribe, Engine]:
    """Return the subscription and the engine of a new consumer.

    `transacted`: in its session commit and rollback decide, not the type of an exception. `redrive`: route of dead
    letters instead of that of the settings. `counted`: a ledger counts its attempts. `breaker`: None: every failure is
    charged. `workers`: of its listener; 0: the application pulls; None: credit is never `auto`. `alone`: see `_refuse`.

    Raises:
        ConfigurationError: This broker, over this protocol, cannot do what is asked for.
    """
    given: ConsumerOptions = {**options, "errors": None} if transacted else options
    dead_letters = redrive or dead_letters_of(settings, destination, given)
    ordering = options.get("ordering") or settings.ordering
    refuse_wildcard(destination, capabilities, settings.wildcards)
    _refuse(destination, ordering, dead_letters, capabilities, alone=alone)
    _refuse_features(options, capabilities)
    rescheduling = None
    if settings.scheduler == "client":
        _refuse_long_holds(destination, settings.policies, options.get("errors"), capabilities)
    elif redrive is None:
        rescheduling = rescheduling_for(destination, options, settings, capabilities, transacted=transacted)
    max_parked, rate = _max_parked(settings, capabilities), checked_rate(options.get("rate"), "rate")
    credit = credit_of(destination, options, settings, capabilities, rate=rate, workers=workers)
    engine = (LedgerEngine if counted else Engine)(
        number, policies=settings.policies, dead_letters=dead_letters, credit=credit.most, max_parked=max_parked,
        ordering=ordering, maximum_deferrals=settings.maximum_deferrals, transacted=transacted,
        random=Random(),  # noqa: S311 - collision avoidance, not a secret
        rescheduling=rescheduling, breaker=breaker, rate=rate, pace=credit.pace,
    )  # fmt: skip
    subscribe = Subscribe(
        number, str(destination), credit.first, options.get("selector"), options.get("subscription"),
        dead_letters=_checked_beforehand(destination, dead_letters, capabilities), room=max_parked, ordering=ordering,
        own_place=_follows_broker(dead_letters, capabilities), most=0 if credit.pace is None else credit.most,
        hold=_longest_hold(destination, settings.policies, options.get("errors")), rescheduled=rescheduling is not None,
        caution=_caution(destination, dead_letters, capabilities),
    )  # fmt: skip
    return subscribe, engine


def _caution(destination: Destination, dead_letters: DeadLetterRoute, capabilities: Capabilities) -> str:
    """Return what poison may be lost by `deadLetter=ack`; on Classic what comes through a topic is copied."""
    copied = destination.is_topic and not capabilities.poison_on_request
    return capabilities.ack_caution if _acknowledges(dead_letters) and not copied else ""


def _follows_broker(dead_letters: DeadLetterRoute, capabilities: Capabilities) -> bool:
    return isinstance(dead_letters, DeadLetterRouting) and dead_letters.follows_broker(capabilities)


def _checked_beforehand(
    destination: Destination, dead_letters: DeadLetterRoute, capabilities: Capabilities
) -> tuple[str, ...]:
    """Return the dead-letter destinations that the broker is to check before the first copy."""
    found = dead_letters.places(capabilities)
    if destination.is_temporary and isinstance(dead_letters, DeadLetterRouting):
        # On most brokers the check creates the queue: each temporary reply queue would leave one there.
        own = {
            dead_letters.place_of(each, capabilities) for each in dead_letters.serving() if each.individual
        }
        return tuple(place for place in found if place not in own)
    return found


def dead_letters_of(
    settings: Settings, destination: Destination, options: ConsumerOptions | None = None
) -> DeadLetterRouting:
    """Return the route of dead letters by the settings, and by the options of a consumer."""
    given: ConsumerOptions = {} if options is None else options
    subscription, errors = given.get("subscription"), given.get("errors")
    chosen, most = given.get("dead_letter"), given.get("maximum_set_aside")
    return DeadLetterRouting(
        maximum_set_aside=settings.maximum_set_aside if most is None else most,
        strategies=settings.dead_letters,
        chosen=None if chosen is None else str(dead_letter_place(chosen, "dead_letter")),
        also=() if errors is None else errors.places,
        send_exhausted=settings.send_exhausted,
        policies=None if settings.fallback else settings.policies,
        source=destination,
        subscriber=None if subscription is None else f"{settings.client_id}:{subscription}",
        empty_is_whole=settings.empty_body == "forward",
        scheduled=settings.scheduler == "broker",
    )


def _refuse(
    destination: Destination,
    ordering: Ordering,
    dead_letters: DeadLetterRoute,
    capabilities: Capabilities,
    *,
    alone: bool,
) -> None:
    """Refuse what the broker cannot do. `alone`: False: the connection looks for circles, with its other consumers."""
    if ordering == "per_group" and not capabilities.groups:
        raise ConfigurationError(
            f"ordering=per_group: {capabilities.broker} does not send the group of a message over this protocol",
            option="redelivery.ordering",
        )
    if not isinstance(dead_letters, DeadLetterRouting):
        return
    native = capabilities.poison_persistent or capabilities.poison_on_request
    if not native and _acknowledges(dead_letters):
        raise ConfigurationError(
            f"redelivery.deadLetter=ack: {capabilities.broker} has no poison acknowledgement over this protocol "
            "that keeps the message; use auto or forward",
            option="redelivery.deadLetter",
        )
    _refuse_own_dead_letters(destination, dead_letters, capabilities)
    if alone:
        refuse_circle(Circling(dead_letters, capabilities, told=False), ())


def _acknowledges(dead_letters: DeadLetterRoute) -> bool:
    """Return True if poison may leave by the broker's own acknowledgement because the user has asked for it."""
    return isinstance(dead_letters, DeadLetterRouting) and any(
        each.dead_letter == "ack" for each in dead_letters.serving()
    )


def _refuse_own_dead_letters(
    destination: Destination, dead_letters: DeadLetterRouting, capabilities: Capabilities
) -> None:
    """Refuse a consumer that would receive its own dead letters: they would circulate for ever."""
    for pattern, strategy in dead_letters.entries(destination):
        # The adapter refuses a consumer of the broker's own place, once it is known.
        if strategy.keeps_nothing or dead_letters.follows(strategy, capabilities):
            continue
        if strategy.individual:
            _refuse_own_individual(destination, strategy, dead_letters.subscriber, capabilities)
        else:
            place = strategy.destination or capabilities.dead_letter_destination
            named = dead_letters.named_by(pattern, strategy, capabilities)
            own = "consumer: name another one in dead_letter="
            if dead_letters.chosen is None:
                own = f"connection ({named}): {_cure(destination, pattern)}"
            _refuse_own_place(destination, dead_letters, place, own)
    for place in dead_letters.also:
        _refuse_own_place(
            destination,
            dead_letters,
            place,
            "rule for exceptions: give this consumer rules without it (errors=)",
        )


def _cure(destination: Destination, pattern: str | None) -> str:
    """Return how a consumer of dead letters is given another place; `pattern`: of the map, which serves it now."""
    own = "to read the dead letters, give this consumer dead_letter=<another queue>: messages that fail again go there"
    if pattern is None:
        return f"{own}; or add redelivery.deadLetterDestination=<another queue> to the URI"
    if is_pattern(destination):
        return f"{own}; or consume fewer destinations"
    return f"{own}; or add redelivery.deadLetterMap.{destination}.destination=<another queue> to the map"


def _refuse_own_individual(
    destination: Destination,
    strategy: DeadLetterStrategy,
    subscriber: str | None,
    capabilities: Capabilities,
) -> None:
    if destination.kind == "native":
        raise ConfigurationError(
            f"redelivery.deadLetterStrategy=individual: {destination} is neither a queue nor a topic that a "
            "dead-letter queue could be named after; consume it as queue:// or topic://",
            option="redelivery.deadLetterStrategy",
        )
    found = strategy.returns_to(destination, capabilities, subscriber)
    if found is not None:
        raise ConfigurationError(
            f"{destination} includes its own dead-letter destinations, {found} among them: failed messages would "
            "circulate for ever; name them with another redelivery.queuePrefix or topicPrefix, or consume fewer "
            "destinations",
            option="redelivery.deadLetterStrategy",
        )


def _refuse_own_place(
    destination: Destination, dead_letters: DeadLetterRouting, own: str, whose: str
) -> None:
    """Refuse a consumer of this place; `whose`: who has named the place, and the cure."""
    if dead_letters.consumes(own):
        among = "is" if own == str(destination) else f"includes {own}, which is"
        raise ConfigurationError(
            f"{destination} {among} the dead-letter destination of this {whose}",
            option="redelivery.deadLetterDestination",
        )


def _refuse_features(options: ConsumerOptions, capabilities: Capabilities) -> None:
    if options.get("selector") is not None and not capabilities.selectors:
        raise ConfigurationError(
            f"selector=: {capabilities.broker} ignores selectors over this protocol: the consumer would get every "
            "message; filter in the handler, or bind a queue to the messages that you want",
            option="selector",
        )
    if options.get("subscription") is not None and not capabilities.subscriptions:
        raise ConfigurationError(
            f"subscription={options.get('subscription')}: {capabilities.broker} has no durable topic subscriptions "
            "over this protocol; bind a durable queue to the topic and consume that",
            option="subscription",
        )


def _refuse_long_holds(
    destination: Destination,
    policies: RedeliveryPolicyMap,
    errors: Classifier | None,
    capabilities: Capabilities,
) -> None:
    """Refuse a policy whose delays together exceed the time for which the broker leaves a message unsettled.

    After that time the broker would take the message back, or close the connection, during a delay.
    """
    most = capabilities.most_delay
    if most is None:
        return
    for name, policy in _serving(destination, policies, errors):
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


def _longest_hold(
    destination: Destination, policies: RedeliveryPolicyMap, errors: Classifier | None
) -> float | None:
    """Return the seconds of all delays of a message together at most, or None without a limit."""
    longest = 0.0
    for _, policy in _serving(destination, policies, errors):
        worst = policy.worst_case_ms()
        if worst is None:
            return None
        longest = max(longest, worst / 1000)
    return longest


def _serving(
    destination: Destination, policies: RedeliveryPolicyMap, errors: Classifier | None
) -> Iterable[tuple[str, Policy]]:
    """Yield the policies for a consumer's messages, with their names: several if it has several destinations."""
    if destination.kind != "native" and not is_pattern(destination):
        name = policies.pattern_for(destination)
        yield f"for {name or destination}", policies.policy_for(destination)
    else:
        yield from ((f"for {name}", policy) for name, policy in policies.entries)
        yield "by default", policies.default
    if errors is not None:
        yield from ((f"for {name}", policy) for name, policy in errors.policies)


def _max_parked(settings: Settings, capabilities: Capabilities) -> int:
    if settings.max_parked is not None:
        return settings.max_parked
    if capabilities.max_unacknowledged is None:
        return DEFAULT_MAX_PARKED
    # At its limit the broker sends nothing more, and parked messages alone would block all others.
    return min(DEFAULT_MAX_PARKED, int(capabilities.max_unacknowledged * HOLDABLE))
