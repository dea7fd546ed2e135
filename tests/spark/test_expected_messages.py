"""Messages that are still to be accepted when their rows are done with: for how long, and how many."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from redelivery.core.message_history import RETURN
from redelivery.testing import ManualClock
from redelivery_spark.stream import expected_messages as expected
from redelivery_spark.stream.expected_messages import PATIENCE, ExpectedMessages
from redelivery_spark.stream.rows import LoggedDelivery
from redelivery_spark.wal.wal_state import State

if TYPE_CHECKING:
    import pytest

    from redelivery_spark.stream.unacked_messages import UnackedMessages


class Absent:
    """UnackedMessages of which none is here."""

    def __init__(self) -> None:
        self.ended: set[tuple[int, int]] = set()

    def had(self, place: tuple[int, int]) -> bool:
        return place in self.ended


def row(at: int) -> LoggedDelivery:
    """Return a row whose message the broker has."""
    told = {"body": b"x", "_kept": True, "destination": "d", "timestamp": None, "_identity": None}
    return LoggedDelivery({**told, "message_id": str(at)}, (1, at))


def made() -> tuple[ExpectedMessages, Absent, ManualClock]:
    """Return what is expected of a log that is new."""
    clock, absent = ManualClock(), Absent()
    return ExpectedMessages(State("log"), cast("UnackedMessages", absent), clock), absent, clock


def test_a_row_that_waits_no_more_leaves_its_message_to_be_expected() -> None:
    """Unless that has been dead-lettered; while a row waits its own record tells."""
    found, absent, _ = made()
    found.waiting([row(0), row(1), row(2)])
    absent.ended.add((1, 1))
    found.waiting([row(2)])
    assert [place for place, _, _ in found] == [(1, 0)]
    assert absent.ended == set()


def test_what_has_come_is_known_for_a_while_more() -> None:
    """Its acknowledgement may be lost with the connection."""
    found, _, clock = made()
    found.waiting([row(0)])
    found.waiting([])
    found.came((1, 0))
    clock.advance(RETURN / 2)
    found.waiting([])
    assert (1, 0) in found
    clock.advance(RETURN)
    found.waiting([])
    assert (1, 0) not in found


def test_what_does_not_come_is_not_expected_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another consumer may have it: a day is the end of it, and of very many the oldest are not expected."""
    monkeypatch.setattr(expected, "MOST", 2)
    found, _, clock = made()
    found.waiting([row(0), row(1), row(2)])
    found.waiting([])
    assert [place for place, _, _ in found] == [(1, 1), (1, 2)]
    clock.advance(PATIENCE + 1)
    found.waiting([])
    assert list(found) == []
