"""`consumers=executors`: what one task or the driver could not accept for certain is known to all, once."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.eventually import eventually
from tests.spark.conftest import no_marks
from tests.spark.query import Killed, Query

import redelivery
from redelivery.testing import MemoryBroker
from redelivery_memory.messages import MemoryDelivery
from redelivery_memory.queues import Queue
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
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from redelivery.core.delivery import Delivery


@pytest.fixture
def broker() -> Iterator[MemoryBroker]:
    """A broker in real time."""
    with MemoryBroker() as broker:
        yield broker


@pytest.fixture
def share(broker: MemoryBroker, tmp_path: Path) -> Share:
    """A share of the first of two batches."""
    store = store_at(str(tmp_path))
    store.prepare(segments.FOLDER, task_parts.FOLDER, "state")
    for number in (1, 2):
        Segments(store, lambda: None).publish(number, empty())
    given = {"url": broker.uri, "destination": "orders", "walDir": str(tmp_path), "maxWait": "200"}
    return Share(read_options(given), "log", 1, 0, 100, 1 << 20)


def bodies(share: Share) -> list[str]:
    """Run its task."""
    return [body.decode() for body in rows_of_share(share).column("body").to_pylist()]


def test_a_share_whose_connection_came_back_is_not_accepted_for_certain(
    broker: MemoryBroker, share: Share, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link was another one when it was to accept: its message comes again, and is known."""
    broker.send("orders", "a")
    publish, begin = TaskParts.publish, SourceConnection.begin
    intakes: list[SourceConnection] = []

    def cut_meanwhile(self: TaskParts, name: str, rows: pa.Table, undecodable: int = 0) -> bool:
        done = publish(self, name, rows, undecodable)
        # It goes to another one.
        stack.enter_context(redelivery.connect(broker.uri)).consumer("orders", credit=2)
        (intake,) = intakes
        epoch = intake.epoch
        broker.cut("one")
        eventually(lambda: intake.connected and intake.epoch != epoch)
        return done

    def noted(self: SourceConnection) -> None:
        intakes.append(self)
        begin(self)

    named = {
        "url": f"{broker.uri}?jms.clientID=one",
        "destination": "orders",
        "walDir": share.options.wal_dir,
    }
    with ExitStack() as stack, monkeypatch.context() as patch:
        patch.setattr(TaskParts, "publish", cut_meanwhile)
        patch.setattr(SourceConnection, "begin", noted)
        assert bodies(replace(share, options=read_options(named))) == ["a"]
    assert bodies(replace(share, number=2)) == []
    assert broker.depth("orders") == 0


@pytest.mark.usefixtures("own_ids")
def test_one_unread_acceptance_costs_no_more_than_one_equal_message(
    broker: MemoryBroker, share: Share, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of tasks that look for its copy one finds it; the others have rows."""
    broker.send("orders", "alive", headers={"id": "X"})

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SourceConnection, "settle", dies)
        with pytest.raises(KeyboardInterrupt):
            rows_of_share(share)  # its part has one row; its message is on the queue again
    monkeypatch.setattr(MemoryDelivery, "redelivered", property(lambda _: True))  # were sent to others before
    for _ in range(2):
        broker.send("orders", "alive", headers={"id": "X"})
    one = replace(share, number=2, most=1)
    rows = bodies(share) + [body for part in range(3) for body in bodies(replace(one, part=part))]
    assert broker.depth("orders") == 0
    assert rows == ["alive"] * 3


@pytest.mark.usefixtures("own_ids")
@pytest.mark.parametrize("marks", [True, False])
def test_nothing_is_taken_for_a_copy_of_what_a_task_accepted_for_certain(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    monkeypatch: pytest.MonkeyPatch,
    *,
    marks: bool,
) -> None:
    """The driver starts again, and an equal message comes soon after."""
    with nullcontext() if marks else no_marks():
        query = make_query(consumers="executors", maxMessagesPerTrigger=10)
        for body in ("1", "2", "3", "4", "5", "alive"):
            redelivery_broker.send("orders", body, headers={"id": body})
        query.drain()
        assert sorted(query.bodies()) == ["1", "2", "3", "4", "5", "alive"]
        query.die()
        assert redelivery_broker.depth("orders") == 0, "nothing is unread"
        if marks:
            monkeypatch.setattr(MemoryDelivery, "redelivered", property(lambda _: True))
        redelivery_broker.send("orders", "alive", headers={"id": "alive"})
        query.drain()
        assert query.bodies().count("alive") == 2


@pytest.mark.parametrize("replay", [False, True])
def test_a_driver_that_died_between_its_batch_and_the_acknowledgement(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    monkeypatch: pytest.MonkeyPatch,
    *,
    replay: bool,
) -> None:
    """The tasks of the batch that a new driver finds know its messages, which come again last, as on Classic."""
    monkeypatch.setattr(Queue, "put_back", Queue.put)
    query = make_query(consumers="executors", maxMessagesPerTrigger=10)
    source = query.start()
    for n in range(6):
        redelivery_broker.send("orders", str(n))

    def dies(deliveries: Any) -> None:
        if deliveries:
            raise Killed

    monkeypatch.setattr(source._intake, "settle", dies)
    with suppress(Killed):
        query.step()
    query.die()
    if replay:  # it was in Spark's offset log already
        query.planned = 1
    query.drain()
    assert Counter(query.bodies()) == Counter(map(str, range(6)))


def test_what_the_driver_could_not_accept_is_known_to_the_tasks_of_its_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its link breaks between the batch and the acknowledgement, and is away for long."""
    with MemoryBroker() as broker:
        url = f"failover:({broker.uri})?initialReconnectDelay=20000&maxReconnectDelay=20000"
        query = Query(broker, tmp_path / "wal", url=url, consumers="executors", maxMessagesPerTrigger=10)
        for body in ("a", "b", "c"):
            broker.send("orders", body)
        intake = query.start()._intake
        settle = intake.settle

        def cut_first(deliveries: Sequence[Delivery]) -> None:
            if deliveries:
                broker.refuse_connections()
                broker.cut()
                eventually(lambda: not intake.connected)
            settle(deliveries)
            broker.accept_connections()

        monkeypatch.setattr(intake, "settle", cut_first)
        rows = query.step()
        query.die()
        found = [row["body"] for row in rows or ()]
        assert b"a" in found
        assert len(found) == len(set(found))
