"""Findings of a review: a limit that stays reached, readers that loop without a pause, listings and links over NFS."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
from tests.spark.conftest import FAST
from tests.spark.query import KillsQuery, fails_bad, readers_of

from redelivery.core.events import TakenBack
from redelivery.errors import RedeliveryError
from redelivery_spark.wal.folder import Folder
from redelivery_spark.wal.wal_state import FOLDER, ROWS, Fact, State, States

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.spark.query import Query

    from redelivery.testing import ManualClock, MemoryBroker


def test_what_stays_for_copies_does_not_fill_the_room_of_a_later_start(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """Settled segments that stay for duplicates do not fill the limit of a later start: it reads."""
    query = make_query(maxBytesAhead="1k")
    for number in range(50):
        redelivery_broker.send("orders", f"good-{number}")
    query.drain()
    query.die()
    redelivery_broker.send("orders", "more")
    query.drain()
    assert query.bodies()[50:] == ["more"]


def test_a_segment_is_complete_by_its_part_of_the_window(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """A segment is full at its part of the window: no reader waits for rows that it does not take."""
    query = make_query(uri="redelivery.credit=8")
    source = query.start()
    source.begin({})
    reader = readers_of(source).reader
    reader.step(0.0)
    began = redelivery_clock.monotonic()
    for number in range(6):
        redelivery_broker.send("orders", f"good-{number}")
    assert [reader.step(0.0) for _ in range(3)] == [True] * 3
    assert [each.rows for each in reader.lane.after(0)] == [2] * 3
    assert redelivery_clock.monotonic() == began


def test_a_link_whose_answer_is_lost_is_ones_own(tmp_path: Path) -> None:
    """A link whose answer is lost is recognised as one's own: NFS repeats the request, which finds the name in use."""
    folder = Folder(str(tmp_path))
    link = os.link

    def lost(source: str, target: str) -> None:
        link(source, target)
        raise FileExistsError(target)

    with patch.object(os, "link", lost):
        assert folder.publish("name", b"own")
    assert not folder.publish("name", b"own")


def test_what_the_broker_has_taken_back_is_not_published(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """Messages that the broker has taken back are not published: they are redelivered, and would be duplicated."""
    query = make_query()
    source = query.start()
    source.begin({})
    reader = readers_of(source).reader
    redelivery_broker.send("orders", "good")
    reader.step(0.0)
    reader.step(0.0)
    (taken,) = reader._taken
    readers_of(source).reader._source.bulk.take_back(TakenBack(taken.consumer, [taken]))
    while reader.pending:
        reader.step(0.5)
    assert not reader.lane.after(0)


def test_copies_of_one_segment_are_compared_with_one_reading_of_it(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """Duplicates of one segment are compared with one reading of it: in an object store each is a request for all of
    it.
    """
    query = make_query()
    for number in range(100):
        redelivery_broker.send("orders", f"good-{number}")
    source = query.start()
    with patch.object(readers_of(source).reader._source, "accept", lambda _: None):
        query.read_ahead()
    lane = source._journal.lanes[1]
    redelivery_broker.cut()
    with patch.object(lane, "read", side_effect=lane.read) as read:
        query.drain()
    assert len(query.bodies()) == 100
    assert read.call_count == 2


def test_a_segment_that_is_listed_late_is_in_its_batch_and_in_its_groups(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """A segment that is listed late is in its batch and in its groups: it is read by the name in Spark's offset."""
    query = make_query(isolate="split", isolateAfter=1, uri=f"{FAST}&redelivery.maximumDeferrals=2")
    for name in ("good", "killer"):
        redelivery_broker.send("orders", name)
    with pytest.raises(KillsQuery):
        query.step(fails_bad, evidence=True)
    names = Folder.names

    def late(folder: Folder, of: str) -> list[str]:
        return [] if of == "s1" else names(folder, of)

    with patch.object(Folder, "names", late):
        query.start()
    query.drain(fails_bad, evidence=True)
    assert query.bodies() == ["good"]
    assert [dead.body for dead in redelivery_broker.dead_letters()] == [b"killer"]


def test_a_log_with_segments_and_no_state_is_not_begun_anew(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """A log with segments and no state is refused: a state that is listed late would lose the rows that wait."""
    query = make_query()
    redelivery_broker.send("orders", "flaky")
    query.step(fails_bad)
    query.step(fails_bad)
    query.die()
    names = Folder.names

    def late(folder: Folder, of: str) -> list[str]:
        return [] if of == FOLDER else names(folder, of)

    with (
        patch.object(Folder, "names", late),
        pytest.raises(RedeliveryError, match="no state"),
    ):
        query.start()
    query.drain(fails_bad)
    assert query.bodies() == ["flaky"]


def test_whether_a_log_is_a_starts_is_seen_without_reading_what_waits(tmp_path: Path) -> None:
    """The owner of a log is read without the rows that wait: there can be a hundred thousand, and it is read each
    second.
    """
    folder = Folder(str(tmp_path))
    folder.prepare(FOLDER, ROWS)
    states = States(folder)
    states.publish(State("log", facts=[Fact(1)]), None, ())
    with patch.object(json, "loads", side_effect=AssertionError):
        states.check()
