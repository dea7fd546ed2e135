"""Keyword arguments of connections, consumers and listeners, and their checks before any I/O."""

from __future__ import annotations

import inspect
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, TypeVar, cast

from redelivery.classifier import checked_errors
from redelivery.core.application_functions import is_async_callable
from redelivery.core.breaker import Breaker
from redelivery.core.dead_lettering.dead_letter_strategy import DeadLetterMap, dead_letter_place
from redelivery.core.destination import Destination
from redelivery.core.dispatch_gate import Rate
from redelivery.core.option_values import refuse, seconds, shown
from redelivery.core.policy.policy_guard import elapsed_of
from redelivery.core.policy.policy_map import RedeliveryPolicyMap
from redelivery.core.policy.wildcards import check_wildcards
from redelivery.driver.observers import checked_observers
from redelivery.errors import ConfigurationError, near_miss
from redelivery.uri.options_reader import check_subscribers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    from redelivery.classifier import Classifier
    from redelivery.clock import Clock
    from redelivery.core.dispatch_order import Ordering
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
    "checked_dead_letters",
    "checked_ledger",
    "checked_listener",
    "checked_on_stopped",
    "checked_policies",
    "checked_rate",
    "checked_send_timeout",
    "connection_breaker",
    "known",
    "patience",
    "session_breaker",
    "shows",
    "single",
]


# ---- Gate arguments --------------------------------------------------------------------------------------
# Checks of the arguments `breaker=` and `rate=`, which limit dispatching; before any I/O.


class HasMode(Protocol):
    """Interface of a session that has a mode."""

    @property
    def mode(self) -> str:
        """Acknowledgement mode of the session."""
        ...


def checked_rate(rate: object, option: str) -> Rate | None:
    """Return a rate limit, given as a `Rate` or as messages a second. Raises ConfigurationError."""
    if rate is None or isinstance(rate, Rate):
        return rate
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < inf:
        raise refuse(option, rate, "a redelivery.Rate, or a number of messages a second of more than 0")
    return Rate(rate)


def checked_breaker(options: Mapping[str, object], otherwise: Breaker | None) -> Breaker | None:
    """Return the breaker of `breaker=`; `otherwise` if it is not given. Raises ConfigurationError."""
    given = options.get("breaker", otherwise)
    if given is not None and not isinstance(given, Breaker):
        hint = "; did you mean redelivery.Breaker()?" if given is Breaker else ""
        raise ConfigurationError(
            f"breaker= must be a redelivery.Breaker, or None for no breaker, not {shown(given)}{hint}",
            option="breaker",
        )
    return given


def connection_breaker(options: Mapping[str, object], settings: Settings) -> Breaker | None:
    """Return the breaker of a connection: that of `breaker=`, or of the URI. Raises ConfigurationError."""
    if "breaker" in options and settings.has_breaker:
        raise ConfigurationError(
            "breaker= and redelivery.breaker options in the URI: give one of them", option="breaker"
        )
    return checked_breaker(options, settings.breaker)


def session_breaker(
    options: Mapping[str, object], session: HasMode | None, otherwise: Breaker | None
) -> Breaker | None:
    """Return the breaker of a consumer: None in a session in which failures are not charged one by one.

    Raises:
        ConfigurationError: `breaker=` cannot work in this session, or is not a `Breaker`.
    """
    mode = None if session is None else session.mode
    if mode not in ("client", "transacted"):
        return checked_breaker(options, otherwise)
    if options.get("breaker") is not None:
        raise ConfigurationError(
            f"breaker=: in a session of mode {mode!r} the application settles by itself; use mode='individual'",
            option="breaker",
        )
    return None


# ---- Arguments -------------------------------------------------------------------------------------------

Function = TypeVar("Function", bound="Callable[..., Any]")


