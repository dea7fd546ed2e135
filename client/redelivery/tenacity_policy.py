"""Redelivery policy made of tenacity's own `wait` and `stop` strategies."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import tenacity

from redelivery.core import option_values
from redelivery.errors import ConfigurationError, RedeliveryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.core.policy.random_source import RandomSource

__all__ = ["TenacityPolicy"]

_LONGEST_WALK = 100_000
_FAR = 2**31
_MIDDLE = 0.5
_MOST = 1.0


class _Attempt:
    """Stand-in for tenacity's call state: a delivery failed `elapsed` seconds after the first one."""

    def __init__(self, attempt: int, elapsed: float, upcoming: float = 0.0) -> None:
        failure = RedeliveryError("the delivery failed")
        self.attempt_number = attempt
        self.seconds_since_start = elapsed
        self.upcoming_sleep = upcoming
        self.idle_for = elapsed
        self.start_time = 0.0
        self.outcome_timestamp = elapsed
        self.fn = None
        self.args: tuple[object, ...] = ()
        self.kwargs: dict[str, object] = {}
        self.next_action = None
        self.retry_object = None
        self.outcome = tenacity.Future.construct(attempt, failure, has_exception=True)


class TenacityPolicy:
    """Policy made of tenacity strategies: its delays are those of `wait`, its maximum is that of `stop`.

    The strategies are called in advance, and get a stand-in for the exception: `wait_exception` (tenacity
    9.1.3) gets a plain `RedeliveryError`. tenacity's own random waits draw from the `random` passed to the
    policy; without one they give the middle of their range.
    """

    __slots__ = ("_maximum", "_stop", "_wait")

    def __init__(self, *, wait: object, stop: object) -> None:
        """Take tenacity strategies, combined in any way, or callables like them.

        Raises:
            ConfigurationError: One is neither, or cannot be evaluated in advance.
        """
        self._wait = _strategy(wait, "wait")
        self._stop = _strategy(stop, "stop")
        if any(isinstance(part, tenacity.stop_when_event_set) for part in _parts(self._stop)):
            raise ConfigurationError("stop=stop_when_event_set cannot be evaluated beforehand", option="stop")
        most, least = self._stops_after(_MOST), self._stops_after(0.0)
        if most != least:
            raise ConfigurationError(
                "stop depends on the elapsed time, and so on the random waits: give a stop_after_attempt",
                option="stop",
            )
        self._maximum = most

    @property
    def maximum_redeliveries(self) -> int:
        """Number of redeliveries before a message is poison. -1 if `stop` never stops."""
        return self._maximum

    def redelivery_delay_ms(self, redelivery: int, random: RandomSource | None = None) -> int:
        """Return the delay before a redelivery.

        Args:
            redelivery: Number of the redelivery, from 1.
            random: Source of random waits; None: the middle of their range.

        Returns:
            The delay in milliseconds.

        Raises:
            ValueError: `redelivery` is below 1.
            ConfigurationError: The wait fails, or is not a duration.
        """
        return round(self._asked(redelivery, _MIDDLE if random is None else random) * 1000)

    def delays_ms(self, n: int, random: RandomSource | None = None) -> list[int]:
        """Return the delays in milliseconds before the redeliveries 1 to `n`, which may exceed the maximum."""
        return [self.redelivery_delay_ms(k, random) for k in range(1, n + 1)]

    def worst_case_ms(self) -> int | None:
        """Return the sum of the longest delays in milliseconds; None: there is no maximum."""
        if self._maximum < 0:
            return None
        return sum(round(self._asked(k, _MOST) * 1000) for k in range(1, self._maximum + 1))

    def to_options(self) -> dict[str, str]:
        """Return the maximum and the names of the strategies. The Java client has no option for them."""
        return {
            "maximumRedeliveries": str(self._maximum),
            "wait": type(self._wait).__name__,
            "stop": type(self._stop).__name__,
        }

    def __repr__(self) -> str:
        """Return the names of the strategies and the maximum."""
        parts = ", ".join(f"{name}={value}" for name, value in self.to_options().items())
        return f"TenacityPolicy({parts})"

    def _asked(self, redelivery: int, draw: float | RandomSource, elapsed: float = 0.0) -> float:
        if redelivery < 1:
            raise ValueError(f"redelivery must be 1 or more, not {redelivery}")
        try:
            seconds = _waited(self._wait, _Attempt(redelivery, elapsed), draw)
        except Exception as error:
            raise ConfigurationError(
                f"wait failed for redelivery {redelivery}: {type(error).__name__}: {error}", option="wait"
            ) from error
        if isinstance(seconds, timedelta):
            seconds = seconds.total_seconds()
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
            raise option_values.refuse("wait", seconds, "a duration of 0 seconds or more")
        return min(float(seconds), option_values.MAX_LONG / 1000)

    def _ended(self, attempt: _Attempt) -> bool:
        try:
            return bool(self._stop(attempt))
        except Exception as error:
            raise ConfigurationError(
                f"stop cannot be evaluated beforehand: {type(error).__name__}: {error}", option="stop"
            ) from error

    def _stops_after(self, draw: float) -> int:
        """Return the number of redeliveries until `stop` ends them, or -1 if it never does."""
        if not self._ended(_Attempt(_FAR, float(_FAR), float(_FAR))):
            return -1
        elapsed = 0.0
        for delivery in range(1, _LONGEST_WALK + 1):
            # tenacity asks for the wait first, then whether to stop.
            upcoming = self._asked(delivery, draw, elapsed)
            if self._ended(_Attempt(delivery, elapsed, upcoming)):
                return delivery - 1
            elapsed += upcoming
        raise ConfigurationError(
            f"stop does not stop within {_LONGEST_WALK} deliveries: the waits never add up to its limit",
            option="stop",
        )


