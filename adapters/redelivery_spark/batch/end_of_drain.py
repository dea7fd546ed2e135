"""End of a drain whose producers never let the queue become empty: it has all messages of the drain's beginning."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from redelivery.clock import Clock

__all__ = ["EndOfDrain"]

# Seconds by which the clocks of producers, broker and this machine may differ.
MARGIN = 60.0
# Seconds of waiting for a message from which on the queue counts as empty before it.
GAP = 0.5
# Seconds in which the drain had to wait for each message: no older message is behind them.
LONGEST_TRICKLE = 60.0


class EndOfDrain:
    """Decides from send times and waits whether a drain has all messages that were there when it began."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.time()
        # Time of the last message that arrived without a wait.
        self._steady = clock.monotonic()

    def shown_by(self, sent: Sequence[datetime | None], waited: float) -> bool:
        """True if all these messages were sent after the drain began, or messages have trickled in for a minute.

        `waited`: seconds of waiting for the first of them.
        """
        now = self._clock.monotonic()
        if waited < GAP:
            self._steady = now
        return now - self._steady > LONGEST_TRICKLE or all(map(self._late, sent))

    def _late(self, sent: datetime | None) -> bool:
        # A send time in the future proves nothing: that clock is ahead.
        return sent is not None and self._began + MARGIN < sent.timestamp() <= self._clock.time()
