"""Composition of a batch: whole segments, in turns, within limits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redelivery_spark.stream.lanes import composed
from redelivery_spark.wal.lane import Segment


def lane(*rows: int, alone: bool = False, after: int = 0) -> list[Segment]:
    """Return the segments of a lane, of so many rows each."""
    return [Segment(after + number, count, count * 10, alone=alone) for number, count in enumerate(rows, 1)]


def test_segments_are_never_split() -> None:
    """A batch has as many whole segments as fit."""
    batch = composed({}, {1: lane(40, 40, 40)}, 100, 10_000, alone_first=True)

    assert (batch.end, batch.rows) == ({1: 2}, 80)


def test_a_first_segment_above_the_limit_goes_by_itself() -> None:
    """A segment that is larger than the limit is a batch of its own."""
    batch = composed({}, {1: lane(400, 1)}, 100, 10_000, alone_first=True)

    assert batch.end == {1: 1}


def test_bytes_are_limited_as_rows_are() -> None:
    """A batch ends before its bytes exceed the limit."""
    batch = composed({}, {1: lane(10, 10, 10)}, 100, 250, alone_first=True)

    assert batch.end == {1: 2}


def test_lanes_take_turns() -> None:
    """A lane with many rows does not keep another one out."""
    batch = composed({}, {1: lane(*[10] * 20), 2: lane(*[10] * 3)}, 60, 10_000, alone_first=True)

    assert batch.end == {1: 3, 2: 3}


def test_what_must_be_alone_is_alone() -> None:
    """A segment that may kill its batch is the only one of it."""
    waiting = {0: lane(1, 1, alone=True), 1: lane(10)}

    first = composed({}, waiting, 100, 10_000, alone_first=True)
    second = composed({}, waiting, 100, 10_000, alone_first=False)

    assert (first.end, first.alone) == ({0: 1}, True)
    assert (second.end, second.alone) == ({1: 1}, False)


def test_what_must_be_alone_does_not_wait_for_another_turn_when_there_is_nothing_else() -> None:
    """A segment that must be alone is taken twice in a row if there are no others."""
    batch = composed({}, {0: lane(1, alone=True), 1: []}, 100, 10_000, alone_first=False)

    assert batch.end == {0: 1}


def test_a_segment_without_rows_holds_nothing_up() -> None:
    """An empty segment does not delay one that must be alone, and is no batch by itself."""
    waiting = {0: [*lane(0), *lane(1, alone=True, after=1)], 1: lane(10)}

    first = composed({}, waiting, 100, 10_000, alone_first=True)
    second = composed({}, waiting, 100, 10_000, alone_first=False)

    assert (first.end, first.alone) == ({0: 2}, True)
    assert second.end == {0: 1, 1: 1}
    assert composed({}, {0: lane(0)}, 100, 10_000, alone_first=True).rows == 0
    assert composed({}, {0: waiting[0]}, 100, 10_000, alone_first=False).end == {0: 2}


@given(
    st.dictionaries(st.integers(0, 4), st.lists(st.integers(1, 50), max_size=8), max_size=4),
    st.integers(1, 120),
)
def test_everything_goes_in_the_end_and_in_order(rows: dict[int, list[int]], most: int) -> None:
    """Successive batches have each segment once, in the order of its lane, within the limit."""
    lanes = {number: lane(*counts) for number, counts in rows.items()}
    at: dict[int, int] = {}
    total = sum(map(len, rows.values()))
    for _ in range(total + 1):
        waiting = {
            number: [each for each in found if each.number > at.get(number, 0)]
            for number, found in lanes.items()
        }
        batch = composed(at, waiting, most, 10**9, alone_first=True)
        if not batch.rows:
            break
        assert batch.rows <= most or sum(batch.end.get(n, 0) - at.get(n, 0) for n in lanes) == 1
        at = batch.end
    assert at == {number: len(counts) for number, counts in rows.items() if counts}