class ConnectOptions(TypedDict, total=False):
    """Keyword arguments of a connection; the default of each is None, except for `breaker`."""

    policies: RedeliveryPolicyMap | None
    """Redelivery policies by destination; refused if the URI has policies, too. None: those of the URI."""
    dead_letters: DeadLetterMap | None
    """Dead-letter strategies by destination; refused if the URI has such options, too. None: those of the URI."""
    errors: Classifier | None
    """Rules for exceptions by their type. None: the policy decides on every exception."""
    breaker: Breaker | None
    """Circuit breaker of consumers. None: no breaker. Default: `redelivery.breaker…` of the URI, else `Breaker()`."""
    ledger: Ledger | str | None
    """Ledger that counts attempts, or its URL; refused if the URI names one, too. None: that of the URI."""
    observers: Sequence[Observer | Callable[[Event], object]] | None
    """Observers that get the events of the connection; see `redelivery.events`. None: no observer."""
    send_timeout: float | timedelta | None
    """Seconds that a `send` may take. None: `redelivery.sendTimeout` of the URI, else 30."""
    on_stopped: Callable[[BaseException], object] | None
    """Function that is called once with the error that ends consuming; see `connection.error`. None: no call."""
    clock: Clock | None
    """Clock of the connection. None: the machine's."""


class ConsumerOptions(TypedDict, total=False):
    """Keyword arguments of a consumer."""

    selector: str | None
    """JMS selector, which the broker evaluates. None: all messages."""
    subscription: str | None
    """Name of a durable topic subscription; it needs `jms.clientID` in the URI. None: not durable."""
    credit: int | None
    """Messages that the application may have unsettled. None: that of the URI, else `auto`."""
    ordering: Ordering | None
    """`non_blocking`, `blocking` or `per_group`. None: that of the URI, else `non_blocking`."""
    errors: Classifier | None
    """Rules for exceptions by their type. None: those of the connection."""
    breaker: Breaker | None
    """Circuit breaker. None: no breaker. Default: that of the connection."""
    rate: Rate | float | None
    """Limit of handled messages: a `Rate`, or messages a second. None: that of the URI, else no limit."""
    observers: Sequence[Observer | Callable[[Event], object]] | None
    """Observers that get the events of this consumer, after the connection's. None: only the connection's."""
    dead_letter: str | None
    """Destination of this consumer's dead letters, before that of the connection. None: the connection's."""
    maximum_set_aside: int | None
    """Number of poison messages that may be set aside because no copy can be made. None: that of the URI, else 100."""


class ListenOptions(ConsumerOptions, total=False):
    """Keyword arguments of a listener."""

    workers: int
    """Number of messages that are handled at the same time. Default 1."""
    timeout: float | None
    """Seconds that a handler may take. None: no limit."""
    on_retry: Callable[[Message, Retry], object] | None
    """Called when a delivery has failed and its message is redelivered."""
    on_dead_letter: Callable[[Message, Death], object] | None
    """Called when the broker has confirmed a dead letter."""


def known(options: Mapping[str, object], kind: type) -> None:
    """Raise TypeError for a keyword argument that a TypedDict does not have, as Python does."""
    names = kind.__annotations__
    for name in options:
        if name not in names:
            hint = near_miss(name, names)
            if name == "policy":
                hint = "; did you mean connect(uri, policies=RedeliveryPolicyMap(default=policy))?"
            raise TypeError(f"unexpected keyword argument {name!r}{hint}")


def checked_policies(policies: object, settings: Settings) -> RedeliveryPolicyMap:
    """Return the policies to use: those of `policies=`, or of the URI. Raises ConfigurationError."""
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


def checked_dead_letters(given: object, settings: Settings) -> DeadLetterMap:
    """Return the dead-letter strategies to use: those of `dead_letters=`, or of the URI. Raises ConfigurationError."""
    if given is None:
        return settings.dead_letters
    if settings.has_dead_letters:
        raise ConfigurationError(
            "dead_letters= and dead-letter options in the URI contradict each other; give one of them",
            option="dead_letters",
        )
    if not isinstance(given, DeadLetterMap):
        raise ConfigurationError(
            f"dead_letters= must be a DeadLetterMap, not {type(given).__name__}; for one strategy everywhere: "
            "DeadLetterMap(default=strategy)",
            option="dead_letters",
        )
    if settings.scheduler == "broker" and any(each.dead_letter == "ack" for each in given):
        raise ConfigurationError(
            "dead_letter='ack' contradicts redelivery.scheduler=broker: the broker's own poison acknowledgement would "
            "leave a dead letter with the properties of the last delayed copy; use 'auto' or 'forward'",
            option="dead_letters",
        )
    if settings.client_id is None:
        check_subscribers(given, "destination_per_durable_subscriber")
    return given


