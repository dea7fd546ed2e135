"""Progress of the broker with the settlements of one link."""

from __future__ import annotations

__all__ = ["SettlementProgress"]


class SettlementProgress:
    """Counts of settlements that were written, and that are known to be carried out.

    `asked`: True if later commands must wait until the settlements are carried out.
    """

    __slots__ = ("_asked", "known", "written")

    def __init__(self, *, asked: bool) -> None:
        self._asked = asked
        # Number of settlements that were written.
        self.written = 0
        # Number of these that the broker has carried out for certain.
        self.known = 0

    @property
    def doubtful(self) -> bool:
        """True if a settlement must be confirmed that is not known to be carried out."""
        return self._asked and self.known < self.written

    def carried_out(self, written: int) -> None:
        """Handle the answer to a round trip that began after this number of settlements."""
        self.known = max(self.known, written)
