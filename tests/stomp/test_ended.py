"""Late messages and late settlements of a consumer that has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.stomp.test_refused import Wire

from redelivery.core.commands import Forward, Hold, PoisonAck, Subscribe, Unsubscribe
from redelivery.core.delivery import Cause
from redelivery.core.events import Arrived
from redelivery.core.outgoing import Outgoing
from redelivery_stomp.delivery import StompDelivery
from redelivery_stomp.profiles import StompArtemis

if TYPE_CHECKING:
    from redelivery.core.commands import AdapterCommand


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    """Return an adapter whose frames can be read."""
    return Wire(monkeypatch)


def arrive(wire: Wire, *frames: tuple[str, str]) -> list[tuple[int, bytes]]:
    """Make messages arrive on these subscriptions; return (consumer, body) of those that are reported."""
    wire.events.clear()
    wire.link._messages(
        [
            (f"MESSAGE\nsubscription:TOKEN-{to}\nmessage-id:{body}\nack:{body}".encode(), body.encode())
            for to, body in frames
        ]
    )
    arrived = [event for event in wire.events if isinstance(event, Arrived)]
    return [(event.consumer, one.body) for event in arrived for one in event.deliveries]


def test_a_late_message_is_not_the_next_consumers(wire: Wire) -> None:
    """Late messages of an ended consumer are never handed to another one."""
    wire.adapter.execute((Subscribe(1, "queue://secrets", window=10),))
    assert arrive(wire, ("1", "a")) == [(1, b"a")]
    wire.adapter.execute((Unsubscribe(1),))
    wire.adapter.execute((Subscribe(2, "queue://public", window=10),))
    assert arrive(wire, ("1", "late"), ("2", "b"), ("1", "later")) == [(2, b"b")]
    wire.adapter.execute((Unsubscribe(2), Subscribe(3, "queue://public", window=10)))
    assert arrive(wire, ("2", "late"), ("3", "c")) == [(3, b"c")]


@pytest.mark.parametrize("late", ["hold", "poison", "forward"])
def test_nothing_is_written_for_an_ended_consumer(wire: Wire, late: str) -> None:
    """An ended consumer has no settlement, no copy and no further subscription: its messages are released."""
    wire.link.profile = StompArtemis()
    wire.adapter.execute((Subscribe(1, "queue://orders", window=10),))
    head = b"MESSAGE\nsubscription:TOKEN-1\nmessage-id:5,7\ndestination:orders"
    one = StompDelivery(wire.link.subscriptions["1"], head, b"x" * 20_000)
    commands: dict[str, AdapterCommand] = {
        "hold": Hold(one, 1.0, 1.0, 1, Cause("bad")),
        "poison": PoisonAck(one, Cause("bad"), 1),
        "forward": Forward(one, Outgoing("queue://graves", b"x"), Cause("bad"), 1),
    }
    wire.adapter.execute((Unsubscribe(1),))
    wire.written.clear()
    wire.adapter.execute((commands[late],))
    assert (wire.written, wire.link.subscriptions) == ([], {})