def check_drops(settings: Settings) -> None:
    """Raise ConfigurationError for options that drop dead letters if they make no sense with the policies."""
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
        why = "would drop each failed message, because no policy is given; to do so, say redelivery.deadLetter=discard"
    if why:
        raise ConfigurationError(
            f"redelivery.fallbackToDeadLetter=false {why}", option="redelivery.fallbackToDeadLetter"
        )


def checked_ledger(ledger: object, settings: Settings) -> Ledger | None:
    """Return the ledger to use: that of `ledger=`, or of the URI, or None. Raises ConfigurationError."""
    from redelivery.ledger import Ledger, ledger_at  # noqa: PLC0415 - most programs have no ledger

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
    """Return the seconds that a send may take, if the argument or the URI gives them. Raises ConfigurationError."""
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
    """Return the function of `on_stopped=`, or None. Raises ConfigurationError."""
    if given is None:
        return None
    if not callable(given) or is_async_callable(given):
        kind = "an async def function" if callable(given) else type(given).__name__
        raise ConfigurationError(
            f"on_stopped= must be a plain function that takes the error, not {kind}", option="on_stopped"
        )
    return cast("Callable[[BaseException], object]", given)


def single(destination: str) -> Destination:
    """Return one destination. Raises ConfigurationError for several, and for `?options`, which have no effect here."""
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
    """Return the seconds that a `receive` may wait; None: for ever. Raises ConfigurationError."""
    return None if timeout is None else seconds(timeout, "timeout", none="to wait for ever")


def checked_consumer(settings: Settings, destination: str, options: ConsumerOptions) -> Destination:
    """Return the destination of a consumer. Raises ConfigurationError if its arguments do not fit together."""
    subscription = options.get("subscription")
    credit = options.get("credit")
    ordering = options.get("ordering")
    parsed = single(destination)
    if subscription is not None:
        if parsed.kind != "topic":
            raise ConfigurationError(
                f"subscription= is for topics only, and {parsed} is no topic; did you mean topic://{parsed.name}?",
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
    if (place := options.get("dead_letter")) is not None:
        dead_letter_place(place, "dead_letter")
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
    """Return the consumer's part of a listener's options. Raises ConfigurationError if they do not fit together."""
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
        "dead_letter": options.get("dead_letter"),
        "maximum_set_aside": options.get("maximum_set_aside"),
    }
    if "breaker" in options:
        consumer["breaker"] = options["breaker"]
    return consumer


def check_handler(handler: Callable[..., object], option: str) -> None:
    """Raise ConfigurationError for a handler that, by its signature, cannot be called with only a message."""
    try:
        signature = inspect.signature(handler)
    # Some built-in functions have no signature.
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


# ---- Shown arguments -------------------------------------------------------------------------------------
# Signatures for `help` and `inspect.signature` with the keyword arguments of a TypedDict.


def shows(kind: type) -> Callable[[Function], Function]:
    """Return a decorator: `help` shows the keyword arguments of a TypedDict instead of `**options`.

    Their default is None, except for `breaker`: there None means no breaker.
    """

    def decorate(function: Function) -> Function:
        plain = inspect.signature(function)
        named = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=Breaker() if name == "breaker" else None,
                annotation=getattr(annotation, "__forward_arg__", annotation),
            )
            for name, annotation in kind.__annotations__.items()
        ]
        first = [p for p in plain.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        cast("Any", function).__signature__ = plain.replace(parameters=[*first, *named])
        return function

    return decorate
