"""`spark.read`, mode=drain: redelivered messages are in the drain once, and leave the queue."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.query import Killed
from tests.spark.tables import bodies, fill, read

from redelivery.core.message_history import RETURN
from redelivery.dlq.dlq_connection import DeadLetterConnection, DeadLetterConsumer
from redelivery_memory.queues import Queue
from redelivery_spark.batch import drain as module
from redelivery_spark.batch.drain import DrainedQueue

if TYPE_CHECKING:
    from pathlib import Path

    from redelivery.testing import ManualClock, MemoryBroker


@pytest.fixture
def given(tmp_path: Path) -> dict[str, str]:
    """Options of a drain."""
    return {"mode": "drain", "destination": "orders", "walDir": str(tmp_path / "wal")}


@pytest.fixture
def back_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the broker put returned messages behind all others, as Classic."""
    monkeypatch.setattr(Queue, "put_back", Queue.put)


def die_at(number: int, broker: MemoryBroker, **given: object) -> None:
    """Run an attempt that dies after it has published this segment, before it accepts."""
    original = DrainedQueue.publish

    def dying(self: DrainedQueue, which: int, table: Any) -> bool:
        done = original(self, which, table)
        if which == number:
            raise Killed
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DrainedQueue, "publish", dying)
        with pytest.raises(Killed):
            read(broker, **given)


