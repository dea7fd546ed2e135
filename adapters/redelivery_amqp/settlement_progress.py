"""How far a broker has come with what was settled on one link."""

from __future__ import annotations

__all__ = ["SettlementProgress"]


class SettlementProgress:
    """What is known of it. `asked`: whether anybody needs to know."""

    __slots__ = ("_asked", "known", "written")

    def __init__(self, *, asked: bool) -> None:
        self._asked = asked
        # How often something was settled.
        self.written = 0
        # How much of that is known to be carried out.
        self.known = 0

    @property
    def doubtful(self) -> bool:
        """Whether somebody needs to know of something that is not known to be carried out."""
        return self._asked and self.known < self.written

    def carried_out(self, written: int) -> None:
        """The broker has answered what was asked after so many."""
        self.known = max(self.known, written)
