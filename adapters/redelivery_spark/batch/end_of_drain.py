"""When a drain has all that was on a queue at its beginning, although a producer sees to it that it never is empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from redelivery.clock import Clock

__all__ = ["EndOfDrain"]

# Seconds that the clocks of producers, broker and this machine may differ.
MARGIN = 60.0
# Seconds for which a message has had to be waited for, if nothing was there.
GAP = 0.5
# Seconds in which each message had to be waited for: nothing is behind them.
LONGEST_TRICKLE = 60.0


class EndOfDrain:
    """Looks at messages as they come."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.time()
        # When something came last without having to be waited for.
        self._steady = clock.monotonic()

    def shown_by(self, sent: Sequence[datetime | None], waited: float) -> bool:
        """Whether these messages, waited for so many seconds, are all of later, or come one by one long since."""
        now = self._clock.monotonic()
        if waited < GAP:
            self._steady = now
        return now - self._steady > LONGEST_TRICKLE or all(map(self._late, sent))

    def _late(self, sent: datetime | None) -> bool:
        # A clock that is ahead proves nothing.
        return sent is not None and self._began + MARGIN < sent.timestamp() <= self._clock.time()
