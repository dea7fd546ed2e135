"""From an exception's type to what becomes of its message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, cast

from redelivery.core.delivery import Cause
from redelivery.core.events import Deferred, Discarded, Failed, Poisoned
from redelivery.core.option_values import flag, seconds
from redelivery.core.policy.policy_map import check_policy
from redelivery.errors import ConfigurationError
from redelivery.handler_exceptions import Defer, Discard, Poison
from redelivery.log import logger

if TYPE_CHECKING:
    from collections.abc import Iterator
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
    """Of a deferral; None: the exception tells."""
    policy: Policy | None = None
    """Of a failure; None: the destination's."""
    weight: Weight | None = None
    """Of a failure, for the breaker; None: by the type of the exception."""


_GRAVITY = {"discard": 0, "defer": 1, "retry": 2, "trip": 2, "poison": 3}
_STEERING: dict[type[BaseException], _Rule] = {
    Poison: _Rule("poison"), Discard: _Rule("discard"), Defer: _Rule("defer"),
}  # fmt: skip
_FAILURE = _Rule("retry")
# What a value raises that a handler cannot work with: the ordinary poison of a bad producer, and no outage.
_OWN = (
    ArithmeticError, AssertionError, AttributeError, LookupError, NameError, NotImplementedError, TypeError, ValueError,
)  # fmt: skip


