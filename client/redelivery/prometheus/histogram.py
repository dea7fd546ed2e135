"""Histograms that are cheap to write, and are added up when they are read."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DELAYS", "DURATIONS", "Buckets", "cumulative"]

# Seconds: those of OpenTelemetry for `messaging.process.duration`, semantic conventions 1.45.0.
DURATIONS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
# Seconds. The default delay is a second; a dependency may be down for a day.
DELAYS = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)


class Buckets:
    """Counts of one series. One thread writes, without a lock; any thread may read."""

    __slots__ = ("bounds", "counts", "total", "unmeasured")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        """Sum of the observed values."""
        self.unmeasured = 0
        """Number counted without a value, minus the number of values that are not to be counted yet."""

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def counted(self) -> int:
        """Number counted, with a value and without."""
        return sum(self.counts) + self.unmeasured

    def add(self, other: Buckets) -> None:
        """Add the counts of another one. If it is written meanwhile, the sum may lag behind by a value."""
        # One step of the interpreter: all counts are from the same moment.
        counts = other.counts[:]
        self.total += other.total
        self.unmeasured += other.unmeasured
        self.counts = [mine + its for mine, its in zip(self.counts, counts, strict=True)]


def cumulative(buckets: Buckets) -> tuple[list[tuple[str, float]], float]:
    """Return the buckets in the form of the exposition, and the sum of the values."""
    found: list[tuple[str, float]] = []
    below = 0
    names = [*(repr(bound) for bound in buckets.bounds), "+Inf"]
    for name, count in zip(names, buckets.counts, strict=True):
        below += count
        found.append((name, below))
    return found, buckets.total
