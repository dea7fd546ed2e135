"""Split of a failed batch's rows into groups: each group that succeeds rules out its rows as the cause. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["marked", "passed_of", "split"]

RowT = TypeVar("RowT")


def split(rows: Sequence[RowT], most: int) -> list[list[RowT]]:
    """Return rows in at most `most` groups of about the same size, in order."""
    groups = min(most, len(rows))
    if not groups:
        return []
    size, more = divmod(len(rows), groups)
    ends = [(number + 1) * size + min(number + 1, more) for number in range(groups)]
    return [list(rows[begin:end]) for begin, end in zip([0, *ends], ends, strict=False)]


def marked(passed: int, group: int = 0, end: str = "") -> str:
    """Return the mark of a batch: the number of batches that had succeeded when its rows failed, and its own group."""
    return f"{passed} {group} {end}"


def passed_of(mark: str) -> int:
    """Return the number of batches that had succeeded when the rows with this mark failed."""
    return int(mark.partition(" ")[0])
