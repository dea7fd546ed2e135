"""Which rows of a batch that kills the query go together next, and whether a failure is a message's fault. Pure.

A row is a number here; what it stands for is the caller's affair.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["BARREN", "Isolation", "split", "suspicious"]

BARREN = 3
"""Batches of different rows that fail one after the other with no success between them: past it, no row is to blame."""


def suspicious(attempts: int, limit: int, *, evidence: bool) -> bool:
    """Whether a batch is given up as a whole, after so many attempts: by `limit`, or at once if the sink has told."""
    return attempts >= (1 if evidence else limit)


def split(rows: Sequence[int], fanout: int) -> list[list[int]]:
    """Return rows in at most `fanout` groups of about the same size, in order."""
    parts = min(fanout, len(rows))
    if not parts:
        return []
    size, more = divmod(len(rows), parts)
    ends = [(number + 1) * size + min(number + 1, more) for number in range(parts)]
    return [list(rows[begin:end]) for begin, end in zip([0, *ends], ends, strict=False)]


class Isolation:
    """The groups that wait, each for a batch of its own, and what failed since something last went through.

    `barren`: see `BARREN`. `last`: the rows of the batch that failed last.
    """

    def __init__(
        self, groups: Iterable[Iterable[int]] = (), barren: int = 0, last: Iterable[int] = ()
    ) -> None:
        self.groups: deque[list[int]] = deque(list(group) for group in groups)
        self.barren = barren
        self.last = set(last)
        self._served = False

    @property
    def rows(self) -> int:
        """How many rows wait in groups."""
        return sum(map(len, self.groups))

    @property
    def world(self) -> bool:
        """Whether so much has failed in a row that no row is to blame for it."""
        return self.barren > BARREN

    def next_group(self, *, others: bool) -> list[int] | None:
        """Return the group that is the next batch, if any; `others`: other rows want one, and take turns with it."""
        if not self.groups or (others and self._served):
            self._served = False
            return None
        self._served = True
        return self.groups[0]

    def succeeded(self, rows: Iterable[int]) -> None:
        """Take the rows of a batch that went through: they are no suspects, and the world is in order."""
        self._leave(rows)
        self.barren = 0
        self.last = set[int]()

    def failed(self, rows: Sequence[int], fanout: int) -> int | None:
        """Take the rows of a batch that failed. Return the one that was alone in it, or None: they wait in groups."""
        self._leave(rows)
        if not self.last.issuperset(rows):  # else: part of what failed just before
            self.barren += 1
        self.last = set(rows)
        if len(rows) == 1:
            return rows[0]
        self.groups.extendleft(reversed(split(rows, fanout)))
        return None

    def _leave(self, rows: Iterable[int]) -> None:
        gone = set(rows)
        left = ([row for row in group if row not in gone] for group in self.groups)
        self.groups = deque(group for group in left if group)
