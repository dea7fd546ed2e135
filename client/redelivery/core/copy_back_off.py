"""Back-off of dead letters and delayed copies that the broker refuses, also over lost connections.

Artemis closes a STOMP connection when it refuses a copy, and RabbitMQ when its queue is full. The broker redelivers the
poison message over the next connection; sent again at once, its copy would end each connection, and no other message
would be handled. For that reason a connection that was lost after a copy, with none confirmed, delays the next copies.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redelivery.errors import RedeliveryError

__all__ = ["CopyBackOff", "back_off"]

# Seconds between tries: doubled from the first to the last.
FIRST, LAST = 1.0, 30.0
# Lost connections in a row after which copies wait. The first may have been lost for any reason.
LOSSES = 2
# Seconds between reports of refusals: a full queue refuses each copy of each poison message.
REPORT = 60.0


def back_off(refusals: int) -> float:
    """Return the seconds until the next try after this number of refusals in a row."""
    return min(FIRST * 2.0 ** min(refusals - 1, 10), LAST)


class CopyBackOff:
    """Refusals and losses of one consumer's copies. Times are of any steady clock, in seconds."""

    __slots__ = ("_losses", "_refused", "_reported", "_sent", "_until", "error")

    def __init__(self) -> None:
        # True if a copy was sent over this connection, and none was confirmed after it.
        self._sent = self._refused = False
        self._losses = 0
        self._until = self._reported = -inf
        # Why the last copy is not confirmed; None: the last answer was a confirmation.
        self.error: RedeliveryError | None = None

    def waits_until(self, now: float) -> float | None:
        """Return when copies may be sent again; None: now."""
        return self._until if now < self._until else None

    def sent(self) -> None:
        """Note that a copy is sent."""
        self._sent = True

    def refused(self, error: RedeliveryError) -> None:
        """Note that the broker has refused one: if it closes the connection now, that is the reason."""
        self._refused, self.error = True, error

    def confirmed(self) -> None:
        """Note that the broker has confirmed one: it takes copies."""
        self._sent, self._refused, self._losses = False, False, 0
        self._until = self._reported = -inf
        self.error = None

    def lost(self, now: float) -> int:
        """Note a lost connection; return how many in a row were lost after a copy, 0 if copies need not wait."""
        if not self._sent:
            return 0
        self._losses = max(self._losses + 1, LOSSES if self._refused else 1)
        self._sent = self._refused = False
        if self._losses < LOSSES:
            return 0
        self._until = now + back_off(self._losses - LOSSES + 1)
        return self._losses

    def closed(self) -> None:
        """Note that the connection ends without being lost."""
        self._sent = self._refused = False

    def is_reported(self, now: float) -> bool:
        """Return True if a refusal was reported a short time ago; otherwise note that one is reported now."""
        if now < self._reported + REPORT:
            return True
        self._reported = now
        return False
