"""Split of a batch's rows among tasks: whole segments if there are enough, else parts of them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from redelivery_spark.executors.segment_reader import SegmentPart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery_spark.wal.lane import Segment

__all__ = ["marked", "passed_of", "sliced", "split"]


# ---- Slicing ---------------------------------------------------------------------------------------------


def sliced(segments: Sequence[tuple[int, Segment]], tasks: int) -> list[tuple[SegmentPart, ...]]:
    """Return the rows of a batch in at most `tasks` slices of about the same size, in order.

    The rows of a slice are neighbours in their segments: each segment of an object store is read once, except at the
    edges.
    """
    rows = sum(segment.rows for _, segment in segments)
    most = -(-rows // tasks)
    slices: list[list[SegmentPart]] = [[]]
    room = most
    for lane, segment in segments:
        begin = 0
        while begin < segment.rows:
            if not room:
                slices.append([])
                room = most
            end = min(segment.rows, begin + room)
            slices[-1].append(SegmentPart(lane, segment.number, begin, end))
            room -= end - begin
            begin = end
    return [tuple(each) for each in slices if each]


# ---- Splitting -------------------------------------------------------------------------------------------
# Split of a failed batch's rows into groups: each group that succeeds rules out its rows as the cause. Pure.

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