def _strategy(strategy: object, name: str) -> Callable[[Any], Any]:
    if not callable(strategy) or isinstance(strategy, type):
        raise ConfigurationError(
            f"{name} must be a tenacity strategy, not {option_values.shown(strategy)}", option=name
        )
    return strategy


def _parts(strategy: object) -> list[object]:
    """Return a stop strategy and all strategies that it combines."""
    inner: tuple[object, ...] = getattr(strategy, "stops", ())
    return [strategy, *(part for one in inner for part in _parts(one))]


def _waited(wait: object, attempt: _Attempt, draw: float | RandomSource) -> Any:
    """Return the wait in seconds; `draw` replaces, or gives, each random number that tenacity would draw."""
    share = draw if isinstance(draw, int | float) else draw.random()
    number = attempt.attempt_number
    match wait:
        case tenacity.wait_combine():
            return sum(_waited(part, attempt, draw) for part in wait.wait_funcs)
        case tenacity.wait_chain():
            return _waited(wait.strategies[min(number, len(wait.strategies)) - 1], attempt, draw)
        case tenacity.wait_random():
            low, high = wait.wait_random_min, wait.wait_random_max
            return low + share * (high - low)
        case tenacity.wait_random_exponential():
            high = tenacity.wait_exponential.__call__(wait, cast("Any", attempt))
            return wait.min + share * (high - wait.min)
        case tenacity.wait_exponential_jitter():
            return _jittered(wait, number, share)
        case _:
            return cast("Callable[[Any], Any]", wait)(attempt)


def _jittered(wait: tenacity.wait_exponential_jitter, number: int, share: float) -> float:
    # tenacity renamed `initial` to `multiplier`, and `min` is newer than 8.5.
    first: float = getattr(wait, "multiplier", getattr(wait, "initial", 1))
    try:
        grown = first * wait.exp_base ** (number - 1) + share * wait.jitter
    except OverflowError:
        grown = wait.max
    return float(max(0, getattr(wait, "min", 0), min(grown, wait.max)))
