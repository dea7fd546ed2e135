"""Doubt about other readers of the same start: only their ended connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.spark.test_rows_in_doubt import WINDOW, copies, log

from redelivery.core.message_history import RETURN
from redelivery_spark.wal.lane import Lane

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.spark.test_rows_in_doubt import Log

    from redelivery.core.delivery import Delivery

__all__ = ["log"]


def siblings_of(log: Log) -> Sequence[Delivery]:
    """Begin a connection of start S; return messages of two connections of its other reader, and of an older one."""
    came = [
        log.append(connection, body, lane=log.lanes[1])[0]
        for connection, body in (("R.2.1-1", "older"), ("S.2.1-1", "first"), ("S.2.2-1", "second"))
    ]
    log.again(siblings="S.")
    log.doubt.begin("S.1.1-1", WINDOW)
    return came


def test_rows_of_a_sibling_that_lives_are_not_in_doubt(log: Log) -> None:
    """Rows of a sibling that lives are not in doubt; those of earlier starts are: their connections have ended."""
    came = siblings_of(log)
    assert copies(log, came) == [b"older"]


def test_only_what_a_sibling_is_said_to_have_lost_is_in_doubt(log: Log) -> None:
    """Only the connection of a sibling that is reported as ended is in doubt."""
    came = siblings_of(log)
    log.doubt.ended(2, "S.2.1-1")
    assert copies(log, came) == [b"older", b"first"]
    log.doubt.ended(2, "S.2.2-1")
    assert copies(log, came) == [b"second"]


def test_what_a_sibling_has_lost_stays_in_doubt_over_another_connection(log: Log) -> None:
    """Rows of a sibling's ended connection stay in doubt over another connection."""
    came = siblings_of(log)
    log.doubt.ended(2, "S.2.1-1")
    log.doubt.look(0, idle=False)
    log.doubt.begin("S.1.1-2", WINDOW)
    assert copies(log, came) == [b"older", b"first"]


def test_what_a_sibling_has_published_since_is_found(log: Log) -> None:
    """Segments of a sibling are read when its connection ends, and not before."""
    siblings_of(log)
    other = Lane(log.store, 2)
    other.load()
    came = log.append("S.2.2-1", "third", lane=other)
    log.doubt.ended(2, "S.2.2-1")
    assert copies(log, came) == [b"third"]


def test_rows_of_ones_own_earlier_process_are_in_doubt(log: Log) -> None:
    """Rows of the reader's own earlier process are in doubt: its connection ended with it."""
    came = log.append("S.1.1-1", "mine")
    log.again(siblings="S.")
    log.doubt.begin("S.1.2-1", WINDOW)
    assert copies(log, came) == [b"mine"]


def test_each_connection_is_in_doubt_for_its_own_time(log: Log) -> None:
    """Each connection is in doubt for its own time: duplicates of a later end arrive later."""
    came = siblings_of(log)
    log.clock.advance(RETURN)
    log.doubt.ended(2, "S.2.1-1")
    log.doubt.look(0, idle=True)
    assert copies(log, came) == [b"first"]
