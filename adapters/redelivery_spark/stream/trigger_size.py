"""Size of batches: how long one waits to become larger. Each batch costs Spark the same, whatever its size."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redelivery.clock import Clock

__all__ = ["TriggerSize"]

WORTH = 1_500
"""Rows that must arrive while a batch waits, or it does not wait. At 5,000 a second they arrive within the default of
0.3 s. At 1,000 a second they do not, and a wait would only delay single messages.
"""


class TriggerSize:
    """Decides when a batch is large enough. One thread."""

    def __init__(self, clock: Clock, least: int | None, longest: float) -> None:
        """`least`: rows; None: as many as the rate of the last batch predicts. `longest`: seconds to wait."""
        self._clock = clock
        self._least = least
        self._longest = longest
        self._given = clock.monotonic()
        self._rate = 0.0
        self._asked = 0.0

    def begin(self) -> None:
        """Begin the wait for a batch: Spark asks for one."""
        self._asked = self._clock.monotonic()

    def enough(self, rows: int) -> bool:
        """True if a batch of so many rows is to be given out now."""
        waited = self._clock.monotonic() - self._asked
        return waited >= self._longest or rows >= self._wanted()

    def left(self) -> float:
        """Return the seconds until any batch is large enough."""
        return max(0.0, self._longest - (self._clock.monotonic() - self._asked))

    def gave(self, rows: int) -> None:
        """Note the size of the batch that was given out."""
        now = self._clock.monotonic()
        self._rate = rows / max(now - self._given, 0.001)
        self._given = now

    def _wanted(self) -> float:
        if self._least is not None:
            return self._least
        hoped = self._rate * self._longest
        return hoped if hoped >= WORTH else 0
