"""End of a drain: at messages that it cannot keep, and with a producer that does not stop."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.tables import bodies, fill, read

from redelivery.dlq.dlq_connection import DeadLetterConsumer
from redelivery.errors import AdapterError
from redelivery_memory.messages import MemoryDelivery
from redelivery_spark.batch import drain as module

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from redelivery.testing import ManualClock, MemoryBroker


@pytest.fixture
def given(tmp_path: Path) -> dict[str, str]:
    """Options of a drain."""
    return {"mode": "drain", "destination": "orders", "walDir": str(tmp_path / "wal")}


def test_what_is_behind_those_that_are_not_whole(
    redelivery_broker: MemoryBroker, given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drain that keeps as many messages as it may cannot see behind them, and does not count that as the end."""
    monkeypatch.setattr(module, "ROWS", 4)
    monkeypatch.setattr(module, "LEFT", 5)
    for number in range(12):
        redelivery_broker.send("orders", f"part-{number}".encode(), body_kind="partial")
    fill(redelivery_broker, 3)
    with pytest.raises(AdapterError, match="9 messages do not arrive whole"):
        read(redelivery_broker, **given, incomplete="accept")
    assert redelivery_broker.depth("orders") == 15


@pytest.fixture
def goes_on(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> Callable[[float], None]:
    """Make a producer send a message whenever the drain has waited for so many seconds."""

    def begin(pause: float) -> None:
        take, numbers = DeadLetterConsumer.take, itertools.count()

        def taking(self: DeadLetterConsumer, timeout: float) -> Any:
            delivery = take(self, 0.0)
            if delivery is None and timeout >= pause:
                redelivery_clock.advance(pause)
                redelivery_broker.send("orders", f"later-{next(numbers)}")
                delivery = take(self, 0.0)
            return delivery

        monkeypatch.setattr(DeadLetterConsumer, "take", taking)

    return begin


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("pause", [1.0, 0.05])
def test_a_producer_that_goes_on(
    redelivery_broker: MemoryBroker,
    redelivery_clock: ManualClock,
    given: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    goes_on: Callable[[float], None],
    pause: float,
    *,
    timed: bool,
) -> None:
    """A drain ends a minute after its beginning; without send times only if the producer is slow."""
    monkeypatch.setattr(module, "ROWS", 100)
    if not timed:
        monkeypatch.setattr(MemoryDelivery, "timestamp", property(lambda _: None))
    fill(redelivery_broker, 300)
    began = redelivery_clock.monotonic()
    goes_on(pause)
    got = bodies(read(redelivery_broker, **given, maxMessages=1900))
    ends = timed or pause == 1.0
    assert (len(got) < 1900) == ends
    assert not ends or 60 < redelivery_clock.monotonic() - began < 70
    assert len(got) > 300


def test_a_slow_broker_is_no_slow_producer(
    redelivery_broker: MemoryBroker,
    given: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    redelivery_clock: ManualClock,
) -> None:
    """Messages that arrive one by one, without a pause, were on the queue."""
    monkeypatch.setattr(module, "COMPANY", 0.0)
    sent = fill(redelivery_broker, 250)
    take = DeadLetterConsumer.take

    def taking(self: DeadLetterConsumer, timeout: float) -> Any:
        if timeout == 0.0:
            return None  # no second message
        redelivery_clock.advance(0.4)
        return take(self, timeout)

    monkeypatch.setattr(DeadLetterConsumer, "take", taking)
    assert bodies(read(redelivery_broker, **given)) == sent
