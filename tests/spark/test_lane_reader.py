"""The reader: when it publishes a segment, when it stops, and which messages it accepts."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest
from tests.spark.query import readers_of

from redelivery.errors import RedeliveryError
from redelivery_memory.messages import MemoryDelivery
from redelivery_spark.stream.trigger_size import AvailableNow

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.spark.query import Query

    from redelivery.testing import ManualClock, MemoryBroker
    from redelivery_spark.stream.lane_reader import LaneReader


def reading(query: Query) -> LaneReader:
    """Start a query, and return its reader before Spark asks for a batch."""
    source = query.start()
    source.begin({})
    reader = readers_of(source).reader
    reader.step(0.0)
    return reader


def test_while_spark_is_at_work_a_segment_waits_for_more(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """A segment waits for a second after its first row; while Spark waits for rows, for a moment."""
    reader = reading(make_query())
    for wanted, longest in ((False, 1.0), (True, 0.005)):
        reader.wanted = wanted
        redelivery_broker.send("orders", "good")
        began = redelivery_clock.monotonic()
        while not reader.step(0.5):
            pass
        assert redelivery_clock.monotonic() - began == pytest.approx(longest)
    assert [each.rows for each in reader.lane.after(0)] == [1, 1]


def test_a_question_of_spark_ends_the_wait(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """Messages that are taken when Spark asks are published at once."""
    query = make_query()
    reader = reading(query)
    redelivery_broker.send("orders", "good")
    assert not reader.step(0.0)
    assert reader.pending
    began = redelivery_clock.monotonic()
    assert query.plan()
    assert redelivery_clock.monotonic() - began < 0.1
    assert not reader.pending


def test_a_segment_that_is_complete_waits_for_nothing(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    redelivery_clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A segment that is full by its rows, or by its bytes, is published at once."""
    monkeypatch.setattr("redelivery_spark.stream.lane_reader.MOST_ROWS", 3)
    monkeypatch.setattr("redelivery_spark.stream.lane_reader.MOST_BYTES", 100)
    reader = reading(make_query())
    began = redelivery_clock.monotonic()
    for body in (*"abc", "d" * 60, "e" * 60):
        redelivery_broker.send("orders", body)
    assert reader.step(0.0)
    assert reader.step(0.0)
    assert [each.rows for each in reader.lane.after(0)] == [3, 2]
    assert redelivery_clock.monotonic() == began


def test_nothing_is_accepted_before_it_is_published(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message stays on the broker until the log has it."""
    query = make_query()
    reader = reading(query)
    redelivery_broker.send("orders", "good")
    publish = query.store.__class__.publish
    held: list[int] = []

    def seen(*given: object, **named: object) -> bool:
        held.append(redelivery_broker.depth("orders"))
        return publish(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(query.store.__class__, "publish", seen)
    while not reader.step(0.5):
        pass
    assert held[-1] == 1
    assert redelivery_broker.depth("orders") == 0


def test_a_full_disk_ends_the_query_and_nothing_is_accepted(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a full disk the next start finds all messages on the broker."""
    query = make_query()
    for number in range(3):
        redelivery_broker.send("orders", f"good-{number}")
    lane = query.start()._journal.lanes[1]

    def full(_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(lane, "publish", full)
        with pytest.raises(OSError, match="No space left"):
            query.step()
    assert redelivery_broker.depth("orders") == 3
    query.die()
    query.drain()
    assert query.bodies() == [f"good-{number}" for number in range(3)]


def test_a_reader_on_a_thread_says_what_ended_it(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of a reader on a thread is raised at Spark's next call."""
    query = make_query()
    query.start().begin({})
    readers = readers_of(query.start())
    redelivery_broker.send("orders", "good")

    def full(_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(readers.reader.lane, "publish", full)
    readers._run()
    with pytest.raises(RedeliveryError, match=r"reading has stopped: .*No space left"):
        readers.published()
    assert redelivery_broker.depth("orders") == 1


def test_bytes_ahead_stop_the_reader_and_a_batch_frees_it(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], segments_of: Callable[[int], None]
) -> None:
    """At the limit of bytes messages stay on the broker, and a batch does not wait for more."""
    segments_of(1)
    query = make_query(
        maxBytesAhead=5000,
        maxBytesPerTrigger=5000,
        minRowsPerTrigger=99,
        maxTriggerDelay="2s",
        uri="redelivery.credit=1",
    )
    for number in range(12):
        redelivery_broker.send("orders", f"good-{number}".ljust(2000))
    query.read_ahead()
    reader = readers_of(query.start()).reader
    assert reader.full
    assert not reader.pending
    assert redelivery_broker.depth("orders") == 9
    clock = query.start()._clock
    began = clock.monotonic()
    query.step()
    assert clock.monotonic() - began < 1.0
    query.drain()
    assert len(query.bodies()) == 12
    assert redelivery_broker.depth("orders") == 0


def test_what_came_over_a_lost_connection_and_was_not_published_comes_again(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """Messages of a lost connection that were not published are in one segment, that of the later connection."""
    query = make_query()
    reader = reading(query)
    redelivery_broker.send("orders", "good")
    assert not reader.step(0.0)
    before = reader.connection
    redelivery_broker.cut()
    while reader.connection == before:
        assert not reader.step(0.01), "published over the connection that was lost"
    query.drain()
    assert query.bodies() == ["good"]
    assert query.output[0][0]["redelivered"]


def test_a_message_that_no_row_can_be_made_of_is_dead_lettered(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message whose body did not arrive whole is dead-lettered and counted, and others pass."""
    monkeypatch.setattr(
        MemoryDelivery, "body_kind", property(lambda d: "object" if d.body == b"odd" else "text")
    )
    monkeypatch.setattr(MemoryDelivery, "readable", property(lambda d: d.body != b"odd"))
    monkeypatch.setattr(MemoryDelivery, "plain", lambda d, now: d.body != b"odd")
    monkeypatch.setattr(
        "redelivery.driver.consumer.bulk_intake.arrived_whole", lambda d, **_: d.body != b"odd"
    )
    for body in ("good-1", "odd", "good-2"):
        redelivery_broker.send("orders", body)
    query = make_query()
    query.drain()
    assert query.bodies() == ["good-1", "good-2"]
    assert [dead.body for dead in redelivery_broker.dead_letters()] == [b"odd"]
    report = query.start().report()
    assert report is not None
    assert report["refused"] == 1


def test_a_segment_that_is_a_part_of_a_small_window_waits_for_nothing(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """A segment that fills a part of a small window is published at once; with AvailableNow that is not the end."""
    reader = reading(make_query(uri="redelivery.credit=8"))
    reader.available = AvailableNow(redelivery_clock)
    for number in range(6):
        redelivery_broker.send("orders", f"good-{number}")
    redelivery_clock.advance(5.0)
    began = redelivery_clock.monotonic()
    for _ in range(3):
        assert reader.step(0.0)
    assert [each.rows for each in reader.lane.after(0)] == [2, 2, 2]
    assert redelivery_clock.monotonic() == began
    assert not reader.available.exhausted