class Classifier:
    """Chooses by an exception's type what becomes of its message; what it does not know follows the policy.

    Each method registers exception types and returns the classifier, so calls can be chained. A type serves its
    subclasses, too: the first class along the exception's MRO that is registered decides, which is the most specific
    one; a type that is registered again has its last rule. `Poison`, `Discard` and `Defer` steer by themselves.

    Of an exception group each exception is looked at, and the gravest decides: poison, then a failure, then a deferral
    (the longest), then a discard; among equals the first. A group type that is registered itself decides for the whole.

    A connection and a listener take the classifier as it is when they are given it: later calls change nothing there.
    """

    __slots__ = ("_rules",)

    def __init__(self) -> None:
        self._rules: dict[type[BaseException], _Rule] = {}

    def poison(self, *kinds: type[Exception]) -> Self:
        """Dead-letter the message at once, whatever redeliveries its policy has left."""
        return self._register("poison", kinds, _Rule("poison"))

    def discard(self, *kinds: type[Exception]) -> Self:
        """Accept the message and drop it; it is counted as discarded."""
        return self._register("discard", kinds, _Rule("discard"))

    def retry(
        self, *kinds: type[Exception], policy: Policy | None = None, outage: bool | None = None
    ) -> Self:
        """Charge a redelivery: the message is redelivered as `policy` says, by default its destination's.

        There is one count for each message, whatever it failed with: `policy` compares its own maximum with that count,
        and its delay is the one before the redelivery of that number.

        `outage`: whether many such failures in a row may be an outage, which opens the breaker. None: all but errors
        about values (`ValueError`, `LookupError`, `TypeError`, `AttributeError`, `ArithmeticError`, `AssertionError`,
        `NameError`, `NotImplementedError`).
        """
        if policy is not None:
            check_policy(policy, "retry: policy")
        weight: Weight | None = (
            None if outage is None else "maybe" if flag(outage, "retry: outage") else "own"
        )
        return self._register("retry", kinds, _Rule("retry", policy=policy, weight=weight))

    def trip(self, *kinds: type[Exception], policy: Policy | None = None) -> Self:
        """Take these for an outage of a service that handlers need: the breaker opens, and no redelivery is charged.

        Three failures in a row open it (`Breaker.told`). Before that the message is redelivered after the delay of
        `policy`, by default its destination's. One that fails so again although others have succeeded in between is
        charged, for then the service is not down. Without a breaker it is as `retry`.
        """
        if policy is not None:
            check_policy(policy, "trip: policy")
        return self._register("trip", kinds, _Rule("trip", policy=policy, weight="outage"))

    def defer(self, kind: type[Exception] | tuple[type[Exception], ...], delay: float | timedelta) -> Self:
        """Have the message come again after `delay` (seconds, or a timedelta), uncharged, as `Defer` does."""
        kinds = kind if isinstance(kind, tuple) else (kind,)
        return self._register("defer", kinds, _Rule("defer", seconds(delay, "defer: delay")))

    def _register(self, method: str, kinds: tuple[type[Exception], ...], rule: _Rule) -> Self:
        if not kinds:
            raise ConfigurationError(
                f"{method}() needs an exception type, as in .{method}(ValueError)", option="errors"
            )
        for kind in cast("tuple[Any, ...]", kinds):
            if not isinstance(kind, type) or not issubclass(kind, Exception):
                raise ConfigurationError(
                    f"{method}() takes subclasses of Exception, not {kind!r}; any other gives the message "
                    "back and ends the worker",
                    option="errors",
                )
            if kind in _STEERING:
                raise ConfigurationError(
                    f"{method}({kind.__name__}): redelivery.{kind.__name__} steers by itself", option="errors"
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
        """The policies of `retry`, each with the name of its exception type."""
        return tuple(
            (kind.__name__, rule.policy) for kind, rule in self._rules.items() if rule.policy is not None
        )

    @property
    def rules(self) -> int:
        """How many types of exceptions it names."""
        return len(self._rules)

    def __repr__(self) -> str:
        rules = "".join(f".{rule.what}({kind.__name__})" for kind, rule in self._rules.items())
        return f"Classifier(){rules}"

    def event_for(self, delivery: Delivery, error: Exception) -> Event:
        """Return what an exception of a handler means for its delivery.

        An exception that cannot be looked at (a `Defer` whose delay is none, a group that raises) is a plain failure.
        """
        told, rule, delay = self._judged(error)
        cause = Cause.of(told)
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
        """Return what becomes of a message whose handler raises this (`fail`: what its policy says), why, and when."""
        told, rule, delay = self._judged(error)
        match rule.what:
            case "poison" | "discard" | "defer":
                return rule.what, Cause.of(told), delay
            case _:
                return "fail", Cause.of(told), delay

    def _judged(self, error: Exception) -> tuple[Exception, _Rule, float]:
        """Return the exception that decides, its rule, and the seconds of a deferral."""
        try:
            told, rule = self._decide(error)
            return told, rule, _delay(told, rule)
        except Exception:
            name = type(error).__name__
            logger.exception("errors=: %s cannot be classified; its message follows the policy", name)
            return error, _FAILURE, 0.0

    def _decide(self, error: Exception) -> tuple[Exception, _Rule]:
        """Return the rule for an exception, and which exception of a group it is for."""
        if not isinstance(error, BaseExceptionGroup):
            return error, self._rule(error)[1]
        group = cast("ExceptionGroup[Exception]", error)
        kind, rule = self._rule(group)
        if kind is not None and issubclass(kind, BaseExceptionGroup):
            return group, rule
        return max(
            ((leaf, self._rule(leaf)[1]) for leaf in _leaves(group)),
            key=lambda found: (_GRAVITY[found[1].what], _delay(*found)),
        )

    def _rule(self, error: Exception) -> tuple[type[BaseException] | None, _Rule]:
        for kind in type(error).__mro__:
            rule = self._rules.get(kind) or _STEERING.get(kind)
            if rule is not None:
                return kind, rule
        return None, _FAILURE


def _weight(error: Exception) -> Weight:
    """Return what an exception means for the breaker that no rule names."""
    return "own" if isinstance(error, _OWN) else "maybe"


def _delay(error: Exception, rule: _Rule) -> float:
    """Return how long a deferral lasts; 0 for anything else."""
    if rule.what != "defer":
        return 0.0
    # A subclass, or a handler, may have put anything there.
    return rule.delay if rule.delay is not None else seconds(cast("Defer", error).delay, "Defer: delay")


def _leaves(group: ExceptionGroup[Exception]) -> Iterator[Exception]:
    """Go through the exceptions of a group and of the groups in it, in order, however deep."""
    waiting: list[Exception] = [group]
    while waiting:
        error = waiting.pop()
        if isinstance(error, ExceptionGroup):
            waiting += reversed(cast("ExceptionGroup[Exception]", error).exceptions)
        else:
            yield error


def checked_errors(errors: object) -> Classifier | None:
    """Return a copy of the classifier that `errors=` gives, or None. Raises ConfigurationError for anything else."""
    if errors is None:
        return None
    if not isinstance(errors, Classifier):
        hint = "; did you mean redelivery.Classifier()?" if errors is Classifier else ""
        raise ConfigurationError(
            f"errors= must be a redelivery.Classifier, not {type(errors).__name__}{hint}", option="errors"
        )
    return errors.copy()
