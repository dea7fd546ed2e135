"""Split of a batch's rows among tasks: whole segments if there are enough, else parts of them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery_spark.executors.segment_reader import SegmentPart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery_spark.wal.lane import Segment

__all__ = ["sliced"]


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
