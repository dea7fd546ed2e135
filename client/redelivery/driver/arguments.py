"""Arguments of connections, consumers and listeners, checked before any I/O."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast

from redelivery.classifier import checked_errors
from redelivery.core.destination import Destination
from redelivery.core.option_values import seconds
from redelivery.core.policy.classic_wildcards import check_wildcards
from redelivery.core.policy.policy_guard import elapsed_of
from redelivery.core.policy.policy_map import RedeliveryPolicyMap
from redelivery.driver.gate_arguments import checked_breaker, checked_rate
from redelivery.driver.observers import checked_observers
from redelivery.errors import ConfigurationError, near_miss

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    from redelivery.classifier import Classifier
    from redelivery.clock import Clock
    from redelivery.core.breaker import Breaker
    from redelivery.core.dispatch_order import Ordering
    from redelivery.core.rate import Rate
    from redelivery.events import Death, Event, Observer, Retry
    from redelivery.ledger import Ledger
    from redelivery.message import Message
    from redelivery.settings import Settings

__all__ = [
    "ConnectOptions",
    "ConsumerOptions",
    "ListenOptions",
    "check_drops",
    "check_handler",
    "checked_consumer",
    "checked_ledger",
    "checked_listener",
    "checked_on_stopped",
    "checked_policies",
    "checked_send_timeout",
    "known",
    "patience",
    "single",
]

Function = TypeVar("Function", bound="Callable[..., Any]")


class ConnectOptions(TypedDict, total=False):
    """Keyword arguments of a connection; each is None by default."""

    policies: RedeliveryPolicyMap | None
    """Instead of policies in the URI."""
    errors: Classifier | None
    """What becomes of a message by the type of its exception; every one follows the policy by default."""
    breaker: Breaker | None
    """When consumers pause because everything fails, instead of `redelivery.breaker…` in the URI; None: never."""
    ledger: Ledger | str | None
    """Where attempts are counted, instead of `redelivery.ledger` in the URI."""
    observers: Sequence[Observer | Callable[[Event], object]] | None
    """What is shown the events of the connection; see `redelivery.events`."""
    send_timeout: float | timedelta | None
    """Seconds that a `send` may take, instead of `redelivery.sendTimeout` in the URI; 30 by default."""
    on_stopped: Callable[[BaseException], object] | None
    """Called once with the error that ends consuming by itself; see `connection.error`."""
    clock: Clock | None
    """The machine's by default."""


class ConsumerOptions(TypedDict, total=False):
    """Keyword arguments of a consumer."""

    selector: str | None
    """A JMS selector, evaluated by the broker."""
    subscription: str | None
    """Name of a durable topic subscription; needs `jms.clientID`."""
    credit: int | None
    """Messages that the application may have unsettled; the URI's by default (`auto`)."""
    ordering: Ordering | None
    """`non_blocking`, `blocking` or `per_group`; the URI's by default."""
    errors: Classifier | None
    """Instead of the connection's."""
    breaker: Breaker | None
    """Instead of the connection's; None: never pause because everything fails."""
    rate: Rate | float | None
    """Messages to handle at most: `Rate`, or a number a second; the URI's by default (no limit)."""
    observers: Sequence[Observer | Callable[[Event], object]] | None
    """What is shown the events of this consumer, after the connection's."""
    maximum_set_aside: int | None
    """Poison messages that may be set aside, where no copy can be made of them; the URI's by default (100)."""


class ListenOptions(ConsumerOptions, total=False):
    """Keyword arguments of a listener."""

    workers: int
    """How many messages are handled at a time; 1 by default."""
    timeout: float | None
    """Seconds that a handler may take; no limit by default."""
    on_retry: Callable[[Message, Retry], object] | None
    """Called when a delivery has failed and its message is redelivered."""
    on_dead_letter: Callable[[Message, Death], object] | None
    """Called when the broker has confirmed a dead letter."""


