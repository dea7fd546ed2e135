"""End of a handler run: nothing stays current, and its dead letter is linked to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from opentelemetry import trace
from tests.otel.recorded import linked, span_id

from redelivery.core.commands import Subscribe
from redelivery.events import DeadLettered, Finished
from redelivery.events.event import ResultDetails

if TYPE_CHECKING:
    from tests.driver.twins import Twin
    from tests.otel.recorded import Recorded

    from redelivery import Message

ORDERS = Subscribe(1, "queue://orders", 1)


@pytest.fixture
def message(twin: Twin) -> Message:
    """Return a message without a trace."""
    consumer = twin.call(twin.connect().consumer("orders"))
    twin.broker.send("orders", "a")
    received: Message = twin.receive(consumer)
    return received


def test_nothing_is_current_after_a_run(recorded: Recorded, message: Message) -> None:
    """Nothing is current on a thread after a run.

    The thread goes on to the next message, or to other work of the application.
    """
    telemetry = recorded.telemetry()
    token = telemetry.started(message)
    assert trace.get_current_span().get_span_context().is_valid
    telemetry.finished(token, Finished(0.0, ORDERS, message._delivery, message, 0.1))
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_dead_letter_that_is_confirmed_before_its_rollback_is_shown(
    recorded: Recorded, message: Message
) -> None:
    """A dead letter that is confirmed before observers get its rollback is linked to its session's run."""
    telemetry = recorded.telemetry()
    token = telemetry.started(message)
    undecided = ResultDetails(None, "succeeded")
    telemetry.finished(token, Finished(0.0, ORDERS, message._delivery, message, 0.1, undecided))
    telemetry.event(DeadLettered(0.0, ORDERS, message._delivery, "rolled back", None, 1, False))
    [process], [settle] = recorded.spans("process"), recorded.spans("settle")
    assert linked(settle) == [span_id(process)]
