"""Limits of the dead letters that are kept during a run, on memory and in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import redelivery
from redelivery.dlq import dlq_connection
from redelivery.dlq.dlq_connection import DeadLetterConnection

if TYPE_CHECKING:
    import pytest

    from redelivery import DeadLetterQueue
    from redelivery.testing import MemoryBroker


def fill(bury: Any, count: int, body: str = "x") -> None:
    """Add so many dead letters that stay, and behind them one that matches."""
    for _ in range(count):
        bury(body, cause="KeyError", origin="queue://orders")
    bury(body, cause="ValueError", origin="queue://orders")


def test_a_narrow_window_is_widened(
    broker: MemoryBroker, tools: DeadLetterQueue, bury: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window full of dead letters that stay is released, and a wider one opened; each dead letter is counted once."""
    fill(bury, 20)
    windows: list[int] = []
    begin = DeadLetterConnection.taker

    def taker(reading: DeadLetterConnection, *args: Any, **given: Any) -> Any:
        windows.append(given["held"])
        return begin(reading, *args, **given)

    monkeypatch.setattr(DeadLetterConnection, "first", 2)
    monkeypatch.setattr(DeadLetterConnection, "taker", taker)
    done = tools.redrive(cause="ValueError")
    assert (done.redriven, done.skipped, done.incomplete) == (1, 20, None)
    assert sorted(set(windows)) == [2, 16, 128]
    assert broker.depth("DLQ") == 20


def test_so_many_bytes_and_no_more(
    broker: MemoryBroker, tools: DeadLetterQueue, bury: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the limit of bytes each run ends, releases what it keeps, and reports that more may be left."""
    fill(bury, 20, "x" * 1000)
    monkeypatch.setattr(dlq_connection, "HELD_BYTES", 5_000)
    for tool in (tools.redrive, tools.purge):
        done: Any = tool(cause="ValueError")
        assert done.skipped == 5
        assert "5 dead letters (0.0 MiB) that stay are kept" in str(done.incomplete)
        assert not done.complete
    monkeypatch.setattr(DeadLetterConnection, "first", 2)
    narrow = tools.redrive(cause="ValueError")
    assert (narrow.skipped, narrow.complete) == (5, False)
    assert broker.depth("DLQ") == 21
    with redelivery.dead_letters(broker.uri, take=True) as taking:
        assert len(list(taking)) == 5
        assert "5 dead letters" in str(taking.limit)
    assert broker.depth("DLQ") == 21


def test_what_goes_is_not_held(
    broker: MemoryBroker, tools: DeadLetterQueue, bury: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limits are for dead letters that stay: any number goes through a narrow window."""
    for number in range(300):
        bury(str(number), origin="queue://orders")
    monkeypatch.setattr(dlq_connection, "HELD_BYTES", 10)
    monkeypatch.setattr(DeadLetterConnection, "first", 2)
    assert tools.redrive().redriven == 300
    assert broker.depth("orders") == 300
