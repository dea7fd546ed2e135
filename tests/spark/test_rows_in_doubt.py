"""Rows whose acceptance the broker may not have read: which they are, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.spark.stored import sent

from redelivery.core.message_history import RETURN
from redelivery_memory.messages import MemoryDelivery
from redelivery_spark.stream.rows_in_doubt import LONGEST, RowsInDoubt, SentAhead
from redelivery_spark.wal.folder import Folder
from redelivery_spark.wal.lane import Lane
from redelivery_spark.wal.segment_files import SegmentFacts, folder_of, stored_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from redelivery.core.delivery import Delivery
    from redelivery.testing import ManualClock, MemoryBroker

WINDOW = SentAhead(2)


class Log:
    """Two lanes in a folder, and their appended segments."""

    def __init__(self, broker: MemoryBroker, folder: Path, clock: ManualClock) -> None:
        self._broker = broker
        self.clock = clock
        self.store = Folder(str(folder))
        self.store.prepare(*map(folder_of, range(3)))
        self.lanes = [Lane(self.store, number) for number in (1, 2)]
        self.again()

    def again(self, own: int = 0, siblings: str = "") -> None:
        """Find the lanes as a start does. `siblings`: prefix of the connections of its other readers."""
        self.lanes = [Lane(self.store, number) for number in (1, 2)]
        for lane in self.lanes:
            lane.load()
        self.own = self.lanes[own]
        others = [each for each in self.lanes if each is not self.own]
        self.doubt = RowsInDoubt(self.own, others, self.clock, siblings)

    def append(
        self, connection: str, *bodies: str, lane: Lane | None = None, at: float = 1.0
    ) -> Sequence[Delivery]:
        """Append a segment of messages of a connection; return them. `at`: time on the wall clock."""
        found, wire = sent(self._broker, *bodies)
        stored = [each.stored() for each in found]
        facts = SegmentFacts(at, "log", (wire,), connection=connection)
        (lane or self.own).publish(
            stored_table([head for head, _ in stored], [body for _, body in stored], facts)
        )
        self.doubt.published()
        return found

    def left(self) -> list[int]:
        """Settle all segments, and return the numbers of those that stay."""
        self.own.settle(self.own.last)
        return [each.number for each in self.own.after(0)]


@pytest.fixture
def log(redelivery_broker: MemoryBroker, tmp_path: Path, redelivery_clock: ManualClock) -> Log:
    """Return an empty log."""
    return Log(redelivery_broker, tmp_path, redelivery_clock)


def copies(log: Log, deliveries: Sequence[Delivery]) -> list[bytes]:
    """Return the bodies of the messages that the log has."""
    return [each.body for each in log.doubt.copies(deliveries)]


def test_nothing_is_in_doubt_over_the_connection_that_stands(log: Log) -> None:
    """Rows of the current connection are not in doubt: a broker redelivers nothing over it."""
    log.doubt.begin("one", WINDOW)
    came = log.append("one", "a", "b")
    assert copies(log, came) == []


def test_rows_of_a_connection_that_ended_are_in_doubt_once_each(log: Log) -> None:
    """Rows of an ended connection are in doubt once each: a second equal message is another one."""
    log.doubt.begin("one", WINDOW)
    came = log.append("one", "a", "b")
    log.doubt.begin("two", WINDOW)
    assert copies(log, [came[0], came[0], came[1]]) == [b"a", b"b"]
    assert copies(log, came) == []


def test_each_connection_may_bring_them_once_more(log: Log) -> None:
    """Each later connection can bring duplicates once more: an acceptance can be lost again."""
    log.doubt.begin("one", WINDOW)
    came = log.append("one", "a")
    for connection in ("two", "three"):
        log.doubt.begin(connection, WINDOW)
        assert copies(log, came) == [b"a"]


def test_only_the_newest_two_windows_of_a_connection_are_in_doubt(log: Log) -> None:
    """Only the newest two windows of a connection are in doubt: the broker sends no further ahead of acceptances."""
    log.doubt.begin("one", WINDOW)
    came = [delivery for body in "abcdef" for delivery in log.append("one", body)]
    log.doubt.begin("two", WINDOW)
    assert copies(log, came) == [b"c", b"d", b"e", b"f"]


def test_a_window_in_bytes_holds_more_rows(log: Log) -> None:
    """A window in bytes holds more rows: both limits must be reached."""
    log.doubt.begin("one", window := SentAhead(1, 1 << 20))
    came = [delivery for body in "abcdef" for delivery in log.append("one", body)]
    log.doubt.begin("two", window)
    assert copies(log, came) == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_segments_in_doubt_stay_although_they_are_settled(log: Log) -> None:
    """Segments in doubt stay although they are settled: two windows of the current connection, and those before it."""
    log.doubt.begin("one", WINDOW)
    for body in "abcdef":
        log.append("one", body)
    assert log.left() == [3, 4, 5, 6]
    log.doubt.begin("two", WINDOW)
    log.append("two", "g")
    assert log.left() == [3, 4, 5, 6, 7]


def test_a_start_knows_them_by_what_stayed(log: Log) -> None:
    """A start knows the rows in doubt by the segments that stayed, also after a second crash."""
    log.doubt.begin("one", WINDOW)
    came = log.append("one", "a", "b")
    log.left()
    for connection in ("two", "three"):
        log.again()
        log.doubt.begin(connection, WINDOW)
        log.append(connection, connection)
        log.left()
    assert copies(log, came) == [b"a", b"b"]


def test_rows_of_all_readers_lanes_are_in_doubt(log: Log) -> None:
    """Rows of all readers' lanes are in doubt: a later start can have fewer readers, and any consumer can get them."""
    log.doubt.begin("one", WINDOW)
    came = log.append("other", "a", lane=log.lanes[1])
    log.again()
    log.doubt.begin("two", WINDOW)
    assert copies(log, came) == [b"a"]


