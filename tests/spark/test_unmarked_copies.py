"""Brokers that do not mark what they send again: a message whose acceptance was lost is handled once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.spark.conftest import no_marks

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.spark.query import Query

    from redelivery.testing import MemoryBroker


@pytest.mark.parametrize("ack", ["wal", "commit"])
def test_a_lost_acceptance_on_a_broker_without_marks(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], ack: str
) -> None:
    """The query dies between the acceptance and the broker's reading it; the next one takes no second row for it."""
    with no_marks():
        redelivery_broker.send("orders", "good")
        redelivery_broker.drop_accepts(1)
        query = make_query(ack=ack)
        query.step()
        query.step()
        query.die()
        assert redelivery_broker.depth("orders") == 1
        query.drain()
    assert query.bodies() == ["good"]
    assert redelivery_broker.depth("orders") == 0
