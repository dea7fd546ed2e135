"""A task that consumes for itself: one attempt's messages count, the others' go back, and none is lost between them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import redelivery
from redelivery.testing import MemoryBroker
from redelivery_spark.executors.consuming import rows_of_share
from redelivery_spark.executors.share import Share
from redelivery_spark.intake import Intake
from redelivery_spark.log import parts, segments
from redelivery_spark.log.files import empty
from redelivery_spark.log.parts import Parts
from redelivery_spark.log.store import store_at
from redelivery_spark.options import read_options

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa


@pytest.fixture
def broker() -> Iterator[MemoryBroker]:
    """A broker in real time: tasks have no other."""
    with MemoryBroker() as broker:
        yield broker


@pytest.fixture
def share(broker: MemoryBroker, tmp_path: Path) -> Share:
    """The first part of the first batch, of at most 100 messages."""
    store_at(str(tmp_path)).prepare(segments.FOLDER, parts.FOLDER)
    given = {"url": broker.uri, "destination": "orders", "walDir": str(tmp_path), "maxWait": "200"}
    return Share(read_options(given), "log", 1, 0, 100)


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
    publish = Parts.publish

    def late(self: Parts, name: str, rows: pa.Table, undecodable: int = 0) -> bool:
        publish(self, name, empty())  # another attempt, which got nothing
        return publish(self, name, rows, undecodable)

    monkeypatch.setattr(Parts, "publish", late)
    assert bodies(share) == []
    monkeypatch.undo()
    rows = rows_of_share(replace(share, number=2))
    assert rows.column("body").to_pylist() == [b"a", b"b"]
    assert rows.column("delivery_count").to_pylist() == [1, 1]


def test_an_attempt_that_comes_after_its_batch_was_settled_takes_nothing(
    broker: MemoryBroker, share: Share
) -> None:
    """The places of tasks that did not run are taken before a batch is settled."""
    Parts(store_at(share.options.wal_dir)).close(1, 2)
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

    monkeypatch.setattr(Intake, "settle", dies)
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
