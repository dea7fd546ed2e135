"""Redelivery policy of the ActiveMQ Classic client: how often, and after which delays, to redeliver.

Delays are computed to the millisecond as `org.apache.activemq.RedeliveryPolicy` 6.1.7 computes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from redelivery.core import option_values
from redelivery.core.cause import CAUSE_LIMIT, Cause
from redelivery.core.option_values import MAX_LONG, clip
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import timedelta

    from redelivery.core.delivery import Record
    from redelivery.core.policy.random_source import RandomSource
    from redelivery.tenacity_policy import TenacityPolicy

__all__ = [
    "DelayListPolicy",
    "Policy",
    "RedeliveryPolicy",
    "bounded",
    "mark_late",
    "option_ms",
    "outlasted",
    "span",
]


# ---- Delay chain -----------------------------------------------------------------------------------------
# Chain of delays of Classic's policy: each delay is computed from the one before it, in whole milliseconds.

_STRIDE = 256
_EXACT_STEPS = 10_000


@dataclass(frozen=True, slots=True)
class DelaySteps:
    """Rules by which one delay follows from the one before it. Milliseconds throughout."""

    delay_ms: int
    multiplier: float | None
    """None unless back-off is exponential and the multiplier is above 1; otherwise it has no effect."""
    cap_ms: int | None
    factor: float
    """Collision avoidance, 0 to 1; 0: off."""

    def nominal(self, previous_ms: int) -> int:
        """Return the delay after `previous_ms`, without jitter."""
        if self.multiplier is None or previous_ms <= 0:
            return self.delay_ms
        grown = clip(previous_ms * self.multiplier)
        if self.cap_ms is not None and grown > self.cap_ms:
            return max(self.cap_ms, self.delay_ms)
        return grown

    def following(self, previous_ms: int, random: RandomSource | None) -> int:
        """Return the delay after `previous_ms`; with `random` it varies by up to the factor."""
        nominal = self.nominal(previous_ms)
        return nominal if random is None or not self.factor else self.varied(nominal, random)

    def varied(self, nominal: int, random: RandomSource) -> int:
        """Return `nominal` with jitter."""
        # As in the Java client: a fair coin for the sign, then a uniform share, then truncation.
        side = self.factor if random.random() < 0.5 else -self.factor
        return clip(nominal + nominal * (side * random.random()))

    @property
    def plateau(self) -> int | None:
        """Nominal delay that stays the same once it is reached, with any jitter; None if there is none."""
        if self.multiplier is None or self.cap_ms is None:
            return None
        top = max(self.cap_ms, self.delay_ms)
        least = clip(top - top * self.factor)
        return top if clip(least * self.multiplier) > self.cap_ms else None

    def bounds(self, low: int, high: int) -> tuple[int, int]:
        """Return the least and the greatest delay that can follow a delay from `low` to `high`."""
        least, most = self.nominal(max(low, 1)), self.nominal(high)
        if low <= 0:
            # After a delay of 0 the next one is the plain delay, however long that is.
            least, most = min(least, self.delay_ms), max(most, self.delay_ms)
        return clip(least - least * self.factor), clip(most + most * self.factor)


class DelayChain:
    """Delays without jitter after one initial delay; each is found without computing the whole chain.

    Every 256th delay is remembered. Once a delay repeats, all later ones are equal. Threads in a race may compute an
    entry twice, with the same value.
    """

    __slots__ = ("_checkpoints", "_constant_from", "_initial_ms", "_steps")

    def __init__(self, initial_ms: int, steps: DelaySteps) -> None:
        self._initial_ms = initial_ms
        self._steps = steps
        self._checkpoints: dict[int, int] = {1: initial_ms}
        # Without exponential steps all delays after the first are equal.
        self._constant_from: tuple[int, int] | None = (
            (2, steps.delay_ms) if steps.multiplier is None else None
        )

    def at(self, redelivery: int) -> int:
        """Return the delay before the `redelivery`-th redelivery, in milliseconds."""
        constant = self._constant_from
        if constant is not None and redelivery >= constant[0]:
            return constant[1]
        here, delay = self._nearest(redelivery)
        while here < redelivery:
            following = self._steps.nominal(delay)
            if following == delay:
                self._constant_from = (here, delay)
                return delay
            here, delay = here + 1, following
            if here % _STRIDE == 1:
                self._checkpoints[here] = delay
        return delay

    def _nearest(self, redelivery: int) -> tuple[int, int]:
        """Return the last remembered redelivery up to `redelivery`, and its delay."""
        checkpoints = self._checkpoints
        wanted = (redelivery - 1) // _STRIDE * _STRIDE + 1
        here = wanted if wanted in checkpoints else (len(checkpoints) - 1) * _STRIDE + 1
        return here, checkpoints[here]


def drawn(initial_ms: int, steps: DelaySteps, redelivery: int, random: RandomSource) -> int:
    """Return the delay before the `redelivery`-th redelivery; every step is drawn anew, as the Java client does."""
    if redelivery == 1:
        return initial_ms
    if steps.multiplier is None:
        # Only the last draw has an effect.
        return steps.following(0, random)
    delay, plateau = initial_ms, steps.plateau
    for _ in range(redelivery - 1):
        nominal = steps.nominal(delay)
        delay = steps.varied(nominal, random)
        if nominal == plateau:
            # All later steps have the same distribution: this one stands for the last one.
            break
    return delay


def worst_sum(initial_ms: int, steps: DelaySteps, redeliveries: int) -> int:
    """Return an upper bound of the sum of the first `redeliveries` delays, jitter included."""
    if redeliveries == 0:
        return 0
    total, low, high = initial_ms, initial_ms, initial_ms
    for left in range(redeliveries - 1, 0, -1):
        following = steps.bounds(low, high)
        if following == (low, high):
            return total + high * left
        low, high = following
        total += high
        if redeliveries - left > _EXACT_STEPS:
            return total + (left - 1) * _ceiling(steps)
    return total


def _ceiling(steps: DelaySteps) -> int:
    """Return a delay that no exponential step exceeds, for chains too long to add up step by step."""
    base = MAX_LONG if steps.cap_ms is None else max(steps.cap_ms, steps.delay_ms)
    return clip(base + base * steps.factor)


# ---- Time limit ------------------------------------------------------------------------------------------
# Time limit of a policy: no redelivery of a message begins later than this after its first failure.
#
# It is optional, also for policies of users: a policy without the attribute `maximum_elapsed` has no such limit.


def checked_ms(value: object, option: str) -> int | None:
    """Return a limit in whole milliseconds, from seconds or a `timedelta`; None: no limit.

    Raises ConfigurationError for a value that is no duration, and for 0: in other systems 0 means no limit.
    """
    ms = None if value is None else option_values.duration_ms(value, option)
    if ms == 0:
        raise option_values.refuse(option, value, "a duration of 0.001 s or more, or None for no limit")
    return ms


def option_ms(value: object, option: str) -> int | None:
    """Read a limit in milliseconds, as text or a number; -1: no limit. Raises ConfigurationError, also for 0."""
    ms = option_values.option_ms(value, option, -1)
    if ms == 0:
        raise option_values.refuse(option, value, "1 millisecond or more, or -1 for no limit")
    return None if ms == -1 else ms


def span(ms: int) -> str:
    """Return a limit in seconds, for users: `3600 s`, `0.25 s`."""
    whole, rest = divmod(ms, 1000)
    return f"{whole}.{rest:03d}".rstrip("0").rstrip(".") + " s" if rest else f"{whole} s"


def bounded(worst_ms: int | None, limit_ms: int | None) -> int | None:
    """Return the bound of the sum of all delays, if no redelivery begins after the limit."""
    if worst_ms is None or limit_ms is None:
        return limit_ms if worst_ms is None else worst_ms
    return min(worst_ms, limit_ms)


def outlasted(record: Record, limit_ms: int, at: float) -> bool:
    """Return True if the time `at` is more than the limit after the first failure, in whole milliseconds.

    Time for which an open breaker kept the message does not count.
    """
    first = record.first_failure
    return first is not None and round((at - first - record.idle) * 1000) > limit_ms


def mark_late(record: Record, limit_ms: int) -> None:
    """Add to the cause of a message that its time limit was exceeded."""
    why = f" (after {span(limit_ms)})"
    cause = record.cause or Cause("")
    record.cause = Cause(cause.text[: CAUSE_LIMIT - len(why)] + why, cause.kind)


# ---- Redelivery policy -----------------------------------------------------------------------------------

_OPTIONS = (
    "maximumRedeliveries",
    "initialRedeliveryDelay",
    "redeliveryDelay",
    "maximumRedeliveryDelay",
    "useExponentialBackOff",
    "backOffMultiplier",
    "useCollisionAvoidance",
    "collisionAvoidancePercent",
    "collisionAvoidanceFactor",
    "preDispatchCheck",
)
# An option of this library: the Java client has no limit of time.
_ELAPSED = "maximumElapsed"


@runtime_checkable
class Policy(Protocol):
    """Interface of every redelivery policy, as the engine uses it.

    A policy may also have an attribute `maximum_elapsed`: seconds or a `timedelta` after the first failure of a
    message, after which no redelivery of it begins. None, or no such attribute: no limit.
    """

    @property
    def maximum_redeliveries(self) -> int:
        """Redeliveries before a message is poison: N means N + 1 deliveries; -1: no limit."""
        ...

    def redelivery_delay_ms(self, redelivery: int, random: RandomSource | None = None) -> int:
        """Return the delay in milliseconds before the `redelivery`-th redelivery (the first is 1)."""
        ...

    def delays_ms(self, n: int, random: RandomSource | None = None) -> list[int]:
        """Return the delays in milliseconds before redelivery 1 to `n`."""
        ...

    def worst_case_ms(self) -> int | None:
        """Return an upper bound in milliseconds of the sum of all delays; None: there is no bound."""
        ...


@dataclass(frozen=True, slots=True, init=False)
class RedeliveryPolicy:
    """Policy of the ActiveMQ Classic client: fixed delays, or exponential back-off, with or without jitter.

    Durations are seconds (read back as float) or a `timedelta`. Every default is that of the Java client
    (`RedeliveryPolicy` 6.1.7). As in the Java client, the cap bounds exponential steps only, at max(cap, redelivery
    delay). The first redelivery waits for the initial delay. Jitter is applied after the cap: a delay can exceed the
    cap by the factor.

    Args:
        maximum_redeliveries: Redeliveries after the first delivery; 0: one delivery, -1: no limit. Default 6.
        initial_redelivery_delay: Delay before the first redelivery, rounded to milliseconds. Default 1 s.
        redelivery_delay: Delay before each further one, and start of the back-off. Default 1 s.
        maximum_redelivery_delay: Cap of exponential steps; None: no cap.
        use_exponential_back_off: True: each delay is the one before it times `back_off_multiplier`.
        back_off_multiplier: Has an effect above 1 only. Default 5.
        use_collision_avoidance: True: each delay varies at random by plus or minus `collision_avoidance_factor`.
        collision_avoidance_factor: Share from 0 to 1. Default 0.15.
        pre_dispatch_check: In transacted sessions, a message whose broker count exceeds the maximum is poison.
        maximum_elapsed: Time after the first failure, after which no redelivery begins (poison). None: no limit.

    Raises:
        ConfigurationError: A value is out of its range, or of another type.
    """

    maximum_redeliveries: int
    initial_redelivery_delay: float
    redelivery_delay: float
    maximum_redelivery_delay: float | None
    use_exponential_back_off: bool
    back_off_multiplier: float
    use_collision_avoidance: bool
    collision_avoidance_factor: float
    pre_dispatch_check: bool
    maximum_elapsed: float | None
    _initial_ms: int = field(init=False, repr=False)
    _steps: DelaySteps = field(init=False, repr=False)
    _chain: DelayChain = field(init=False, repr=False, compare=False)
    _elapsed_ms: int | None = field(init=False, repr=False)

    def __init__(
        self,
        *,
        maximum_redeliveries: int = 6,
        initial_redelivery_delay: float | timedelta = 1.0,
        redelivery_delay: float | timedelta = 1.0,
        maximum_redelivery_delay: float | timedelta | None = None,
        use_exponential_back_off: bool = False,
        back_off_multiplier: float = 5.0,
        use_collision_avoidance: bool = False,
        collision_avoidance_factor: float = 0.15,
        pre_dispatch_check: bool = True,
        maximum_elapsed: float | timedelta | None = None,
    ) -> None:
        """Build a policy."""
        cap_ms = None
        if maximum_redelivery_delay is not None:
            cap_ms = option_values.duration_ms(maximum_redelivery_delay, "maximum_redelivery_delay")
        exponential = option_values.flag(use_exponential_back_off, "use_exponential_back_off")
        multiplier = option_values.real(back_off_multiplier, "back_off_multiplier")
        jitter = option_values.flag(use_collision_avoidance, "use_collision_avoidance")
        factor = option_values.real(collision_avoidance_factor, "collision_avoidance_factor", 0, 1)
        steps = DelaySteps(
            delay_ms=option_values.duration_ms(redelivery_delay, "redelivery_delay"),
            multiplier=multiplier if exponential and multiplier > 1 else None,
            cap_ms=cap_ms,
            factor=factor if jitter else 0.0,
        )
        put = object.__setattr__
        maximum = option_values.whole(maximum_redeliveries, "maximum_redeliveries", -1)
        put(self, "maximum_redeliveries", maximum)
        put(self, "use_exponential_back_off", exponential)
        put(self, "back_off_multiplier", multiplier)
        put(self, "use_collision_avoidance", jitter)
        put(self, "collision_avoidance_factor", factor)
        put(self, "pre_dispatch_check", option_values.flag(pre_dispatch_check, "pre_dispatch_check"))
        self._put_elapsed(checked_ms(maximum_elapsed, "maximum_elapsed"))
        initial_ms = option_values.duration_ms(initial_redelivery_delay, "initial_redelivery_delay")
        self._put_delays(initial_ms, steps)

    def _put_delays(self, initial_ms: int, steps: DelaySteps) -> None:
        put = object.__setattr__
        put(self, "_initial_ms", initial_ms)
        put(self, "_steps", steps)
        put(self, "_chain", DelayChain(initial_ms, steps))
        put(self, "initial_redelivery_delay", initial_ms / 1000)
        put(self, "redelivery_delay", steps.delay_ms / 1000)
        put(self, "maximum_redelivery_delay", None if steps.cap_ms is None else steps.cap_ms / 1000)

    def _put_elapsed(self, ms: int | None) -> None:
        object.__setattr__(self, "_elapsed_ms", ms)
        object.__setattr__(self, "maximum_elapsed", None if ms is None else ms / 1000)

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> RedeliveryPolicy:
        """Build a policy from the Java client's option names, as in a URI after `jms.redeliveryPolicy.`.

        Args:
            options: Values as text or numbers; durations in milliseconds. `maximumRedeliveryDelay=-1` is no cap.
                `collisionAvoidancePercent` is a whole number from 0 to 100, `collisionAvoidanceFactor` 0 to 1; give
                one of them. `maximumElapsed` is an option of this library; -1 is no limit.

        Raises:
            ConfigurationError: A name is unknown, or a value is out of its range.
        """
        given = option_values.known_options(options, (*_OPTIONS, _ELAPSED))
        elapsed = option_ms(given.pop(_ELAPSED), _ELAPSED) if _ELAPSED in given else None
        return cls.from_prefixed_options(given, "", elapsed)

    @classmethod
    def from_prefixed_options(
        cls, options: Mapping[str, object], prefix: str, elapsed_ms: int | None = None
    ) -> RedeliveryPolicy:
        """Build a policy from the Java client's options; errors name each with `prefix` before it.

        `elapsed_ms`: the limit of time in milliseconds, which the Java client does not have; None: no limit.
        """
        given = option_values.known_options(options, _OPTIONS, prefix)

        def ms(name: str, default: int, low: int = 0) -> int:
            return option_values.option_ms(given[name], prefix + name, low) if name in given else default

        def flag(name: str, *, default: bool) -> bool:
            return option_values.option_flag(given[name], prefix + name) if name in given else default

        maximum, multiplier = 6, 5.0
        if "maximumRedeliveries" in given:
            name = "maximumRedeliveries"
            maximum = option_values.option_whole(given[name], prefix + name, -1, option_values.MAX_INT)
        if "backOffMultiplier" in given:
            multiplier = option_values.option_real(given["backOffMultiplier"], prefix + "backOffMultiplier")
        policy = cls(
            maximum_redeliveries=maximum,
            use_exponential_back_off=flag("useExponentialBackOff", default=False),
            back_off_multiplier=multiplier,
            use_collision_avoidance=flag("useCollisionAvoidance", default=False),
            collision_avoidance_factor=_factor(given, prefix),
            pre_dispatch_check=flag("preDispatchCheck", default=True),
        )
        cap_ms = ms("maximumRedeliveryDelay", -1, -1)
        steps = replace(
            policy._steps, delay_ms=ms("redeliveryDelay", 1000), cap_ms=None if cap_ms == -1 else cap_ms
        )
        # Set in whole milliseconds: seconds as a float are not exact beyond 2^53 milliseconds.
        policy._put_delays(ms("initialRedeliveryDelay", 1000), steps)
        policy._put_elapsed(elapsed_ms)
        return policy

    @staticmethod
    def from_delays(
        delays: Iterable[float | timedelta], *, maximum_elapsed: float | timedelta | None = None
    ) -> DelayListPolicy:
        """Return a policy with a list of delays, used in order; after the last one a message is poison.

        Args:
            delays: Delays in order: seconds or `timedelta`. Their number is the maximum of redeliveries.
            maximum_elapsed: As of `RedeliveryPolicy`.

        Raises:
            ConfigurationError: A delay or the limit is no duration.
        """
        return DelayListPolicy(delays, maximum_elapsed=maximum_elapsed)

    @staticmethod
    def from_tenacity(*, wait: object, stop: object) -> TenacityPolicy:
        """Return a policy that takes each delay from tenacity's `wait`, and the maximum from its `stop`.

        Args:
            wait: Wait strategy of tenacity.
            stop: Stop strategy. `stop_after_attempt(4)` is 3 redeliveries. Elapsed time is the sum of the delays.

        Raises:
            ConfigurationError: A strategy cannot be evaluated in advance.
        """
        from redelivery.tenacity_policy import TenacityPolicy  # noqa: PLC0415  tenacity is loaded at first use

        return TenacityPolicy(wait=wait, stop=stop)

    def next_redelivery_delay_ms(self, previous_ms: int, random: RandomSource | None = None) -> int:
        """Return the delay in milliseconds that follows a delay of `previous_ms`. `random`: as of `delays_ms`."""
        return self._steps.following(previous_ms, random)

    def redelivery_delay_ms(self, redelivery: int, random: RandomSource | None = None) -> int:
        """Return the delay in milliseconds before the `redelivery`-th redelivery (the first is 1).

        As in the Java client, it is computed from the initial delay each time: with `random` every step of the chain is
        drawn anew, and the jitter compounds. `random`: as of `delays_ms`. Raises ValueError if `redelivery` is below 1.
        """
        if redelivery < 1:
            raise ValueError(f"redelivery must be 1 or more, not {redelivery}")
        if random is None or not self._steps.factor:
            return self._chain.at(redelivery)
        return drawn(self._initial_ms, self._steps, redelivery, random)

    def delays_ms(self, n: int, random: RandomSource | None = None) -> list[int]:
        """Return the delays in milliseconds before redelivery 1 to `n`, as one chain.

        `n` may exceed `maximum_redeliveries`. `random` (a `random.Random`) is the source of jitter, used if the policy
        avoids collisions; None: no jitter.
        """
        delays: list[int] = []
        delay = self._initial_ms
        for _ in range(n):
            delays.append(delay)
            delay = self._steps.following(delay, random)
        return delays

    def worst_case_ms(self) -> int | None:
        """Return an upper bound in milliseconds of the sum of all delays, jitter included.

        None if there is no bound: `maximum_redeliveries` is -1, and `maximum_elapsed` is None.
        """
        if self.maximum_redeliveries < 0:
            return self._elapsed_ms
        worst = worst_sum(self._initial_ms, self._steps, self.maximum_redeliveries)
        return bounded(worst, self._elapsed_ms)

    def to_options(self) -> dict[str, str]:
        """Return the policy in the Java client's names, in milliseconds; `from_options` reads it back.

        `maximumElapsed`, an option of this library, is included if there is such a limit.
        """
        steps, factor = self._steps, self.collision_avoidance_factor
        percent = round(factor * 100)
        options = {
            "maximumRedeliveries": str(self.maximum_redeliveries),
            "initialRedeliveryDelay": str(self._initial_ms),
            "redeliveryDelay": str(steps.delay_ms),
            "maximumRedeliveryDelay": str(-1 if steps.cap_ms is None else steps.cap_ms),
            "useExponentialBackOff": str(self.use_exponential_back_off).lower(),
            "backOffMultiplier": repr(self.back_off_multiplier),
            "useCollisionAvoidance": str(self.use_collision_avoidance).lower(),
        }
        if percent * 0.01 == factor:
            options["collisionAvoidancePercent"] = str(percent)
        else:
            options["collisionAvoidanceFactor"] = repr(factor)
        options["preDispatchCheck"] = str(self.pre_dispatch_check).lower()
        return options if self._elapsed_ms is None else options | {_ELAPSED: str(self._elapsed_ms)}


def _factor(given: Mapping[str, object], prefix: str) -> float:
    percent, factor = "collisionAvoidancePercent", "collisionAvoidanceFactor"
    if percent in given and factor in given:
        raise ConfigurationError(
            f"{prefix}{percent} and {prefix}{factor} are the same setting: give one of them",
            option=prefix + factor,
        )
    if factor in given:
        return option_values.option_real(given[factor], prefix + factor, 0, 1)
    if percent in given:
        return option_values.option_whole(given[percent], prefix + percent, 0, 100) * 0.01
    return 0.15


# ---- Delay list ------------------------------------------------------------------------------------------
# Policy with an explicit list of delays.


@dataclass(frozen=True, slots=True, init=False)
class DelayListPolicy:
    """Policy with a list of delays, used in order; a failure after the last one poisons the message."""

    delays: tuple[int, ...]
    """Delays in milliseconds."""
    maximum_elapsed: float | None
    """Seconds after the first failure, after which no redelivery begins; None: no limit."""
    _elapsed_ms: int | None = field(init=False, repr=False)

    def __init__(
        self, delays: Iterable[float | timedelta], *, maximum_elapsed: float | timedelta | None = None
    ) -> None:
        """Build a policy.

        Args:
            delays: Delays in order: seconds or `timedelta`, rounded to milliseconds. Empty: one delivery only.
            maximum_elapsed: Seconds or `timedelta` after the first failure, after which no redelivery begins;
                None: no limit.

        Raises:
            ConfigurationError: A delay or the limit is no duration.
        """
        if isinstance(delays, str | bytes) or not hasattr(delays, "__iter__"):
            raise ConfigurationError(
                f"delays must be a list of durations, not {option_values.shown(delays)}", option="delays"
            )
        checked = tuple(option_values.duration_ms(delay, f"delays[{i}]") for i, delay in enumerate(delays))
        self._put(checked, checked_ms(maximum_elapsed, "maximum_elapsed"))

    def _put(self, delays: tuple[int, ...], elapsed_ms: int | None) -> None:
        put = object.__setattr__
        put(self, "delays", delays)
        put(self, "_elapsed_ms", elapsed_ms)
        put(self, "maximum_elapsed", None if elapsed_ms is None else elapsed_ms / 1000)

    @classmethod
    def from_ms(cls, delays: Iterable[object], elapsed_ms: int | None = None) -> DelayListPolicy:
        """Return a policy with `delays` in milliseconds, as text or numbers; `elapsed_ms`: the limit of time.

        Raises ConfigurationError as the constructor does.
        """
        made = cls(())
        checked = tuple(option_values.option_ms(delay, f"delays[{i}]") for i, delay in enumerate(delays))
        made._put(checked, elapsed_ms)
        return made

    @property
    def maximum_redeliveries(self) -> int:
        """Redeliveries before a message is poison: the length of the list."""
        return len(self.delays)

    def redelivery_delay_ms(self, redelivery: int, random: RandomSource | None = None) -> int:  # noqa: ARG002  no jitter
        """Return the delay in milliseconds before the `redelivery`-th redelivery (the first is 1).

        Args:
            redelivery: Number of the redelivery, from 1. Above the length of the list, the last delay is returned;
                for an empty list 0.
            random: Not used: a list has no jitter.

        Raises:
            ValueError: `redelivery` is below 1.
        """
        if redelivery < 1:
            raise ValueError(f"redelivery must be 1 or more, not {redelivery}")
        return self.delays[min(redelivery, len(self.delays)) - 1] if self.delays else 0

    def delays_ms(self, n: int, random: RandomSource | None = None) -> list[int]:
        """Return the delays in milliseconds before redelivery 1 to `n`; a list has no jitter."""
        return [self.redelivery_delay_ms(k, random) for k in range(1, n + 1)]

    def worst_case_ms(self) -> int:
        """Return the sum of all delays in milliseconds, or the limit of time if that is shorter."""
        total = sum(self.delays)
        return total if self._elapsed_ms is None else min(total, self._elapsed_ms)

    def to_options(self) -> dict[str, str]:
        """Return the list, and the limit of time if there is one, in milliseconds. ActiveMQ has neither option."""
        options = {"maximumRedeliveries": str(len(self.delays)), "delays": ",".join(map(str, self.delays))}
        return options if self._elapsed_ms is None else options | {"maximumElapsed": str(self._elapsed_ms)}
