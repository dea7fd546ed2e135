"""Which segments of which lanes the next batch has. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from redelivery_spark.wal.lane import REDELIVERIES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redelivery_spark.wal.lane import Segment, Vector

__all__ = ["Composed", "composed"]


class Composed(NamedTuple):
    """A batch: how far each lane goes in it, and its size. `complete`: nothing more fits, or may be added.

    `alone`: it is one that must share its batch with nothing.
    """

    end: Vector
    rows: int
    size: int
    complete: bool = False
    alone: bool = False


def composed(
    start: Vector,
    waiting: Mapping[int, Sequence[Segment]],
    most: int,
    most_bytes: int,
    *,
    alone_first: bool,
) -> Composed:
    """Return the next batch: whole segments, up to the limits, but for the first one.

    Lanes take turns by what they have had of the batch, so that none waits for another. A segment that must be alone is
    the batch by itself: at once if `alone_first`, else when no other lane has anything.

    Args:
        start: how far each lane has come.
        waiting: the segments of each lane behind that, in order.
        most: rows.
        most_bytes: bytes of segments.
        alone_first: whether it is the turn of one that must be alone.
    """
    left = {lane: list(segments) for lane, segments in waiting.items() if segments}
    suspect = next((segment for segment in left.get(REDELIVERIES, ()) if segment.rows), None)
    if suspect is not None and suspect.alone and (alone_first or len(left) == 1):
        end = {**start, REDELIVERIES: suspect.number}
        return Composed(end, suspect.rows, suspect.size, complete=True, alone=True)
    end, had = dict(start), dict.fromkeys(left, 0)
    rows = size = 0
    complete = False
    while left:
        lane = min(left, key=lambda each: (had[each], each))
        segment = left[lane][0]
        fits = not rows or (rows + segment.rows <= most and size + segment.size <= most_bytes)
        if segment.alone or not fits:
            complete = complete or not fits
            del left[lane]
            continue
        end[lane] = segment.number
        had[lane] += segment.rows
        rows, size = rows + segment.rows, size + segment.size
        del left[lane][0]
        if not left[lane]:
            del left[lane]
    return Composed(end, rows, size, complete or rows >= most or size >= most_bytes)
