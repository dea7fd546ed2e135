"""Bodies that are decoded, and those that cannot be: the effect of each value of `onDecodeError`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.spark.query import fails_bad

from redelivery.errors import RedeliveryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.spark.query import Query

    from redelivery.testing import MemoryBroker


def test_what_cannot_be_decoded_is_poisoned_and_counted(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """decode=json dead-letters a body that is not JSON, with the place of the error and nothing of the body."""
    redelivery_broker.send("orders", '{"a": 1}')
    redelivery_broker.send("orders", '{"secret": ')
    query = make_query(decode="json")
    query.drain()
    assert [row["text"] for rows in query.output.values() for row in rows] == ['{"a": 1}']
    (dead,) = redelivery_broker.dead_letters()
    assert "JSONDecodeError: Expecting value at character 11" in dead.headers["redeliveryCause"]
    report = query.start().report()
    assert report is not None
    assert (report["deadLettered"], report["accepted"]) == (1, 1)


def test_permissive_shows_what_is_wrong(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """onDecodeError=permissive passes the row on, with the error in its column."""
    redelivery_broker.send("orders", b"\xff")
    query = make_query(decode="text", onDecodeError="permissive")
    query.drain()
    (row,) = query.output[0]
    assert (row["body"], row["text"]) == (b"\xff", None)
    assert "UnicodeDecodeError" in row["_error"]


def test_fail_ends_the_query(redelivery_broker: MemoryBroker, make_query: Callable[..., Query]) -> None:
    """onDecodeError=fail ends the query with the message's id each time, until the option is changed."""
    redelivery_broker.send("orders", b"\xff")
    query = make_query(decode="text", onDecodeError="fail")
    for _ in range(2):
        with pytest.raises(RedeliveryError, match="cannot be decoded as text"):
            query.step()
        query.die()
    query.options = make_query(decode="text").options
    query.drain()
    assert [dead.body for dead in redelivery_broker.dead_letters()] == [b"\xff"]


def test_decode_is_switched_on(redelivery_broker: MemoryBroker, make_query: Callable[..., Query]) -> None:
    """A row that waits is decoded at its redelivery if decode was switched on."""
    query = make_query()
    redelivery_broker.send("orders", "flaky")
    query.step(fails_bad)
    query.step(fails_bad)
    query.die()
    query.options = make_query(decode="text").options
    query.drain()
    assert [row["text"] for rows in query.output.values() for row in rows] == ["flaky"]
