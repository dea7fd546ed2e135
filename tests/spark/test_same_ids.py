"""Messages whose producer repeats ids: each is handled by itself."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest
from tests.spark.conftest import AT_ONCE, no_marks
from tests.spark.query import Query, Row, dead_bodies, fails_bad

from redelivery_memory.messages import MemoryDelivery

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from redelivery.testing import ManualClock, MemoryBroker

pytestmark = pytest.mark.usefixtures("own_ids")


def send(broker: MemoryBroker, *bodies: str) -> None:
    """Send messages that all have the id X."""
    for body in bodies:
        broker.send("orders", body, headers={"id": "X"})


@pytest.fixture
def all_marked(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Mark all messages that arrive from now on as redelivered: perhaps to other consumers."""
    return lambda: monkeypatch.setattr(MemoryDelivery, "redelivered", property(lambda _: True))


def test_one_waits_and_one_is_fresh(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """A row that waits and a new one with its id fail in one batch, and both become dead letters."""
    send(redelivery_broker, "bad-1")
    query = make_query()
    query.step(fails_bad)
    query.step(fails_bad)
    redelivery_clock.advance(1.5)
    send(redelivery_broker, "bad-2")
    query.drain(fails_bad)
    assert dead_bodies(redelivery_broker) == [b"bad-1", b"bad-2"]


def test_the_one_that_waits_passes(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """A row that waits passes, and the new one with its id fails in the same batch and is dead-lettered by itself."""
    send(redelivery_broker, "late")
    query = make_query()

    def handler(row: Row) -> None:
        if row["body"] == b"late" and row["delivery_count"] == 1:
            raise ValueError
        fails_bad(row)

    query.step(handler)
    query.step(handler)
    redelivery_clock.advance(1.5)
    send(redelivery_broker, "bad-2")
    query.drain(handler)
    assert query.bodies() == ["late"]
    assert dead_bodies(redelivery_broker) == [b"bad-2"]


def test_two_in_one_batch(redelivery_broker: MemoryBroker, make_query: Callable[..., Query]) -> None:
    """Two messages in one batch keep their id, and so does the dead letter of one."""
    send(redelivery_broker, "good-1", "bad-2")
    query = make_query()
    seen: list[str] = []

    def handler(row: Row) -> None:
        seen.append(row["message_id"])
        fails_bad(row)

    query.drain(handler)
    assert query.bodies() == ["good-1"]
    assert seen == ["X"] * 4
    (letter,) = redelivery_broker.dead_letters()
    assert (letter.body, letter.headers["id"]) == (b"bad-2", "X")
    assert redelivery_broker.depth("orders") == 0


def test_a_restart_takes_neither_for_the_other(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """A restart with one row that waits and one in the current batch confuses neither with the other."""
    query = make_query()
    send(redelivery_broker, "bad-1")
    query.step(fails_bad)
    send(redelivery_broker, "good-2")
    query.plan()
    query.die()
    query.drain(fails_bad)
    assert query.bodies() == ["good-2"]
    assert dead_bodies(redelivery_broker) == [b"bad-1"]


@pytest.mark.parametrize("end", ["die", "cut"])
def test_another_body_is_no_copy(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    all_marked: Callable[[], None],
    end: str,
) -> None:
    """A marked message with an id of the log is another one if a byte of its body differs."""
    send(redelivery_broker, "good-1")
    query = make_query()
    query.step()
    query.step()
    query.die() if end == "die" else redelivery_broker.cut()
    all_marked()
    send(redelivery_broker, "good-2")
    query.drain()
    assert query.bodies() == ["good-1", "good-2"]


def test_another_header_is_no_copy(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], all_marked: Callable[[], None]
) -> None:
    """A marked message is another one if a header differs."""
    send(redelivery_broker, "good")
    query = make_query()
    query.drain()
    query.die()
    all_marked()
    redelivery_broker.send("orders", "good", headers={"id": "X", "attempt": "2"})
    query.drain()
    assert query.bodies() == ["good", "good"]


@pytest.mark.parametrize("end", ["die", "cut", "both"])
@pytest.mark.parametrize("marked", [False, True])
def test_a_dead_letter_that_is_put_back(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    redelivery_clock: ManualClock,
    all_marked: Callable[[], None],
    end: str,
    *,
    marked: bool,
) -> None:
    """A redriven message is handled again, with its id and body, soon after a restart or a cut; a marked one, later."""
    query = make_query(uri=AT_ONCE)
    send(redelivery_broker, "bad-1")
    query.drain(fails_bad)
    if end != "cut":
        query.die()
        query.step()
    if end != "die":
        redelivery_broker.cut()
    if marked:
        query.step()
        redelivery_clock.advance(61)
        query.step()
        all_marked()
    send(redelivery_broker, "bad-1")
    query.drain()
    assert query.bodies() == ["bad-1"]


def test_a_message_that_is_marked_when_the_batches_before_are_gone(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], all_marked: Callable[[], None]
) -> None:
    """A marked message soon after a start, some batches later, is no duplicate, and fails no batch."""
    query = make_query(maxRowsPerTrigger=1)
    names = [f"good-{n}" for n in range(10)]
    for at, name in enumerate(names):
        redelivery_broker.send("orders", name, headers={"id": name})
        query.drain()
        if at == 3:
            query.die()
    all_marked()
    redelivery_broker.send("orders", "late", headers={"id": "late"})
    query.drain()
    assert query.bodies() == [*names, "late"]


@pytest.mark.parametrize("marks", [True, False])
def test_equal_messages_are_all_rows(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], *, marks: bool
) -> None:
    """Equal messages of one id are all rows, and over a cut each is one once."""
    with nullcontext() if marks else no_marks():
        query = make_query()
        send(redelivery_broker, *["alive"] * 15)
        query.drain()
        redelivery_broker.cut()
        query.step()
        assert len(query.bodies()) == 15
        if marks:
            send(redelivery_broker, *["alive"] * 15)
            query.drain()
            assert len(query.bodies()) == 30
    assert redelivery_broker.depth("orders") == 0


