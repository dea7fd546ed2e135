"""The end of a redrive: dead letters that stay are counted, and copies are confirmed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from redelivery.dlq import dlq_connection

if TYPE_CHECKING:
    from redelivery import DeadLetterQueue
    from redelivery.testing import MemoryBroker

ORIGIN = {"redeliveryOriginalDestination": "queue://orders"}


def test_a_letter_with_half_a_body_stays(broker: MemoryBroker, tools: DeadLetterQueue) -> None:
    """A dead letter whose body did not arrive whole is counted as partial and stays; no copy is sent."""
    half = broker.send("DLQ", "half", headers=ORIGIN, body_kind="partial")
    broker.send("DLQ", "whole", headers=ORIGIN)
    done = tools.redrive()
    assert (done.redriven, done.partial, done.complete) == (1, 1, False)
    assert [held.text for held in broker.messages("orders")] == ["whole"]
    assert [held.message_id for held in broker.dead_letters()] == [half]


def test_what_brokers_tell_of_a_death_does_not_go_along(
    broker: MemoryBroker, tools: DeadLetterQueue, bury: Any
) -> None:
    """A redriven message has its own properties, and none of the brokers' about its death."""
    death = {
        "_AMQ_ORIG_ADDRESS": "orders",
        "x-first-death-queue": "orders",
        "x-last-death-reason": "rejected",
        "x-opt-ORIG-QUEUE": "orders",
        "x-death": "1",
        "dlqDeliveryFailureCause": "no",
    }
    bury(origin="queue://orders", nr=1, **death)
    tools.redrive()
    (back,) = broker.messages("orders")
    assert {name for name in back.headers if not name.startswith("redelivery")} == {"nr"}


def test_a_refused_letter_is_tried_three_times(
    broker: MemoryBroker, tools: DeadLetterQueue, bury: Any
) -> None:
    """The broker refuses one copy three times; the redrive sends no fourth, and raises."""
    refused = bury(origin="queue://orders")
    broker.fail_forward(10)
    with pytest.raises(redelivery.AdapterError, match="refused the copy"):
        tools.redrive()
    assert [step.action for step in broker.history(refused)].count("refused") == 3
    assert (broker.depth("orders"), broker.depth("DLQ")) == (0, 1)


def test_the_last_copies_are_confirmed_before_the_report(
    broker: MemoryBroker, tools: DeadLetterQueue, bury: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A redrive that can keep no more dead letters reports its last copies after the broker has confirmed them."""
    monkeypatch.setattr(dlq_connection, "HELD_BYTES", 10)
    for _ in range(3):
        bury("x", origin="queue://orders", cause="ValueError")
    bury("more than ten bytes", cause="KeyError")
    broker.stall_confirmations()
    broker._server.clock.call_later(0.5, broker.resume_confirmations)
    steps: list[int] = []
    done = tools.redrive(cause="ValueError", progress=steps.append)
    assert (done.redriven, steps[-1]) == (3, 3)
    assert "1 dead letters" in str(done.incomplete)
