"""Which rows of a batch that kills the query go together next, and whether a failure is a message's fault. Pure.

A row is any value here; what it stands for is the caller's affair.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

__all__ = ["Bisection", "split", "suspicious"]

RowT = TypeVar("RowT", bound="Hashable")


def suspicious(attempts: int, limit: int, *, evidence: bool) -> bool:
    """Whether a batch is given up as a whole, after so many attempts: by `limit`, or at once if the sink has told."""
    return attempts >= (1 if evidence else limit)


def split(rows: Sequence[RowT], fanout: int) -> list[list[RowT]]:
    """Return rows in at most `fanout` groups of about the same size, in order."""
    parts = min(fanout, len(rows))
    if not parts:
        return []
    size, more = divmod(len(rows), parts)
    ends = [(number + 1) * size + min(number + 1, more) for number in range(parts)]
    return [list(rows[begin:end]) for begin, end in zip([0, *ends], ends, strict=False)]


class Bisection(Generic[RowT]):
    """The groups that wait, each for a batch of its own.

    `passed`: how many batches with rows have gone through: what failed before and after one of them need not be the
    sink's fault, or the cluster's.
    """

    def __init__(self, groups: Iterable[Iterable[RowT]] = (), passed: int = 0) -> None:
        self.groups: deque[list[RowT]] = deque(list(group) for group in groups)
        self.passed = passed

    @property
    def rows(self) -> int:
        """How many rows wait in groups."""
        return sum(map(len, self.groups))

    def succeeded(self, rows: Iterable[RowT]) -> None:
        """Take the rows of a batch that went through: they are no suspects."""
        self._leave(rows)

    def failed(self, rows: Sequence[RowT], fanout: int) -> RowT | None:
        """Take the rows of a batch that failed. Return the one that was alone in it, or None: they wait in groups.

        Another group goes before theirs: should it go through, then the sink works, and theirs fail by themselves.
        """
        self._leave(rows)
        if len(rows) == 1:
            return rows[0]
        first = [self.groups.popleft()] if self.groups else []
        self.groups.extendleft(reversed([*first, *split(rows, fanout)]))
        return None

    def _leave(self, rows: Iterable[RowT]) -> None:
        gone = set(rows)
        if gone and self.groups:
            left = ([row for row in group if row not in gone] for group in self.groups)
            self.groups = deque(group for group in left if group)
