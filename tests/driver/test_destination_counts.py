"""Counters by destination, which stay when consumers and connections have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.driver.twins import eventually

from redelivery import Report

if TYPE_CHECKING:
    import pytest
    from tests.driver.twins import Twin


def test_counts_of_closed_and_open_consumers_add_up(twin: Twin) -> None:
    """A closed and an open consumer of one destination are one entry; the sum of entries is the report."""
    connection = twin.connect()
    for destination in ("a", "a", "b"):
        consumer = twin.call(connection.consumer(destination))
        twin.broker.send(destination, "x")
        twin.receive(consumer).accept()
        if destination == "a":
            twin.call(consumer.close())
    counts = connection._driver.open_consumers.counts
    assert counts.reports() == {"queue://a": Report(accepted=2), "queue://b": Report(accepted=1)}
    assert connection.report() == Report(accepted=3)


def test_destinations_of_ended_consumers_are_bounded(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the limit the destinations of ended consumers are one entry: each request may have a reply queue."""
    monkeypatch.setattr("redelivery.driver.connection.open_consumers.MOST_DESTINATIONS", 2)
    connection = twin.connect()
    for number in range(5):
        consumer = twin.call(connection.consumer(f"q{number}"))
        twin.broker.send(f"q{number}", "x")
        twin.receive(consumer).accept()
        twin.call(consumer.close())
    counts = connection._driver.open_consumers.counts
    eventually(twin, lambda: counts.final)
    assert counts.reports() == {
        "queue://q0": Report(accepted=1), "queue://q1": Report(accepted=1), "other": Report(accepted=3),
    }  # fmt: skip
    assert connection.report() == Report(accepted=5)
