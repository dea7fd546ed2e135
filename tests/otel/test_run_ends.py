"""What a run leaves behind when it has ended: nothing that is current, and what its dead letter is linked to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from opentelemetry import trace
from tests.otel.recorded import linked, span_id

from redelivery.core.commands import Subscribe
from redelivery.events import DeadLettered, Finished
from redelivery.events.of_handling import ResultDetails

if TYPE_CHECKING:
    from tests.driver.twins import Twin
    from tests.otel.recorded import Recorded

    from redelivery import Message

ORDERS = Subscribe(1, "queue://orders", 1)


@pytest.fixture
def message(twin: Twin) -> Message:
    """Return a message that brings no trace."""
    consumer = twin.call(twin.connect().consumer("orders"))
    twin.broker.send("orders", "a")
    received: Message = twin.receive(consumer)
    return received


def test_nothing_is_current_after_a_run(recorded: Recorded, message: Message) -> None:
    """The thread goes on to the next message, or to something else of the application."""
    telemetry = recorded.telemetry()
    token = telemetry.started(message)
    assert trace.get_current_span().get_span_context().is_valid
    telemetry.finished(token, Finished(0.0, ORDERS, message._delivery, message, 0.1))
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_dead_letter_that_is_confirmed_before_its_rollback_is_shown(
    recorded: Recorded, message: Message
) -> None:
    """It is linked to the run of its session all the same."""
    telemetry = recorded.telemetry()
    token = telemetry.started(message)
    undecided = ResultDetails(None, "succeeded")
    telemetry.finished(token, Finished(0.0, ORDERS, message._delivery, message, 0.1, undecided))
    telemetry.event(DeadLettered(0.0, ORDERS, message._delivery, "rolled back", None, 1, False))
    [process], [settle] = recorded.spans("process"), recorded.spans("settle")
    assert linked(settle) == [span_id(process)]
