"""Wake-ups of consumers whose crash suspect waits for its exclusive run."""

from __future__ import annotations

from typing import Any, cast

from redelivery.driver.connection.connection_ledger import ConnectionLedger


class NoLedger:
    """Ledger that counts nothing."""

    error = None

    def open(self, failed: object) -> None:
        """Open without an error."""

    def close(self, failed: object) -> None:
        """Close; nothing is open."""


def test_the_last_attempt_that_ends_wakes_every_connection() -> None:
    """The end of the last attempt wakes each connection of the process; the waiting one gets its exclusive run."""
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
