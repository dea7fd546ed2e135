"""The wire of a consumer, and deliveries restored with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.driver.test_bulk_intake import bench, sent

from redelivery import ConfigurationError, TransportError, registry
from redelivery.driver.port import restorer

if TYPE_CHECKING:
    from tests.driver.test_bulk_intake import Bench

__all__ = ["bench"]


def test_the_wire_restores_deliveries(bench: Bench) -> None:
    """A consumer's wire restores deliveries that belong to no consumer."""
    sent(bench.broker, "body", headers={"n": 1})
    [delivery] = bench.take()
    wire = bench.consumer.wire()
    assert wire == {"scheme": "memory", "destination": "queue://orders"}
    restored = restorer(wire)(*delivery.stored(), 0.0)
    assert (restored.key, restored.headers, restored.body) == (delivery.key, {"n": 1}, b"body")
    bench.broker.cut()
    assert bench.consumer.wire() == wire
    bench.consumer.accept_bulk([restored])
    assert bench.unsettled() == [b"body"]


def test_wires_that_cannot_be_used_say_why(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wire without a scheme, or of an unknown scheme, an adapter without restoring, and no connection are refused."""
    with pytest.raises(ConfigurationError, match="without 'scheme'"):
        restorer({})
    with pytest.raises(ConfigurationError, match="no adapter serves nothing://"):
        restorer({"scheme": "nothing"})
    adapter: Any = object
    monkeypatch.setitem(registry._registered, "deaf", adapter)
    with pytest.raises(ConfigurationError, match="deaf:// cannot restore"):
        restorer({"scheme": "deaf"})
    plain = bench.port.subscribe(bench.port.plan("others", {}))
    assert plain.wire()["destination"] == "queue://others"
    bench.port.close()
    with pytest.raises(TransportError, match="not connected"):
        plain.wire()
