"""Who is told when a suspect may run alone."""

from __future__ import annotations

from typing import Any, cast

from redelivery.driver.connection.connection_ledger import ConnectionLedger


class NoLedger:
    """Counts nothing."""

    def open(self, failed: object) -> None:
        """Nothing can fail."""

    def close(self, failed: object) -> None:
        """Nothing is open."""


def test_the_last_attempt_that_ends_wakes_who_waits_to_run_alone() -> None:
    """Each connection of the process is told once nothing runs any more, and the one that asked gets its turn."""
    ledger = cast("Any", NoLedger())
    one, other, told = ConnectionLedger(ledger), ConnectionLedger(ledger), list[str]()
    one.open(lambda: told.append("one"))
    other.open(lambda: told.append("other"))
    assert one.enter(0.0)
    assert other.enter(0.0)
    assert not other.turn("suspect", 0.0)
    one.leave()
    assert told == []
    other.leave()
    assert told == ["one", "other"]
    assert other.turn("suspect", 0.0)
    other.end_turn(0.0)
    one.close()
    other.close()
