"""Tests of `orders.py`: more than a week of back-off in milliseconds. Run them with pytest, in this folder."""

from collections.abc import Iterator
from datetime import timedelta

import orders  # type: ignore[import-not-found]  # the file beside this one
import pytest

import redelivery
from redelivery.testing import ManualClock, MemoryBroker


@pytest.fixture(autouse=True)
def orders_running(redelivery_broker: MemoryBroker, redelivery_clock: ManualClock) -> Iterator[None]:
    """Run the handler on an empty broker; its threads wait for the clock."""
    uri = redelivery_broker.uri
    with redelivery.connect(uri, policies=orders.policies, clock=redelivery_clock) as connection:
        connection.listen("orders.*", orders.handle)
        redelivery_broker.send("orders.vip", '{"item": "nut", "count": 1}')
        connection.start()
        yield


def test_goods_that_come_after_a_week(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An order for missing goods is redelivered for a week, and is handled when the goods arrive."""
    redelivery_clock.advance(timedelta(days=7))
    assert redelivery_broker.depth("orders.vip") == 1
    monkeypatch.setitem(orders.stock, "nut", 5)
    redelivery_clock.advance(timedelta(days=1))
    assert redelivery_broker.depth("orders.vip") == 0
    assert orders.stock["nut"] == 4


def test_goods_that_never_come(redelivery_broker: MemoryBroker, redelivery_clock: ManualClock) -> None:
    """An order is a dead letter with its cause after 12 redeliveries."""
    redelivery_clock.advance(timedelta(days=30))
    (letter,) = redelivery_broker.dead_letters()
    assert (letter.count, letter.cause) == (13, "LookupError: 1 nut wanted, 0 in stock")
    assert letter.original_destination == "queue://orders.vip"


def test_what_is_no_order(redelivery_broker: MemoryBroker, redelivery_clock: ManualClock) -> None:
    """A body that is not an order is dead-lettered at once."""
    redelivery_broker.send("orders.vip", "two bolts, please")
    redelivery_clock.advance(0)
    assert [letter.text for letter in redelivery_broker.dead_letters()] == ["two bolts, please"]