def known(options: Mapping[str, object], kind: type) -> None:
    """Refuse keyword arguments that a TypedDict does not have, as Python does. Raises TypeError."""
    names = kind.__annotations__
    for name in options:
        if name not in names:
            hint = near_miss(name, names)
            if name == "policy":
                hint = "; did you mean connect(uri, policies=RedeliveryPolicyMap(default=policy))?"
            raise TypeError(f"unexpected keyword argument {name!r}{hint}")


def checked_policies(policies: object, settings: Settings) -> RedeliveryPolicyMap:
    """Return the policies to use: the URI's, or the `policies=` that were given instead. Raises ConfigurationError."""
    if policies is None:
        return settings.policies
    if settings.has_policies:
        raise ConfigurationError(
            "policies= and redelivery policies in the URI contradict each other; give one of them",
            option="policies",
        )
    if not isinstance(policies, RedeliveryPolicyMap):
        raise ConfigurationError(
            f"policies= must be a RedeliveryPolicyMap, not {type(policies).__name__}; for one policy "
            "everywhere: RedeliveryPolicyMap(default=policy)",
            option="policies",
        )
    for pattern, _ in policies.entries:
        if "://" in pattern:  # Artemis' matches have no kind
            check_wildcards(Destination.parse(pattern))
    return policies


def check_drops(settings: Settings) -> None:
    """Refuse what drops dead letters by policy where the policies make no sense of it. Raises ConfigurationError."""
    policies = settings.policies
    every = (policies.default, *(policy for _, policy in policies.entries))
    endless = all(policy.maximum_redeliveries < 0 and elapsed_of(policy)[0] is None for policy in every)
    if not settings.send_exhausted and endless:
        raise ConfigurationError(
            "redelivery.sendToDlqIfMaxRetriesExceeded=false has no effect: no policy has a maximum",
            option="redelivery.sendToDlqIfMaxRetriesExceeded",
        )
    if settings.fallback:
        return
    why = ""
    if policies.has_default:
        why = "has no effect: a default policy is given, which serves every destination"
    elif not policies.entries:
        why = "would drop all that fails, for no policy is given; if you mean that, say redelivery.deadLetter=discard"
    if why:
        raise ConfigurationError(
            f"redelivery.fallbackToDeadLetter=false {why}", option="redelivery.fallbackToDeadLetter"
        )


def checked_ledger(ledger: object, settings: Settings) -> Ledger | None:
    """Return the ledger to use, if any: the URI's, or the `ledger=` that was given. Raises ConfigurationError."""
    from redelivery.ledger import Ledger, ledger_at  # noqa: PLC0415 - most programs have none

    if ledger is None:
        return None if settings.ledger is None else ledger_at(settings.ledger, "redelivery.ledger")
    if settings.ledger is not None:
        raise ConfigurationError(
            "ledger= and redelivery.ledger in the URI: give one of them", option="ledger"
        )
    if isinstance(ledger, str):
        return ledger_at(ledger, "ledger")
    if not isinstance(ledger, Ledger):
        raise ConfigurationError(
            f"ledger= must be a ledger such as redelivery.SqliteLedger(path), not {type(ledger).__name__}",
            option="ledger",
        )
    return ledger


def checked_send_timeout(given: object, settings: Settings) -> float | None:
    """Return the seconds that a send may take, if given here or in the URI. Raises ConfigurationError."""
    if given is None:
        return settings.send_timeout
    if settings.send_timeout is not None:
        raise ConfigurationError(
            "send_timeout= and redelivery.sendTimeout in the URI: give one of them", option="send_timeout"
        )
    limit = seconds(given, "send_timeout", none="for 30 seconds")
    if limit <= 0:
        raise ConfigurationError("send_timeout must be more than 0 seconds", option="send_timeout")
    return limit


def checked_on_stopped(given: object) -> Callable[[BaseException], object] | None:
    """Return what is called when consuming ends by itself. Raises ConfigurationError."""
    if given is None:
        return None
    if not callable(given) or inspect.iscoroutinefunction(given):
        kind = "an async def function" if callable(given) else type(given).__name__
        raise ConfigurationError(
            f"on_stopped= must be a plain function that takes the error, not {kind}", option="on_stopped"
        )
    return cast("Callable[[BaseException], object]", given)