def cut_after(segments: int, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut the connection when so many segments are published, before the last one's messages are accepted."""
    original = module._Drain._publish

    def cutting(self: Any, *arguments: Any) -> bool:
        done = original(self, *arguments)
        if self._next == segments:
            broker.cut()
        return done

    monkeypatch.setattr(module._Drain, "_publish", cutting)


def test_a_cut_in_the_middle(
    redelivery_broker: MemoryBroker, given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that were accepted on a lost connection are redelivered, and recognised."""
    monkeypatch.setattr(module, "ROWS", 4)
    sent = fill(redelivery_broker, 10)
    cut_after(2, redelivery_broker, monkeypatch)
    assert Counter(bodies(read(redelivery_broker, **given))) == Counter(sent)
    assert redelivery_broker.depth("orders") == 0


@pytest.mark.usefixtures("unmarked")
def test_copies_that_are_not_marked(
    redelivery_broker: MemoryBroker, given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker without marks can redeliver each unaccepted message once; further equal messages are new ones."""
    monkeypatch.setattr(module, "ROWS", 3)
    for _ in range(4):
        redelivery_broker.send("orders", "same", headers={"id": "X"})
    die_at(0, redelivery_broker, **given)
    assert redelivery_broker.depth("orders") == 4
    assert bodies(read(redelivery_broker, **given)) == ["same"] * 4
    assert redelivery_broker.depth("orders") == 0


@pytest.mark.usefixtures("back_last")
@pytest.mark.parametrize("deaths", [(0,), (0, 4), (0, 2, 5)], ids=len)
def test_copies_that_come_last(
    redelivery_broker: MemoryBroker,
    given: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    deaths: tuple[int, ...],
) -> None:
    """A duplicate that arrives after many segments is recognised, also if one more attempt died in between."""
    monkeypatch.setattr(module, "ROWS", 4)
    sent = fill(redelivery_broker, 30)
    for number in deaths:
        die_at(number, redelivery_broker, **given)
    segments: dict[str, int] = {}  # how many when a duplicate arrived
    taken, publish = DeadLetterConsumer.take, DrainedQueue.publish
    published = deaths[-1] + 1

    def watched(self: Any, *arguments: Any) -> Any:
        delivery = taken(self, *arguments)
        if delivery is not None and delivery.redelivered:
            segments[delivery.body.decode()] = published
        return delivery

    def counted(self: DrainedQueue, number: int, table: Any) -> bool:
        nonlocal published
        done = publish(self, number, table)
        published += done
        return done

    monkeypatch.setattr(DeadLetterConsumer, "take", watched)
    monkeypatch.setattr(DrainedQueue, "publish", counted)
    assert Counter(bodies(read(redelivery_broker, **given))) == Counter(sent)
    assert redelivery_broker.depth("orders") == 0
    assert set(segments) >= set(sent[:4])
    assert min(segments.values()) >= 7, "of 4 rows: behind all others"


def test_copies_of_many_segments(
    redelivery_broker: MemoryBroker, given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acceptances that the broker never got, of more segments than are kept open, are made again."""
    monkeypatch.setattr(module, "ROWS", 2)
    sent = fill(redelivery_broker, 20)
    redelivery_broker.drop_accepts(9)
    die_at(9, redelivery_broker, **given)
    assert redelivery_broker.depth("orders") == 11
    assert bodies(read(redelivery_broker, **given)) == sent
    assert redelivery_broker.depth("orders") == 0


@pytest.mark.parametrize("again", [1, 2])
def test_a_death_at_the_limit(
    redelivery_broker: MemoryBroker, given: dict[str, str], monkeypatch: pytest.MonkeyPatch, again: int
) -> None:
    """Messages that an attempt did not accept, because it died at its limit, do not stay on the queue."""
    monkeypatch.setattr(module, "ROWS", 4)
    sent = fill(redelivery_broker, 10)
    die_at(1, redelivery_broker, **given, maxMessages=6)
    for _ in range(again):
        assert bodies(read(redelivery_broker, **given, maxMessages=6)) == sent[:6]
    assert redelivery_broker.depth("orders") == 4
    assert bodies(read(redelivery_broker, **given, run="rest")) == sent[6:]


@pytest.mark.usefixtures("unmarked")
def test_a_cut_at_the_limit(
    redelivery_broker: MemoryBroker, given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acceptances that are lost with the connection at the limit are made when the messages are redelivered."""
    monkeypatch.setattr(module, "ROWS", 4)
    sent = fill(redelivery_broker, 10)
    cut_after(2, redelivery_broker, monkeypatch)
    assert bodies(read(redelivery_broker, **given, maxMessages=6)) == sent[:6]
    assert redelivery_broker.depth("orders") == 4
    assert bodies(read(redelivery_broker, **given, run="rest")) == sent[6:]


def test_the_limit_ends_at_the_broker(
    redelivery_broker: MemoryBroker, given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drain ends when the broker has read the last acceptance, and answered."""
    fill(redelivery_broker, 10)
    told: list[object] = []
    ask, end = DeadLetterConnection.ask, DrainedQueue.end

    def asking(self: DeadLetterConnection, queue: str) -> None:
        ask(self, queue)
        told.append("answered")

    def ending(self: DrainedQueue, number: int) -> bool:
        told.append(redelivery_broker.depth("orders"))
        return end(self, number)

    monkeypatch.setattr(DeadLetterConnection, "ask", asking)
    monkeypatch.setattr(DrainedQueue, "end", ending)
    read(redelivery_broker, **given, maxMessages=6)
    assert told == ["answered", 4]


def test_no_more_is_held_than_fits(
    redelivery_broker: MemoryBroker,
    given: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A drain at its limit looks for duplicates as far as it may keep the messages before them, and logs that."""
    monkeypatch.setattr(module, "ROWS", 4)
    monkeypatch.setattr(module, "LEFT", 5)
    sent = fill(redelivery_broker, 30)
    die_at(1, redelivery_broker, **given, maxMessages=8)
    assert bodies(read(redelivery_broker, **given, maxMessages=8)) == sent[:8]
    assert "may still be on the queue" in caplog.text
    assert redelivery_broker.depth("orders") == 22


def test_a_copy_after_the_answer(
    redelivery_broker: MemoryBroker, given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A duplicate that arrives after the broker's answer is accepted; then the broker is asked again."""
    sent = fill(redelivery_broker, 2)
    die_at(0, redelivery_broker, **given)
    late: list[Any] = []
    told: list[str] = []
    taken, ask, drop = DeadLetterConsumer.take, DeadLetterConnection.ask, DeadLetterConsumer.drop

    def held_back(self: DeadLetterConsumer, *arguments: Any) -> Any:
        while (delivery := taken(self, *arguments)) is not None:
            late.append(delivery)
        return late.pop() if late and "answered" in told else None

    def asking(self: DeadLetterConnection, queue: str) -> None:
        ask(self, queue)
        told.append("answered")

    def dropping(self: DeadLetterConsumer, delivery: Any) -> bool:
        told.append("accepted")
        return drop(self, delivery)

    monkeypatch.setattr(DeadLetterConsumer, "take", held_back)
    monkeypatch.setattr(DeadLetterConnection, "ask", asking)
    monkeypatch.setattr(DeadLetterConsumer, "drop", dropping)
    assert bodies(read(redelivery_broker, **given)) == sent
    assert told == ["answered", "accepted", "accepted", "answered"]


@pytest.mark.usefixtures("unmarked")
@pytest.mark.parametrize(("after", "count"), [(RETURN - 1, 1), (RETURN + 1, 2)])
def test_what_is_like_a_copy(
    redelivery_broker: MemoryBroker,
    redelivery_clock: ManualClock,
    given: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    after: float,
    count: int,
) -> None:
    """Without marks, a message equal to one of the drain is a duplicate in a connection's first minute, and then a new
    one.
    """
    monkeypatch.setattr(module, "ROWS", 1)
    for name in ("same", "last", "next"):
        redelivery_broker.send("orders", name, headers={"id": name})
    die_at(1, redelivery_broker, **given)
    original = DrainedQueue.publish

    def waiting(self: DrainedQueue, number: int, table: Any) -> bool:
        done = original(self, number, table)
        if number == 2:
            redelivery_clock.advance(after)
            redelivery_broker.send("orders", "same", headers={"id": "same"})
        return done

    monkeypatch.setattr(DrainedQueue, "publish", waiting)
    assert Counter(bodies(read(redelivery_broker, **given))) == {"same": count, "last": 1, "next": 1}
    assert redelivery_broker.depth("orders") == 0


@pytest.mark.usefixtures("unmarked", "back_last")
def test_a_segment_of_two_connections(
    redelivery_broker: MemoryBroker, given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages of a connection that was lost before they were published are redelivered, and each is a row once."""
    monkeypatch.setattr(module, "ROWS", 4)
    sent = fill(redelivery_broker, 10)
    original, calls = DeadLetterConsumer.take, 0

    def cutting(self: DeadLetterConsumer, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            redelivery_broker.cut()
        return original(self, *arguments)

    monkeypatch.setattr(DeadLetterConsumer, "take", cutting)
    assert Counter(bodies(read(redelivery_broker, **given))) == Counter(sent)
    assert redelivery_broker.depth("orders") == 0


@pytest.mark.usefixtures("own_ids")
def test_a_cut_costs_no_message_whose_id_was_used_before(
    redelivery_broker: MemoryBroker, given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another body is another message, also if one with its id has just been accepted."""
    monkeypatch.setattr(module, "BYTES", 1)
    for number in range(4):
        redelivery_broker.send("orders", f"reading {number}", headers={"id": "sensor"})
    cut_after(2, redelivery_broker, monkeypatch)
    assert sorted(bodies(read(redelivery_broker, **given))) == [f"reading {number}" for number in range(4)]