def test_a_log_that_is_begun_anew(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], tmp_path: Path
) -> None:
    """Rows of a removed log are in no new one."""
    names = [f"reading-{n}" for n in range(6)]

    def day(order: list[str]) -> list[str]:
        for each in order:
            redelivery_broker.send("orders", each, headers={"id": each})
        query = make_query()
        query.drain()
        query.die()
        assert redelivery_broker.depth("orders") == 0
        return sorted(query.bodies())

    assert day(names) == names
    shutil.rmtree(tmp_path / "wal")
    assert day(names[::-1]) == names


def test_a_link_that_breaks_costs_no_message_whose_id_is_ahead(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], segments_of: Callable[[int], None]
) -> None:
    """Of three messages with one id that are taken and not published, all are redelivered, and handled once."""
    segments_of(2)
    query = make_query(maxRowsPerTrigger=2)
    query.start()
    for body in ("0", "reading 1", "reading 2", "reading 3"):
        redelivery_broker.send("orders", body, headers={"id": "sensor" if body > "1" else body})
    query.step()
    redelivery_broker.cut()
    query.drain()
    left = redelivery_broker.depth("orders")
    assert (sorted(query.bodies()), left) == (["0", "reading 1", "reading 2", "reading 3"], 0)


@pytest.mark.parametrize("end", ["die", "cut"])
@pytest.mark.parametrize("marks", [True, False])
def test_a_day_later_nothing_is_a_copy_of_what_was_accepted_before(
    redelivery_broker: MemoryBroker,
    redelivery_clock: ManualClock,
    make_query: Callable[..., Query],
    all_marked: Callable[[], None],
    end: str,
    *,
    marks: bool,
) -> None:
    """A day later a marked equal message is no duplicate: it would have arrived soon."""
    with nullcontext() if marks else no_marks():
        query = make_query()
        send(redelivery_broker, "alive")
        query.drain()
        assert redelivery_broker.depth("orders") == 0
        query.die() if end == "die" else redelivery_broker.cut()
        query.step()
        redelivery_clock.advance(86_400)
        query.step()
        if marks:
            all_marked()
        send(redelivery_broker, "alive")
        query.drain()
    assert query.bodies() == ["alive", "alive"]
