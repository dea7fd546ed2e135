"""Rules that decide by the type of an exception what becomes of its message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, cast

from redelivery.core.application_functions import is_failure_type, leaves
from redelivery.core.dead_lettering.dead_letter_strategy import dead_letter_place
from redelivery.core.delivery import Cause
from redelivery.core.events import Deferred, Discarded, Failed, Poisoned
from redelivery.core.option_values import flag, seconds
from redelivery.core.policy.policy_map import check_policy
from redelivery.errors import ConfigurationError
from redelivery.handler_exceptions import Defer, Discard, Poison
from redelivery.log import logger

if TYPE_CHECKING:
    from datetime import timedelta

    from redelivery.core.breaker import Weight
    from redelivery.core.delivery import Delivery
    from redelivery.core.events import Event
    from redelivery.core.policy.redelivery_policy import Policy

__all__ = ["Classifier", "checked_errors"]

Kind = Literal["discard", "defer", "fail", "poison"]


class _Rule(NamedTuple):
    what: Literal["discard", "defer", "retry", "poison", "trip"]
    delay: float | None = None
    """Seconds of a deferral; None: the exception has it."""
    policy: Policy | None = None
    """Policy of a failure; None: the destination's."""
    weight: Weight | None = None
    """Weight of a failure for the breaker; None: by the type of the exception."""
    place: str | None = None
    """Dead-letter destination of poison; None: the usual one."""


_GRAVITY = {"discard": 0, "defer": 1, "retry": 2, "trip": 2, "poison": 3}
_STEERING: dict[type[BaseException], _Rule] = {
    Poison: _Rule("poison"), Discard: _Rule("discard"), Defer: _Rule("defer"),
}  # fmt: skip
_FAILURE = _Rule("retry")
# Exceptions that a bad value in a message raises. They show a faulty producer, not an outage.
_OWN = (
    ArithmeticError, AssertionError, AttributeError, LookupError, NameError, NotImplementedError, TypeError, ValueError,
)  # fmt: skip


def _why_not(kind: object) -> str:
    """Return why this is no type of exceptions that a rule may have."""
    if isinstance(kind, tuple | list):
        return "give each type by itself"
    if isinstance(kind, type) and issubclass(kind, BaseException):
        return "it ends the program, and is no failure of a message"
    return "give the class itself"


