"""Choice of the segments of each lane for the next batch. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from redelivery_spark.wal.lane import REDELIVERIES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redelivery_spark.wal.lane import Segment, Vector

__all__ = ["Composed", "composed"]


class Composed(NamedTuple):
    """Batch: the position of each lane at its end, and its size. `complete`: nothing more fits, or may be added.

    `alone`: its segment must be the only one of its batch.
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
    """Return the next batch: whole segments, up to the limits; the first segment is taken at any size.

    Lanes take turns by their rows in the batch: none waits for another. A segment that must be alone is the only one of
    its batch: at once if `alone_first`, else when no other lane has a segment.

    Args:
        start: Position of each lane at the start of the batch.
        waiting: Segments of each lane after that position, in order.
        most: Rows at most.
        most_bytes: Bytes of segments at most.
        alone_first: True if a segment that must be alone is next.
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