def single(destination: str) -> Destination:
    """Return one destination. Raises ConfigurationError for several, and for `?options`, which nobody would read."""
    parsed = Destination.parse(destination)
    if parsed.options:
        raise ConfigurationError(
            f"{parsed.kind}://{parsed.name}: destination options are not supported: {parsed.options}"
        )
    if len(parsed.members) > 1:
        raise ConfigurationError(
            f"{parsed} names {len(parsed.members)} destinations; use one consumer for each"
        )
    return parsed


def patience(timeout: object) -> float | None:
    """Return how many seconds a `receive` may wait; None: for ever. Raises ConfigurationError."""
    return None if timeout is None else seconds(timeout, "timeout", none="to wait for ever")


def checked_consumer(settings: Settings, destination: str, options: ConsumerOptions) -> Destination:
    """Return the destination if the arguments of a consumer make sense together."""
    subscription = options.get("subscription")
    credit = options.get("credit")
    ordering = options.get("ordering")
    parsed = single(destination)
    if subscription is not None:
        if parsed.kind != "topic":
            raise ConfigurationError(
                f"subscription= is for topics only, and {parsed} is none; did you mean topic://{parsed.name}?",
                option="subscription",
            )
        if settings.client_id is None:
            raise ConfigurationError(
                "a durable subscription needs jms.clientID in the URI", option="jms.clientID"
            )
    if credit is not None:
        _check_count(credit, "credit")
    checked_errors(options.get("errors"))
    checked_breaker(cast("Mapping[str, object]", options), None)
    checked_rate(options.get("rate"), "rate")
    aside = options.get("maximum_set_aside")
    if aside is not None:
        _check_count(aside, "maximum_set_aside", least=0)
    if ordering not in (None, "blocking", "non_blocking", "per_group"):
        raise ConfigurationError(
            f"ordering must be 'blocking', 'non_blocking' or 'per_group', not {ordering!r}", option="ordering"
        )
    return parsed


def checked_listener(
    settings: Settings, destination: str, handler: object, options: ListenOptions
) -> ConsumerOptions:
    """Return the consumer's part of the options if the arguments of a listener make sense together."""
    known(options, ListenOptions)
    if not callable(handler):
        raise ConfigurationError(
            f"a handler must be callable, not {type(handler).__name__}", option="handler"
        )
    check_handler(handler, "handler")
    _check_workers(options.get("workers", 1), options.get("ordering") or settings.ordering)
    checked_consumer(settings, destination, options)
    consumer: ConsumerOptions = {
        "selector": options.get("selector"),
        "subscription": options.get("subscription"),
        "credit": options.get("credit"),
        "ordering": options.get("ordering"),
        "errors": checked_errors(options.get("errors")),
        "rate": options.get("rate"),
        "observers": checked_observers(options.get("observers")),
        "maximum_set_aside": options.get("maximum_set_aside"),
    }
    if "breaker" in options:
        consumer["breaker"] = options["breaker"]
    return consumer


def check_handler(handler: Callable[..., object], option: str) -> None:
    """Refuse a handler that cannot be called with a message alone, where its signature tells."""
    try:
        signature = inspect.signature(handler)
    # Of some built-in functions nothing is known.
    except (TypeError, ValueError):
        return
    try:
        signature.bind(None)
    except TypeError:
        name = getattr(handler, "__qualname__", None) or repr(handler)
        raise ConfigurationError(
            f"handler {name} must accept one argument, the message", option=option
        ) from None


def _check_count(value: object, name: str, *, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigurationError(
            f"{name} must be a whole number of {least} or more, not {value!r}", option=name
        )
    return value


def _check_workers(workers: object, ordering: Ordering) -> None:
    if _check_count(workers, "workers") > 1 and ordering == "blocking":
        raise ConfigurationError(
            f"workers={workers} cannot keep the order that ordering='blocking' promises; use workers=1, or "
            "ordering='per_group' or 'non_blocking'",
            option="workers",
        )
