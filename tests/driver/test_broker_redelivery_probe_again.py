"""A probe whose connection is lost, or that the broker refuses for now: it is made again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.driver.seats import POLICY
from tests.driver.twins import body_of

import redelivery_memory.adapter
from redelivery import AdapterError, BrokerUnavailable
from redelivery.driver.connection import broker_redelivery_probe

if TYPE_CHECKING:
    from tests.driver.twins import Twin


def probed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the broker's capabilities: each consumer with `scheduler=broker` makes a probe."""
    able = replace(redelivery_memory.CAPABILITIES, reschedule_proof="arrival", selectors=False)
    monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", able)


@pytest.mark.parametrize("after", [False, True])
def test_a_connection_lost_during_the_proof(
    twin: Twin, monkeypatch: pytest.MonkeyPatch, *, after: bool
) -> None:
    """A probe whose connection is lost, also before its begin, is repeated on the next; the consumer starts then."""
    probed(monkeypatch)
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


def test_a_start_that_may_wait_probes_again(
    twin: Twin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With `startupMaxReconnectAttempts=-1` a probe that is refused for now is made again, later and not at once."""
    probed(monkeypatch)
    refused: list[AdapterError] = []

    def refuse() -> AdapterError:
        refused.append(AdapterError("a node restarts", passes=True))
        return refused[-1]

    uri = f"failover:({twin.broker.uri})?startupMaxReconnectAttempts=-1&redelivery.scheduler=broker"
    connection = twin.connect(uri=uri, policies=POLICY)
    twin.broker.refuse_consumers(error=refuse)
    twin.clock.call_later(60, twin.broker.accept_consumers)
    consumer = twin.call(connection.consumer("orders"), over=90)
    twin.broker.send("orders", "x")
    assert body_of(twin.receive(consumer)) == "x"
    assert 10 <= len(refused) <= 14
    waits = [each for each in caplog.records if "the consumer waits for the broker" in each.message]
    assert [each.levelname for each in waits].count("WARNING") == 1


@pytest.mark.parametrize("passes", [True, False])
def test_a_probe_keeps_the_kind_of_its_refusal(
    twin: Twin, monkeypatch: pytest.MonkeyPatch, *, passes: bool
) -> None:
    """A start that may not wait ends with the refusal of its probe, which says whether it passes."""
    probed(monkeypatch)
    connection = twin.connect("?redelivery.scheduler=broker", policies=POLICY)
    twin.broker.refuse_consumers(error=lambda: AdapterError("refused", passes=passes))
    with pytest.raises(AdapterError, match=r"the probe with .* failed: refused") as caught:
        twin.call(connection.consumer("orders"), over=30)
    assert caught.value.passes is passes


def test_a_probe_whose_message_is_refused_for_now_ends(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe's message that is refused for now does not begin one probe after the other on the same connection."""
    probed(monkeypatch)
    probes: list[Any] = []
    carry_out = broker_redelivery_probe.DelayProbe.carry_out

    def refused(probe: Any) -> None:
        probes.append(probe)
        probe.fail(BrokerUnavailable("a node restarts"))
        carry_out(probe)

    monkeypatch.setattr(broker_redelivery_probe.DelayProbe, "carry_out", refused)
    connection = twin.connect("?redelivery.scheduler=broker", policies=POLICY)
    with pytest.raises(AdapterError, match="a node restarts") as caught:
        twin.call(connection.consumer("orders"), over=30)
    assert (caught.value.passes, len(probes)) == (True, 1)
