"""Credit by flow: how many messages more the broker may send."""

from __future__ import annotations

from redelivery.core.commands import Credit

__all__ = ["CreditWindow"]


class CreditWindow:
    """Keeps `credit` messages coming besides those that are parked, up to `max_parked` of them."""

    __slots__ = ("_consumer", "_credit", "_granted", "_max_parked", "_step", "active", "arrived", "settled")

    def __init__(self, consumer: int, credit: int, max_parked: int) -> None:
        self._consumer = consumer
        self._credit = credit
        self._max_parked = max_parked
        # A flow frame per quarter of the credit.
        self._step = max(1, credit // 4)
        self.restart(active=False)

    def restart(self, *, active: bool) -> None:
        """Begin a connection, where credit is granted by flow or is not."""
        self.active = active
        self.arrived = self.settled = self._granted = 0

    def due(self, parked: int) -> Credit | None:
        """Return the credit to grant now, if it is worth a frame."""
        wanted = self.settled + self._credit + min(parked, self._max_parked) - self._granted
        if wanted <= 0 or (wanted < self._step and self._granted > self.arrived):
            return None
        self._granted += wanted
        return Credit(self._consumer, wanted)

    def withdrawn(self) -> Credit:
        """Return the command that takes back what credit is left: what came now would only be given back."""
        left = self._granted - self.arrived
        self._granted -= left
        return Credit(self._consumer, -left)
