"""A probe whose connection is lost: it waits for the next connection."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.driver.seats import POLICY

import redelivery_memory.adapter
from redelivery.driver.connection import broker_redelivery_probe

if TYPE_CHECKING:
    from tests.driver.twins import Twin


@pytest.mark.parametrize("after", [False, True])
def test_a_connection_lost_during_the_proof(
    twin: Twin, monkeypatch: pytest.MonkeyPatch, *, after: bool
) -> None:
    """A probe whose connection is lost, also before its begin, is repeated on the next; the consumer starts then."""
    able = replace(redelivery_memory.CAPABILITIES, reschedule_proof="arrival", selectors=False)
    monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", able)
    probes: list[Any] = []
    carry_out = broker_redelivery_probe.DelayProbe.carry_out

    def cut_once(proof: Any) -> None:
        probes.append(proof)
        if len(probes) == 1:
            if after:
                begun = proof.begun
                proof.begun = lambda able: (begun(able), twin.broker.cut())
            else:
                twin.broker.cut()
        carry_out(proof)

    monkeypatch.setattr(broker_redelivery_probe.DelayProbe, "carry_out", cut_once)
    connection = twin.connect("?redelivery.scheduler=broker", policies=POLICY)
    consumer = twin.call(connection.consumer("orders"), over=30)
    twin.broker.send("orders", "x")
    assert twin.receive(consumer) is not None
    assert len(probes) == 2