class Classifier:
    """Rules that choose by an exception's type what becomes of its message.

    An exception without a rule follows the redelivery policy. `Poison`, `Discard` and `Defer` decide by
    themselves, and cannot be registered.

    Each method registers exception types and returns the classifier, to allow chained calls. A rule for a
    type also serves its subclasses: the first class along the exception's MRO that is registered decides,
    which is the most specific one. A type that is registered again has its last rule.

    Of an exception group each exception is looked at, and the gravest decides: poison, then a failure, then a
    deferral (the longest), then a discard; among equals the first. A group type that is registered itself
    decides for the whole.

    Connections, consumers and listeners copy the classifier that they are given: later calls do not change
    their rules.
    """

    __slots__ = ("_rules",)

    def __init__(self) -> None:
        self._rules: dict[type[BaseException], _Rule] = {}

    def poison(self, *kinds: type[BaseException], to: str | None = None) -> Self:
        """Dead-letter the message at once, even if its policy has redeliveries left.

        Args:
            *kinds: Types of exceptions.
            to: Dead-letter destination of these messages: one queue, topic or native address, as in
                ``"orders.invalid"``. It comes before any other, also with `redelivery.deadLetter=discard` or
                `ack`. None: that of the message's destination.

        Returns:
            This classifier.

        Raises:
            ConfigurationError: There is no type, or one that ends the program (`SystemExit`); or `to` is no
                destination that a copy can be sent to.
        """
        place = None if to is None else str(dead_letter_place(to, "poison: to"))
        return self._register("poison", kinds, _Rule("poison", place=place))

    def discard(self, *kinds: type[BaseException]) -> Self:
        """Acknowledge the message and drop it. It counts as discarded.

        Args:
            *kinds: Types of exceptions.

        Returns:
            This classifier.

        Raises:
            ConfigurationError: There is no type, or one that ends the program (`SystemExit`).
        """
        return self._register("discard", kinds, _Rule("discard"))

    def retry(
        self, *kinds: type[BaseException], policy: Policy | None = None, outage: bool | None = None
    ) -> Self:
        """Charge a redelivery, with the delay of `policy`.

        Each message has one delivery count, for all types of exceptions. `policy` compares its own maximum
        with that count, and its delay is the one before the redelivery of that number.

        Args:
            *kinds: Types of exceptions.
            policy: Redelivery policy; None: the destination's.
            outage: True if many such failures in a row may be an outage, which opens the breaker. None: True
                for all types but errors about values (`ValueError`, `LookupError`, `TypeError`,
                `AttributeError`, `ArithmeticError`, `AssertionError`, `NameError`, `NotImplementedError`).

        Returns:
            This classifier.

        Raises:
            ConfigurationError: There is no type, or one that ends the program (`SystemExit`); or `policy` is
                not a policy.
        """
        if policy is not None:
            check_policy(policy, "retry: policy")
        weight: Weight | None = (
            None if outage is None else "maybe" if flag(outage, "retry: outage") else "own"
        )
        return self._register("retry", kinds, _Rule("retry", policy=policy, weight=weight))

    def trip(self, *kinds: type[BaseException], policy: Policy | None = None) -> Self:
        """Treat these exceptions as an outage of a service: open the breaker, charge no redelivery.

        Three failures in a row open it (`Breaker.named`). Before that, the message is redelivered after the
        delay of `policy`. A message that fails with such an exception again, although others succeeded in
        between, is charged a redelivery: the service is not down then. Without a breaker this is the same as
        `retry`.

        Args:
            *kinds: Types of exceptions.
            policy: Redelivery policy; None: the destination's.

        Returns:
            This classifier.

        Raises:
            ConfigurationError: There is no type, or one that ends the program (`SystemExit`); or `policy` is
                not a policy.
        """
        if policy is not None:
            check_policy(policy, "trip: policy")
        return self._register("trip", kinds, _Rule("trip", policy=policy, weight="outage"))

    def defer(
        self, kind: type[BaseException] | tuple[type[BaseException], ...], delay: float | timedelta
    ) -> Self:
        """Redeliver the message after `delay` without charging a redelivery, as `Defer` does.

        Args:
            kind: Type of exceptions, or a tuple of types.
            delay: Seconds, or a timedelta, until the redelivery.

        Returns:
            This classifier.

        Raises:
            ConfigurationError: `delay` is not a duration; or a type ends the program (`SystemExit`).
        """
        kinds = kind if isinstance(kind, tuple) else (kind,)
        return self._register("defer", kinds, _Rule("defer", seconds(delay, "defer: delay")))

    def _register(self, method: str, kinds: tuple[type[BaseException], ...], rule: _Rule) -> Self:
        if not kinds:
            raise ConfigurationError(
                f"{method}() needs an exception type, as in .{method}(ValueError)", option="errors"
            )
        for kind in cast("tuple[Any, ...]", kinds):
            if not is_failure_type(kind):
                raise ConfigurationError(
                    f"{method}() takes types of exceptions, not {kind!r}: {_why_not(cast('object', kind))}",
                    option="errors",
                )
            if kind in _STEERING:
                raise ConfigurationError(
                    f"{method}({kind.__name__}): redelivery.{kind.__name__} decides by itself; leave it out",
                    option="errors",
                )
        self._rules.update(dict.fromkeys(kinds, rule))
        return self

    def copy(self) -> Classifier:
        """Return another classifier with the same rules."""
        made = Classifier()
        made._rules.update(self._rules)
        return made

    @property
    def policies(self) -> tuple[tuple[str, Policy], ...]:
        """Pairs of an exception type's name and the policy of its rule (`retry` or `trip`), as registered."""
        return tuple(
            (kind.__name__, rule.policy) for kind, rule in self._rules.items() if rule.policy is not None
        )

    @property
    def places(self) -> tuple[str, ...]:
        """Dead-letter destinations of `poison(…, to=…)`, qualified, each once."""
        return tuple(dict.fromkeys(rule.place for rule in self._rules.values() if rule.place is not None))

    @property
    def rules(self) -> int:
        """Number of exception types that are registered."""
        return len(self._rules)

    def __repr__(self) -> str:
        rules = "".join(f".{rule.what}({kind.__name__})" for kind, rule in self._rules.items())
        return f"Classifier(){rules}"

    def event_for(self, delivery: Delivery, error: BaseException) -> Event:
        """Return the event that an exception of a handler causes for its delivery.

        An exception that cannot be classified (a `Defer` without a valid delay, a group that raises) is a
        plain failure.
        """
        told, rule, delay = self._judged(error)
        cause = Cause.of(told, rule.place)
        match rule.what:
            case "poison":
                return Poisoned(delivery, cause)
            case "discard":
                return Discarded(delivery, cause)
            case "defer":
                return Deferred(delivery, delay, cause)
            case _:
                return Failed(delivery, cause, rule.policy, rule.weight or _weight(told))

    def verdict(self, error: Exception) -> tuple[Kind, Cause, float]:
        """Return what becomes of a message whose handler raises this exception.

        Args:
            error: Exception of the handler.

        Returns:
            The kind (`fail` leaves it to its policy), the cause, and the seconds of a deferral (0 for other
            kinds).
        """
        told, rule, delay = self._judged(error)
        match rule.what:
            case "poison" | "discard" | "defer":
                return rule.what, Cause.of(told, rule.place), delay
            case _:
                return "fail", Cause.of(told), delay

    def _judged(self, error: BaseException) -> tuple[BaseException, _Rule, float]:
        """Return the exception that decides, its rule, and the seconds of a deferral."""
        try:
            told, rule = self._decide(error)
            return told, rule, _delay(told, rule)
        except Exception:
            name = Cause.of(error).kind
            logger.exception("errors=: %s cannot be classified; its message follows the policy", name)
            return error, _FAILURE, 0.0

    def _decide(self, error: BaseException) -> tuple[BaseException, _Rule]:
        """Return the exception of a group that decides, or the exception itself, and its rule."""
        kind, rule = self._rule(error)
        if not issubclass(type(error), BaseExceptionGroup) or (
            kind is not None and issubclass(kind, BaseExceptionGroup)
        ):
            return error, rule
        return max(
            ((leaf, self._rule(leaf)[1]) for leaf in leaves(error)),
            key=lambda found: (_GRAVITY[found[1].what], _delay(*found)),
        )

    def _rule(self, error: BaseException) -> tuple[type[BaseException] | None, _Rule]:
        for kind in type(error).__mro__:
            rule = self._rules.get(kind) or _STEERING.get(kind)
            if rule is not None:
                return kind, rule
        return None, _FAILURE


def _weight(error: BaseException) -> Weight:
    """Return the weight for the breaker of an exception without a rule."""
    return "own" if issubclass(type(error), _OWN) else "maybe"


def _delay(error: BaseException, rule: _Rule) -> float:
    """Return the seconds of a deferral; 0 for any other rule."""
    if rule.what != "defer":
        return 0.0
    # `delay` may be anything: a subclass or a handler may have set it.
    return rule.delay if rule.delay is not None else seconds(cast("Defer", error).delay, "Defer: delay")


def checked_errors(errors: object) -> Classifier | None:
    """Return a copy of the classifier that `errors=` gives, or None.

    Raises:
        ConfigurationError: It is anything else.
    """
    if errors is None:
        return None
    if not isinstance(errors, Classifier):
        hint = "; did you mean redelivery.Classifier()?" if errors is Classifier else ""
        raise ConfigurationError(
            f"errors= must be a redelivery.Classifier, not {type(errors).__name__}{hint}", option="errors"
        )
    return errors.copy()
