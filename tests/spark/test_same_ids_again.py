"""Messages whose producer uses ids again, and whose broker marks them as sent before: none is another's copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from redelivery_memory.messages import MemoryDelivery
from redelivery_spark.wal.records import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.spark.query import Query, Row

    from redelivery.testing import ManualClock, MemoryBroker

pytestmark = pytest.mark.usefixtures("own_ids")


@pytest.mark.parametrize("ack", ["wal", "commit"])
def test_a_link_that_breaks_costs_no_message_whose_id_was_used_before(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], ack: str
) -> None:
    """Another body is another message, though one with its id was accepted over that link."""
    query = make_query(ack=ack)
    redelivery_broker.send("orders", "reading 1", headers={"id": "sensor"})
    query.drain()
    assert redelivery_broker.depth("orders") == 0
    redelivery_broker.send("orders", "reading 2", headers={"id": "sensor"})
    assert query.source is not None
    assert query.source._intake.buffered == 1, "sent ahead, and not taken yet"
    redelivery_broker.cut()
    query.drain()
    assert query.bodies() == ["reading 1", "reading 2"]


@pytest.mark.parametrize("ack", ["wal", "commit"])
def test_a_link_that_breaks_costs_no_message_whose_id_is_ahead(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], ack: str
) -> None:
    """Of three with one id some are ahead of a batch: all of them come again, and are handled."""
    query = make_query(maxMessagesPerTrigger=2, ack=ack)
    query.start()
    for body in ("0", "reading 1", "reading 2", "reading 3"):
        redelivery_broker.send("orders", body, headers={"id": "sensor" if body > "1" else body})
    query.step()
    redelivery_broker.cut()
    query.drain()
    left = redelivery_broker.depth("orders")
    assert (sorted(query.bodies()), left) == (["0", "reading 1", "reading 2", "reading 3"], 0)


@pytest.mark.parametrize("ack", ["wal", "commit"])
def test_a_day_after_a_restart_nothing_is_a_copy_of_what_was_accepted_before_it(
    redelivery_broker: MemoryBroker,
    redelivery_clock: ManualClock,
    make_query: Callable[..., Query],
    monkeypatch: pytest.MonkeyPatch,
    ack: str,
) -> None:
    """It would have come again soon, if at all."""
    query = make_query(ack=ack)
    redelivery_broker.send("orders", "alive", headers={"id": "alive"})
    query.drain()
    assert redelivery_broker.depth("orders") == 0
    query.die()
    query.step()
    redelivery_clock.advance(86_400)
    query.step()
    monkeypatch.setattr(MemoryDelivery, "redelivered", property(lambda _: True))  # was sent to others
    redelivery_broker.send("orders", "alive", headers={"id": "alive"})
    query.drain()
    assert query.bodies() == ["alive", "alive"]


@pytest.mark.parametrize("ack", ["wal", "commit"])
def test_a_day_after_a_cut_nothing_is_a_copy_of_what_was_accepted_before_it(
    redelivery_broker: MemoryBroker,
    redelivery_clock: ManualClock,
    make_query: Callable[..., Query],
    monkeypatch: pytest.MonkeyPatch,
    ack: str,
) -> None:
    """It would have come again soon, if at all."""
    query = make_query(ack=ack)
    redelivery_broker.send("orders", "alive", headers={"id": "sensor"})
    query.drain()
    assert redelivery_broker.depth("orders") == 0
    redelivery_broker.cut()
    query.step()
    redelivery_clock.advance(86_400)
    query.step()
    monkeypatch.setattr(MemoryDelivery, "redelivered", property(lambda _: True))  # was sent to others
    redelivery_broker.send("orders", "alive", headers={"id": "sensor"})
    query.drain()
    assert query.bodies() == ["alive", "alive"]


def test_a_discard_is_not_another_messages(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tasks have messages of one id: one handler discards its own, the other wants its own redelivered."""
    query = make_query(consumers="executors", maxMessagesPerTrigger=4, partitions=2)

    def processed(name: str, rows: list[Row], handler: object) -> list[Row]:
        del handler
        refused: dict[str, Refusal] = {}
        passed: list[Row] = []
        for row in rows:
            if row["body"] == b"unwanted":
                refused[row["message_id"]] = Refusal(row["delivery_count"], "discard", "not ours")
            elif row["body"] == b"order" and row["delivery_count"] == 1:
                refused[row["message_id"]] = Refusal(row["delivery_count"], "fail", "database is down")
            else:
                passed.append(row)
        query.records.judge(name, refused)
        return passed

    monkeypatch.setattr(query, "_processed", processed)
    query.start()
    for body in ("first", "second", "third", "unwanted", "order"):
        redelivery_broker.send("orders", body, headers={"id": "X" if body in ("unwanted", "order") else body})
    query.drain()
    assert "order" in query.bodies()
