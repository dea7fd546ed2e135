"""Redelivery policy of the ActiveMQ Classic client: how often, and after which delays, to redeliver.

Delays are computed to the millisecond as `org.apache.activemq.RedeliveryPolicy` 6.1.7 computes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from redelivery.core import option_values
from redelivery.core.policy import delay_chain, time_limit
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import timedelta

    from redelivery.core.policy.delay_list import DelayListPolicy
    from redelivery.core.policy.random_source import RandomSource
    from redelivery.tenacity_policy import TenacityPolicy

__all__ = ["Policy", "RedeliveryPolicy"]

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
    _steps: delay_chain.DelaySteps = field(init=False, repr=False)
    _chain: delay_chain.DelayChain = field(init=False, repr=False, compare=False)
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
        steps = delay_chain.DelaySteps(
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
        self._put_elapsed(time_limit.checked_ms(maximum_elapsed, "maximum_elapsed"))
        initial_ms = option_values.duration_ms(initial_redelivery_delay, "initial_redelivery_delay")
        self._put_delays(initial_ms, steps)

    def _put_delays(self, initial_ms: int, steps: delay_chain.DelaySteps) -> None:
        put = object.__setattr__
        put(self, "_initial_ms", initial_ms)
        put(self, "_steps", steps)
        put(self, "_chain", delay_chain.DelayChain(initial_ms, steps))
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
        elapsed = time_limit.option_ms(given.pop(_ELAPSED), _ELAPSED) if _ELAPSED in given else None
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
        from redelivery.core.policy.delay_list import DelayListPolicy  # noqa: PLC0415  most programs need none

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
        return delay_chain.drawn(self._initial_ms, self._steps, redelivery, random)

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
        worst = delay_chain.worst_sum(self._initial_ms, self._steps, self.maximum_redeliveries)
        return time_limit.bounded(worst, self._elapsed_ms)

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
