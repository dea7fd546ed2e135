"""Slices of a batch for its tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redelivery_spark.stream.slicing import sliced
from redelivery_spark.wal.lane import Segment


@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), st.integers(1, 9))
def test_every_row_is_read_once_and_in_order(rows: list[int], tasks: int) -> None:
    """Slices are neighbours, about equal, and no more than the tasks."""
    segments = [(1, Segment(number, count, 0)) for number, count in enumerate(rows, 1)]

    slices = sliced(segments, tasks)

    read = [(part.number, row) for parts in slices for part in parts for row in range(part.begin, part.end)]
    assert read == [(segment.number, row) for _, segment in segments for row in range(segment.rows)]
    sizes = [sum(part.end - part.begin for part in parts) for parts in slices]
    assert len(sizes) <= tasks
    assert max(sizes) <= -(-sum(rows) // tasks)


def test_a_batch_without_rows_has_no_slices() -> None:
    """A batch without rows has no slices."""
    assert sliced([], 4) == []
