"""A task that consumes for itself: one attempt's messages count, the others' go back, and none is lost between them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import redelivery
from redelivery.testing import MemoryBroker
from redelivery_spark.executors.share import Share
from redelivery_spark.executors.task_consumer import rows_of_share
from redelivery_spark.options.stream_options import read_options
from redelivery_spark.stream.source_connection import SourceConnection
from redelivery_spark.wal import segments, task_parts
from redelivery_spark.wal.arrow_files import empty
from redelivery_spark.wal.segments import Segments
from redelivery_spark.wal.store import store_at
from redelivery_spark.wal.task_parts import TaskParts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from redelivery.core.delivery import Delivery


@pytest.fixture
def broker() -> Iterator[MemoryBroker]:
    """A broker in real time: tasks have no other."""
    with MemoryBroker() as broker:
        yield broker


@pytest.fixture
def share(broker: MemoryBroker, tmp_path: Path) -> Share:
    """The first part of the first batch, of at most 100 messages."""
    store = store_at(str(tmp_path))
    store.prepare(segments.FOLDER, task_parts.FOLDER)
    for number in (1, 2):
        Segments(store, lambda: None).publish(number, empty())
    given = {"url": broker.uri, "destination": "orders", "walDir": str(tmp_path), "maxWait": "200"}
    return Share(read_options(given), "log", 1, 0, 100, 1 << 20)


def put(broker: MemoryBroker, bodies: list[str]) -> None:
    """Send messages."""
    with redelivery.connect(broker.uri) as connection:
        for body in bodies:
            connection.send("orders", body)


def bodies(share: Share) -> list[str]:
    """What a task reads."""
    return [body.decode() for body in rows_of_share(share).column("body").to_pylist()]


def test_a_task_takes_its_share_once(broker: MemoryBroker, share: Share) -> None:
    """Each action on a batch, and each attempt of its tasks, reads what the first one took."""
    put(broker, ["a", "b"])
    first = bodies(share)
    put(broker, ["c"])
    assert (first, bodies(share)) == (["a", "b"], ["a", "b"])
    assert bodies(replace(share, number=2)) == ["c"]
    assert broker.depth("orders") == 0


def test_no_share_is_larger_than_it_may_be(broker: MemoryBroker, share: Share) -> None:
    """What is left is for other tasks."""
    put(broker, [str(n) for n in range(25)])
    taken = [bodies(replace(share, part=part, most=10)) for part in range(3)]
    assert sorted(map(len, taken)) == [5, 10, 10]
    assert sorted(body for each in taken for body in each) == sorted(str(n) for n in range(25))


def test_who_comes_second_gives_back_what_it_took(
    broker: MemoryBroker, share: Share, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two attempts of one task, the one that publishes later has its messages processed by others, uncounted."""
    put(broker, ["a", "b"])
    publish = TaskParts.publish

    def late(self: TaskParts, name: str, rows: pa.Table, undecodable: int = 0) -> bool:
        publish(self, name, empty())  # another attempt, which got nothing
        return publish(self, name, rows, undecodable)

    monkeypatch.setattr(TaskParts, "publish", late)
    assert bodies(share) == []
    monkeypatch.undo()
    rows = rows_of_share(replace(share, number=2))
    assert rows.column("body").to_pylist() == [b"a", b"b"]
    assert rows.column("delivery_count").to_pylist() == [1, 1]


def test_an_attempt_that_comes_after_its_batch_was_settled_takes_nothing(
    broker: MemoryBroker, share: Share
) -> None:
    """The places of tasks that did not run are taken before a batch is settled."""
    TaskParts(store_at(share.options.wal_dir)).close(1, 2)
    put(broker, ["a"])
    assert bodies(share) == bodies(replace(share, part=1)) == []
    assert broker.depth("orders") == 1


def test_a_copy_of_what_is_in_the_log_is_accepted_and_not_shown(
    broker: MemoryBroker, share: Share, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that dies between publication and acknowledgement costs nothing: the next one reads its part."""
    put(broker, ["a"])

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SourceConnection, "settle", dies)
    with pytest.raises(KeyboardInterrupt):
        rows_of_share(share)
    monkeypatch.undo()
    assert bodies(replace(share, number=2)) == []
    assert bodies(share) == ["a"]
    assert broker.depth("orders") == 0


def test_a_broker_that_is_down_costs_no_batch(
    share: Share, broker: MemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """The task has nothing to read then; it is the driver's connection that waits for the broker."""
    broker.refuse_connections()
    assert bodies(share) == []
    assert "no messages" in caplog.text


def test_an_attempt_that_comes_when_its_batch_is_forgotten_accepts_nothing(
    broker: MemoryBroker, share: Share
) -> None:
    """Nobody will read its part: the places of its batch were taken once, and have been removed with it."""
    store = store_at(share.options.wal_dir)
    batches = Segments(store, lambda: None)
    TaskParts(store).close(1, 1)
    for number in (3, 4):
        batches.publish(number, empty())
    batches.drop_settled(4)
    put(broker, ["a"])
    rows_of_share(share)
    assert bodies(replace(share, number=4)) == ["a"]  # nor is it taken for a copy of what the log has


def test_a_task_waits_for_the_broker_whatever_triggers_do(
    broker: MemoryBroker, share: Share, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`maxWait=0` is about triggers: messages take a moment to come over a connection that has just begun."""
    take = SourceConnection.take

    def from_afar(self: SourceConnection, most: int, most_bytes: int, timeout: float) -> list[Delivery]:
        return take(self, most, most_bytes, timeout) if timeout >= 0.05 else []

    monkeypatch.setattr(SourceConnection, "take", from_afar)
    put(broker, ["a"])
    assert bodies(replace(share, options=replace(share.options, wait=0.0))) == ["a"]
