"""Chain of delays of Classic's policy: each delay is computed from the one before it, in whole milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redelivery.core.option_values import MAX_LONG, clip

if TYPE_CHECKING:
    from redelivery.core.policy.random_source import RandomSource

__all__ = ["DelayChain", "DelaySteps"]

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
