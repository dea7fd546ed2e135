"""Redelivery rules of an Artemis address setting, computed on the client.

Delays equal those of Artemis 2.40 (`QueueImpl`), to the millisecond. The formula differs from Classic's: a power of
the multiplier, jitter also on the first delay, and a cap that is applied after the jitter, to every delay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from redelivery.core import option_values

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from redelivery.core.policy.random_source import RandomSource

__all__ = ["ArtemisRedeliveryPolicy"]

_OPTIONS = (
    "redelivery-delay",
    "redelivery-delay-multiplier",
    "max-redelivery-delay",
    "redelivery-collision-avoidance-factor",
    "max-delivery-attempts",
)
_EXACT_STEPS = 10_000


@dataclass(frozen=True, slots=True, init=False)
class ArtemisRedeliveryPolicy:
    """Redelivery rules of an Artemis address setting. Durations are seconds, read back as float.

    The defaults are those of Artemis 2.40.
    """

    redelivery_delay: float
    redelivery_delay_multiplier: float
    max_redelivery_delay: float | None
    redelivery_collision_avoidance_factor: float
    max_delivery_attempts: int
    _delay_ms: int = field(init=False, repr=False)
    _max_ms: int | None = field(init=False, repr=False)

    def __init__(
        self,
        *,
        redelivery_delay: float | timedelta = 0,
        redelivery_delay_multiplier: float = 1.0,
        max_redelivery_delay: float | timedelta | None = None,
        redelivery_collision_avoidance_factor: float = 0.0,
        max_delivery_attempts: int = 10,
    ) -> None:
        """Build a policy.

        Args:
            redelivery_delay: Delay before the first redelivery: seconds or `timedelta`, rounded to milliseconds.
            redelivery_delay_multiplier: Factor from one delay to the next; below 1 the delays shrink.
            max_redelivery_delay: Longest delay: seconds or `timedelta`, rounded to milliseconds. None: ten times
                `redelivery_delay`, as in Artemis.
            redelivery_collision_avoidance_factor: Share by which a delay varies, 0 to 1.
            max_delivery_attempts: Deliveries including the first. 0 or less: no limit.

        Raises:
            ConfigurationError: A value is out of its range, or of another type.
        """
        max_ms = None
        if max_redelivery_delay is not None:
            max_ms = option_values.duration_ms(max_redelivery_delay, "max_redelivery_delay")
        put = object.__setattr__
        put(
            self,
            "redelivery_delay_multiplier",
            option_values.real(redelivery_delay_multiplier, "redelivery_delay_multiplier"),
        )
        factor_name = "redelivery_collision_avoidance_factor"
        put(self, factor_name, option_values.real(redelivery_collision_avoidance_factor, factor_name, 0, 1))
        attempts = option_values.whole(max_delivery_attempts, "max_delivery_attempts", -option_values.MAX_INT)
        put(self, "max_delivery_attempts", attempts)
        self._put_delays(option_values.duration_ms(redelivery_delay, "redelivery_delay"), max_ms)

    def _put_delays(self, delay_ms: int, max_ms: int | None) -> None:
        put = object.__setattr__
        put(self, "_delay_ms", delay_ms)
        put(self, "_max_ms", max_ms)
        put(self, "redelivery_delay", delay_ms / 1000)
        put(self, "max_redelivery_delay", None if max_ms is None else max_ms / 1000)

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> ArtemisRedeliveryPolicy:
        """Build a policy from `broker.xml`'s element names.

        Args:
            options: Values as text or numbers; durations in milliseconds.

        Raises:
            ConfigurationError: A name is unknown, or a value is out of its range.
        """
        given = option_values.known_options(options, _OPTIONS)
        attempts = 10
        if "max-delivery-attempts" in given:
            attempts = option_values.option_whole(
                given["max-delivery-attempts"],
                "max-delivery-attempts",
                -option_values.MAX_INT,
                option_values.MAX_INT,
            )

        def real(name: str, default: float, high: float) -> float:
            return option_values.option_real(given[name], name, 0, high) if name in given else default

        policy = cls(
            redelivery_delay_multiplier=real("redelivery-delay-multiplier", 1.0, float("inf")),
            redelivery_collision_avoidance_factor=real("redelivery-collision-avoidance-factor", 0.0, 1),
            max_delivery_attempts=attempts,
        )
        delays = {
            name: option_values.option_ms(given[name], name)
            for name in ("redelivery-delay", "max-redelivery-delay")
            if name in given
        }
        # Set in whole milliseconds: seconds as a float are not exact beyond 2^53 milliseconds.
        policy._put_delays(delays.get("redelivery-delay", 0), delays.get("max-redelivery-delay"))
        return policy

    @property
    def maximum_redeliveries(self) -> int:
        """Redeliveries before a message is poison: `max_delivery_attempts` - 1; -1: no limit."""
        return self.max_delivery_attempts - 1 if self.max_delivery_attempts > 0 else -1

    @property
    def cap_ms(self) -> int:
        if self._max_ms is not None:
            return self._max_ms
        # Java's product of two longs wraps around, which serves no purpose: here it saturates.
        return min(self._delay_ms * 10, option_values.MAX_LONG)

    def _nominal(self, redelivery: int) -> int:
        try:
            grown = self._delay_ms * self.redelivery_delay_multiplier ** (redelivery - 1)
        except OverflowError:
            return option_values.MAX_LONG if self._delay_ms else 0
        return option_values.clip(grown)

    def redelivery_delay_ms(self, redelivery: int, random: RandomSource | None = None) -> int:
        """Return the delay in milliseconds before the `redelivery`-th redelivery (the first is 1).

        Args:
            redelivery: Number of the redelivery, from 1.
            random: Source of jitter, used if the factor is above 0; None: no jitter.

        Raises:
            ValueError: `redelivery` is below 1.
        """
        if redelivery < 1:
            raise ValueError(f"redelivery must be 1 or more, not {redelivery}")
        delay = self._nominal(redelivery)
        factor = self.redelivery_collision_avoidance_factor
        if random is not None and factor:
            side = factor if random.random() < 0.5 else -factor
            delay = option_values.clip(delay + delay * (side * random.random()))
        return min(delay, self.cap_ms)

    def delays_ms(self, n: int, random: RandomSource | None = None) -> list[int]:
        """Return the delays in milliseconds before redelivery 1 to `n`.

        Args:
            n: Number of delays; it may exceed `maximum_redeliveries`.
            random: Source of jitter, used if the factor is above 0; None: no jitter.
        """
        return [self.redelivery_delay_ms(k, random) for k in range(1, n + 1)]

    def worst_case_ms(self) -> int | None:
        """Return an upper bound in milliseconds of all delays together, with jitter; None without a limit."""
        count = self.maximum_redeliveries
        if count < 0:
            return None
        total, factor, cap = 0, self.redelivery_collision_avoidance_factor, self.cap_ms
        previous = -1
        for k in range(1, count + 1):
            nominal = self._nominal(k)
            worst = min(option_values.clip(nominal + nominal * factor), cap)
            grows = self.redelivery_delay_multiplier >= 1
            if k > _EXACT_STEPS or (grows and (worst == cap or self.redelivery_delay_multiplier == 1)):
                return total + (count - k + 1) * (cap if grows and k > _EXACT_STEPS else worst)
            if not grows and worst == previous == 0:
                return total
            total += worst
            previous = worst
        return total

    def to_options(self) -> dict[str, str]:
        """Return the policy in `broker.xml`'s names, in milliseconds; `from_options` reads it back."""
        options = {
            "redelivery-delay": str(self._delay_ms),
            "redelivery-delay-multiplier": repr(self.redelivery_delay_multiplier),
            "redelivery-collision-avoidance-factor": repr(self.redelivery_collision_avoidance_factor),
            "max-delivery-attempts": str(self.max_delivery_attempts),
        }
        if self._max_ms is not None:
            options["max-redelivery-delay"] = str(self._max_ms)
        return options
