"""Settlement of deliveries by the links of a connection."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from redelivery.core.commands import Subscribe
from redelivery.errors import AdapterError
from redelivery_amqp.delivery import AmqpDelivery
from redelivery_amqp.io_thread import ACCEPTED, RELEASED
from redelivery_amqp.link_registry import LinkRegistry
from redelivery_amqp.message_encoding import map_of
from redelivery_amqp.profiles import AmqpArtemis
from redelivery_amqp.receiver import ReceiverLink

COMMAND = Subscribe(7, "queue://orders", 10)


class Wire:
    """An engine that records settlements by the names that stand for proton's handles."""

    connection = None
    masked = str

    def __init__(self) -> None:
        self.settled: dict[str, int] = {}

    def settle(self, handles: list[str], outcome: int) -> None:
        self.settled.update(dict.fromkeys(handles, outcome))


@pytest.fixture
def wire() -> Wire:
    """Return an engine without settlements."""
    return Wire()


@pytest.fixture
def links(wire: Wire) -> LinkRegistry:
    """Return the links of connection 2."""
    nothing: Any = lambda *_: None  # noqa: E731 - four callbacks that no test needs
    return LinkRegistry(cast("Any", wire), AmqpArtemis(), "c", 2, nothing, nothing, nothing, nothing)


def arrived(receiver: ReceiverLink, *handles: str) -> list[AmqpDelivery]:
    """Return deliveries that arrived on a link, in this order."""
    deliveries = [
        AmqpDelivery(receiver, b"\0Su\xa0\x01x", cast("Any", handle), number, 0.0)
        for number, handle in enumerate(handles)
    ]
    receiver.unsettled.update(deliveries)
    return deliveries


def test_deliveries_of_another_connection_are_not_settled(wire: Wire, links: LinkRegistry) -> None:
    """Only deliveries of this connection, on links that have not ended, are settled."""
    old = ReceiverLink(COMMAND, 1, AmqpArtemis(), lambda _: None)
    own = links.add(COMMAND, lambda _: None)
    ended = links.add(Subscribe(8, "queue://bills", 10), lambda _: None)
    ended.ended = True
    deliveries = [*arrived(old, "old"), *arrived(own, "own"), *arrived(ended, "ended")]
    links.settlements.settle(deliveries, ACCEPTED)
    links.settlements.settle(deliveries, RELEASED)
    assert wire.settled == {"own": ACCEPTED}
    assert own.unsettled == set()


def test_what_was_read_of_a_message_goes_when_it_is_settled(links: LinkRegistry) -> None:
    """The decoded properties of a message are dropped when it is settled: they need more memory than its bytes."""
    receiver = links.add(COMMAND, lambda _: None)
    first, second = arrived(receiver, "first", "second")
    nested = map_of([(b"\xa1\x01k", b"\xc0\x02\x01\x40")])
    receiver.large.read(second, nested, 0x74, 0, keeps=True)
    links.settlements.settle([first], ACCEPTED)
    assert receiver.large.of(second) == {0x74: {"k": [None]}}
    links.settlements.settle([second], ACCEPTED)
    assert receiver.large.of(second) is None


def test_the_end_of_a_consumer_releases_what_no_handler_has(wire: Wire, links: LinkRegistry) -> None:
    """The end of a consumer releases the deliveries that no handler has; a running one is left unsettled."""
    receiver = links.add(COMMAND, lambda _: None)
    _, running, _ = arrived(receiver, "first", "running", "last")
    running.state = "running"
    links.detach(COMMAND.consumer)
    assert wire.settled == {"first": RELEASED, "last": RELEASED}
    assert receiver.unsettled == {running}


def test_what_the_broker_took_back_is_accepted(wire: Wire, links: LinkRegistry) -> None:
    """Messages that the broker took back are accepted: after a release RabbitMQ sends the consumer nothing more."""
    receiver = links.add(COMMAND, lambda _: None)
    first, _, last = arrived(receiver, "first", "held", "last")
    receiver.released = cast("Any", ["last", "first"])
    assert links.settlements.released(receiver) == [first, last]
    assert wire.settled == {"first": ACCEPTED, "last": ACCEPTED}
    assert receiver.released == []


@pytest.mark.parametrize("attached", [None, False, True])
def test_a_browse_that_the_broker_ends_is_forgotten(links: LinkRegistry, *, attached: bool | None) -> None:
    """A browse that is refused, before its attach (None) or by it, or ended by the broker, leaves nothing behind."""
    heard: list[Any] = []
    receiver = links.add(Subscribe(9, "queue://orders", 10, browse=True), heard.append)
    if attached is None:
        links._declared(receiver, AdapterError("no such queue"))
    else:
        receiver.attached = attached
        end = SimpleNamespace(close=lambda: None)
        receiver._receiver = receiver.session = end
        links._end(receiver, cast("Any", SimpleNamespace(name="amqp:not-found", description="no such queue")))
    assert [str(error).rpartition(": ")[2] for error in heard] == ["no such queue"]
    links.browse_on()
    assert (links.knows(9), links._browses._receivers) == (False, [])
