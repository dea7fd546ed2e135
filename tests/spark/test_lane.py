"""One lane of the log: numbered segments, their discovery, and their removal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from redelivery.errors import RedeliveryError
from redelivery_spark.wal.folder import Folder
from redelivery_spark.wal.lane import REDELIVERIES, Lane, NumberTaken
from redelivery_spark.wal.segment_files import (
    SegmentFacts,
    folder_of,
    redelivered_table,
    stored_table,
    written,
)
from redelivery_spark.wal.store import LogTaken

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

WIRE = {"scheme": "memory"}


@pytest.fixture
def store(tmp_path: Path) -> Folder:
    """A folder with the lanes 0 and 1."""
    folder = Folder(str(tmp_path))
    folder.prepare(folder_of(REDELIVERIES), folder_of(1))
    return folder


def rows(count: int, connection: str = "c") -> pa.Table:
    """Return a segment of so many rows."""
    return stored_table(
        [b"head"] * count, [b"body"] * count, SegmentFacts(1.0, "log", (WIRE,), connection=connection)
    )


def again(*, alone: bool = False) -> pa.Table:
    """Return a segment of lane 0 with one row."""
    return redelivered_table(
        [b"h"], [b"b"], [7], [2], [0], [1.0], SegmentFacts(1.0, "log", (WIRE,), alone=alone)
    )


def test_segments_are_numbered_from_one(store: Folder) -> None:
    """A later start finds the segments, with their facts."""
    lane = Lane(store, 1)
    first, second = lane.publish(rows(2)), lane.publish(rows(3, "d"))

    found = Lane(store, 1)
    found.load()

    assert (first.number, second.number, found.last) == (1, 2, 2)
    assert [(each.number, each.rows, each.connection) for each in found.after(0)] == [
        (1, 2, "c"),
        (2, 3, "d"),
    ]
    assert [each.number for each in found.newest_first()] == [2, 1]
    assert found.ahead > 0


def test_what_must_be_alone_is_known_without_its_rows(store: Folder) -> None:
    """The mark of a segment that must be alone is in the facts that a start reads."""
    Lane(store, REDELIVERIES).publish(again(alone=True))
    found = Lane(store, REDELIVERIES)
    found.load()

    assert [each.alone for each in found.after(0)] == [True]


def test_a_number_that_is_taken_is_part_of_the_lane(store: Folder) -> None:
    """A segment of another process under the next number may be accepted, and is read in order."""
    mine, other = Lane(store, 1), Lane(store, 1)
    other.publish(rows(2, "other"))
    other.publish(rows(3, "other"))

    for _ in range(2):
        with pytest.raises(NumberTaken):
            mine.publish(rows(1, "mine"))
        mine.take_in()
    mine.publish(rows(1, "mine"))

    assert [(each.number, each.connection) for each in mine.after(0)] == [
        (1, "other"),
        (2, "other"),
        (3, "mine"),
    ]


def test_in_lane_0_a_number_that_is_taken_means_another_start(store: Folder) -> None:
    """In lane 0 a number in use is an error, because rows would be delivered twice; only the first segment may find
    others.
    """
    old, new = Lane(store, REDELIVERIES), Lane(store, REDELIVERIES)
    old.publish(again())
    assert new.publish(again(), first=True).number == 2
    with pytest.raises(LogTaken):
        old.publish(again())
    assert [each.number for each in new.after(0)] == [1, 2]


def test_what_another_process_publishes_is_found_by_looking(store: Folder) -> None:
    """A segment of another process is found without a publication here."""
    mine, other = Lane(store, 1), Lane(store, 1)
    assert not mine.look()
    other.publish(rows(2))

    assert mine.look()
    assert not mine.look()
    assert [each.number for each in mine.after(0)] == [1]


def test_numbers_that_were_used_are_not_used_again(store: Folder) -> None:
    """Used numbers are not used again, also if their segments are gone."""
    lane = Lane(store, 1)
    lane.go_on_from(9)
    lane.go_on_from(4)

    assert lane.publish(rows(1)).number == 10


def test_settled_segments_go_but_for_the_newest(store: Folder) -> None:
    """Settled segments are removed except the newest, which shows a later start the used numbers."""
    lane = Lane(store, REDELIVERIES)
    for _ in range(3):
        lane.publish(again())
    lane.settle(2)
    assert store.names("s0") == ["s0/000000000003.arrow"]
    assert lane.ahead > 0
    lane.settle(3)
    lane.settle(1)

    assert store.names("s0") == ["s0/000000000003.arrow"]
    assert (lane.ahead, lane.after(0)[0].number) == (0, 3)
    with pytest.raises(RedeliveryError, match=r"s0/000000000001\.arrow is missing"):
        lane.read(1)


def test_settled_segments_of_a_reader_stay_until_it_says_which(store: Folder) -> None:
    """Settled segments of a reader stay until the reader has named those in doubt; unsettled ones stay anyway."""
    lane = Lane(store, 1)
    for _ in range(6):
        lane.publish(rows(1))
    lane.settle(4)
    assert len(store.names("s1")) == 6
    lane.keep(4, [2])
    lane.settle(4)

    assert [each.number for each in lane.after(0)] == [2, 4, 5, 6]
    assert [name[-7:-6] for name in store.names("s1")] == ["2", "4", "5", "6"]


def test_what_another_process_removes_is_not_remembered(store: Folder) -> None:
    """The runner remembers only the position of segments that the reader's process removes."""
    lane, child = Lane(store, 1), Lane(store, 1)
    lane.removes = False
    for _ in range(5):
        lane.added(child.publish(rows(1)))
    lane.settle(4)
    assert [each.number for each in lane.after(0)] == [5]
    lane.settle(5)

    assert [each.number for each in lane.after(0)] == [5]
    assert (lane.last, lane.settled, lane.ahead) == (5, 5, 0)
    assert len(store.names("s1")) == 5


def test_what_two_threads_find_at_once_is_counted_once(
    store: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment that the runner and its reader find at the same time is counted once."""
    lane, other = Lane(store, 1), Lane(store, 1)
    for _ in range(2):
        other.publish(rows(1))
    read = lane.read

    def meanwhile(number: int) -> pa.Table:
        monkeypatch.undo()
        lane.load()
        return read(number)

    monkeypatch.setattr(lane, "read", meanwhile)
    lane.take_in()

    assert [each.number for each in lane.after(0)] == [1, 2]
    assert lane.ahead == 2 * lane.after(1)[0].size


def test_a_segment_of_a_process_of_this_query_is_counted_once(store: Folder) -> None:
    """A segment that a process reports, and that was found here already, is counted once."""
    lane, child = Lane(store, 1), Lane(store, 1)
    segment = child.publish(rows(2))
    lane.added(segment)
    lane.added(segment)

    assert [each.number for each in lane.after(0)] == [1]


def test_a_folder_with_something_else_in_it_is_no_lane(store: Folder) -> None:
    """A folder with other files is refused with one sentence."""
    table = rows(1).replace_schema_metadata(None)
    Lane(store, 1)._store.publish("s1/000000000001.arrow", *written(table))
    with pytest.raises(RedeliveryError, match="not a segment of the write-ahead log"):
        Lane(store, 1).load()