def test_a_byte_that_differs_is_another_message(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body, or any other part that the producer sent, that differs makes another message."""
    monkeypatch.setattr(MemoryDelivery, "key", property(lambda _: "X"))
    log.doubt.begin("one", WINDOW)
    log.append("one", "reading 1")
    other = log.append("one", "reading 2")
    log.doubt.begin("two", WINDOW)
    assert copies(log, [*log_like(log, "reading 3"), *other]) == [b"reading 2"]


def log_like(log: Log, body: str) -> Sequence[Delivery]:
    """Return a message that is in no segment."""
    return sent(log._broker, body)[0]


def test_a_message_without_an_id_is_a_row_each_time(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message without an id is a row each time: two equal ones need not be one."""
    monkeypatch.setattr(MemoryDelivery, "key", property(lambda _: None))
    log.doubt.begin("one", WINDOW)
    came = log.append("one", "a")
    log.doubt.begin("two", WINDOW)
    assert copies(log, came) == []


def test_an_id_of_a_producer_without_a_time_is_a_copy_only_if_the_broker_says_so(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a send time only a marked message is a duplicate if its producer made the id; with one, any equal one."""
    monkeypatch.setattr(MemoryDelivery, "strong", property(lambda _: False))
    log.doubt.begin("one", WINDOW)
    came = log.append("one", "a", "b")
    log.doubt.begin("two", WINDOW)
    assert copies(log, came) == []
    monkeypatch.setattr(MemoryDelivery, "redelivered", property(lambda each: each.body == b"a"))
    assert copies(log, came) == [b"a"]
    monkeypatch.setattr(MemoryDelivery, "dated", property(lambda _: True))
    assert copies(log, came) == [b"b"]


def test_the_doubt_is_over_when_the_destination_is_empty(log: Log) -> None:
    """The doubt ends when the destination is empty, after the time in which a broker notices an ended connection."""
    log.doubt.begin("one", WINDOW)
    came = log.append("one", "a")
    log.append("one", "b")
    log.doubt.begin("two", WINDOW)
    log.append("two", "c")
    log.clock.advance(RETURN - 1)
    log.doubt.look(1, idle=True)
    assert log.left() == [1, 2, 3]
    log.clock.advance(1)
    log.doubt.look(1, idle=False)
    assert log.left() == [1, 2, 3]
    log.doubt.look(1, idle=True)
    assert log.left() == [3]
    assert copies(log, came) == []


def test_the_doubt_is_over_when_more_has_come_than_can_have_been_before_a_copy(log: Log) -> None:
    """The doubt ends when more messages have arrived than can have been before a duplicate."""
    log.doubt.begin("one", WINDOW)
    log.append("one", "a")
    log.doubt.begin("two", WINDOW)
    log.append("two", "b")
    log.clock.advance(RETURN)
    for arrived in (10, 12, 14):
        log.doubt.look(arrived, idle=False)
        assert log.left() == [1, 2]
    log.doubt.look(15, idle=False)
    assert log.left() == [2]


def test_a_doubt_that_is_over_stays_over(log: Log) -> None:
    """A doubt that has ended does not begin again with the next connection, also if the segment is still there."""
    log.doubt.begin("one", WINDOW)
    came = log.append("one", "a")
    log.doubt.begin("two", WINDOW)
    log.clock.advance(RETURN)
    log.doubt.look(0, idle=True)
    log.doubt.begin("three", WINDOW)
    assert copies(log, came) == []


def test_what_other_readers_appended_goes_when_the_doubt_is_over(log: Log) -> None:
    """Segments of other readers' lanes are removed when the doubt is over."""
    log.append("gone", "a", lane=log.lanes[1])
    log.append("gone", "b", lane=log.lanes[1])
    log.doubt.begin("two", WINDOW)
    log.lanes[1].settle(2)
    assert len(log.store.names("s2")) == 2
    log.clock.advance(RETURN)
    log.doubt.look(0, idle=True)
    log.lanes[1].settle(2)
    assert log.store.names("s2") == ["s2/000000000002.arrow"]


def test_a_connection_that_is_lost_again_and_again_leaves_no_more_behind(log: Log) -> None:
    """A connection that is lost repeatedly leaves a bounded number of segments: an old end is no longer in doubt."""
    for number in range(40):
        log.doubt.begin(f"c{number}", WINDOW)
        log.append(f"c{number}", "a")
        log.doubt.published()
        log.clock.advance(RETURN / 4)
        log.doubt.look(0, idle=True)
    assert len(log.left()) < 8


def test_a_destination_that_is_never_empty_does_not_keep_a_doubt_for_ever(log: Log) -> None:
    """A doubt ends after ten minutes also if the destination is never empty."""
    log.doubt.begin("one", WINDOW)
    came = log.append("one", "a")
    log.doubt.begin("two", WINDOW)
    log.clock.advance(LONGEST + 1)
    log.doubt.look(0, idle=False)
    assert copies(log, came) == []


def test_what_ended_long_before_a_start_is_over_as_soon_as_all_has_come(log: Log) -> None:
    """Connections that ended long before a start are out of doubt, and without segments, as soon as all has arrived."""
    came = log.append("one", "a", "b")
    log.left()
    log.again()
    log.own.settle(1)
    log.doubt.begin("two", WINDOW)
    assert copies(log, came[:1]) == [b"a"]
    log.append("two", "c")
    log.doubt.look(1, idle=False)
    assert copies(log, came[1:]) == [b"b"]
    log.doubt.look(2, idle=True)
    assert copies(log, came) == []
    assert log.store.names("s1") == ["s1/000000000002.arrow"]


@pytest.mark.parametrize(("ago", "arrived"), [(LONGEST - 1, 1), (-3600.0, 1), (LONGEST + 1, 0)])
def test_what_may_still_come_stays_in_doubt_in_a_short_run(log: Log, ago: float, arrived: int) -> None:
    """A doubt stays in a short run if the end was just now, a clock was ahead, or the broker has not begun to send."""
    came = log.append("one", "a", at=log.clock.time() - ago)
    log.again()
    log.doubt.begin("two", WINDOW)
    log.doubt.look(arrived, idle=True)
    assert copies(log, came) == [b"a"]
    log.clock.advance(RETURN)
    log.doubt.look(arrived, idle=True)
    assert copies(log, came) == []


def test_a_connection_of_this_start_goes_by_its_end_alone(log: Log) -> None:
    """A connection of this start is in doubt by its end, not by the age of its last rows."""
    log.doubt.begin("one", WINDOW)
    came = log.append("one", "a")
    log.doubt.begin("two", WINDOW)
    log.doubt.look(1, idle=True)
    assert copies(log, came) == [b"a"]


def test_rows_of_several_short_runs_end_a_doubt_together(log: Log) -> None:
    """Rows of several short runs end a doubt together, also if none finds the destination empty."""
    now = log.clock.time()
    came = log.append("one", "a", at=now - 3 * LONGEST)
    for number in range(2):
        log.append(f"run {number}", "b", "c", at=now - LONGEST / 2 + number)
    log.again()
    log.doubt.begin("two", WINDOW)
    log.doubt.look(0, idle=False)
    assert copies(log, came) == [b"a"]
    log.doubt.look(1, idle=False)
    assert copies(log, came) == []
