"""Links, sessions and deliveries that proton has freed: no later call may use them, or the process crashes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from cproton_ffi import ffi, lib
from tests.amqp.peer import ScriptedPeer, proton
from tests.amqp.test_declarations import Asked
from tests.eventually import eventually

from redelivery.core.commands import Commit, Credit, PoisonAck, Unsubscribe
from redelivery.core.delivery import Cause
from redelivery.core.events import Arrived, Confirmed
from redelivery_amqp.io_thread import ProtonEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.amqp.peer import Conversation

    from redelivery_amqp.delivery import AmqpDelivery

CONSUMER = 1


class Freed:
    """Freed links and sessions, and each use of one.

    It keeps proton's objects, so that their memory is not used again and a wrong use does not crash the tests.
    """

    def __init__(self) -> None:
        self.endpoints: list[Any] = []
        self.misuses: list[str] = []

    def link(self, pointer: Any) -> bool:
        """Return True if a link was freed, by itself or with its session."""
        freed = [endpoint._impl for endpoint in self.endpoints]
        return pointer == ffi.NULL or pointer in freed or lib.pn_link_session(pointer) in freed

    def free(self, endpoint: Any) -> None:
        """Note that an endpoint is freed."""
        if endpoint in self.endpoints or (isinstance(endpoint, proton.Link) and self.link(endpoint._impl)):
            self.misuses.append(f"{endpoint} is freed twice")
        self.endpoints.append(endpoint)


@pytest.fixture
def freed(monkeypatch: pytest.MonkeyPatch) -> Freed:
    """Record the links and sessions that are freed from now on; a second free is left out."""
    found = Freed()

    def checked(name: str, link_of: Callable[[Any], Any]) -> None:
        before = getattr(ProtonEngine, name)

        def call(self: ProtonEngine, pointer: Any, *given: Any, **named: Any) -> Any:
            if found.link(link_of(pointer)):
                found.misuses.append(f"{name}({pointer})")
                return []
            return before(self, pointer, *given, **named)

        monkeypatch.setattr(ProtonEngine, name, call)

    for name in ("take", "begun", "flow", "withdraw"):
        checked(name, lambda link: link)
    for name in ("forget", "modify", "within"):
        checked(name, lib.pn_delivery_link)
    before = proton.Session.free, proton.Link.free

    def free_session(session: Any) -> None:
        found.free(session)
        before[0](session)

    def free_link(link: Any) -> None:
        twice = len(found.misuses)
        found.free(link)
        if len(found.misuses) == twice:
            before[1](link)

    monkeypatch.setattr(proton.Session, "free", free_session)
    monkeypatch.setattr(proton.Link, "free", free_link)
    return found


def send_one(conversation: Conversation, link: Any) -> None:
    """Send a message to a consumer of `orders`."""
    if link.source.address == "orders" and "-barrier-" not in link.name:
        conversation.send(link, proton.Message(id="1", body=b"x").encode())


@pytest.fixture
def peer() -> Iterator[ScriptedPeer]:
    """Return a broker that sends each consumer one message, and answers the ends of sessions."""
    with ScriptedPeer(send_one) as made:
        made.ends_at_once = True
        yield made


@pytest.fixture
def asked(peer: ScriptedPeer) -> Iterator[Asked]:
    """Return an adapter that is connected to it."""
    made = Asked(peer)
    yield made
    made.adapter.close(10.0)


def delivery_of(asked: Asked, *, running: bool = True) -> AmqpDelivery:
    """Subscribe, and return the message that arrives; `running`: a handler has it."""
    assert asked.subscribed("queue://orders", CONSUMER).error is None
    asked.adapter.execute((Credit(CONSUMER, 10),))
    asked.arrived(1)
    delivery: Any = next(each for each in asked.events if isinstance(each, Arrived)).deliveries[0]
    if running:
        delivery.state = "running"
    found: AmqpDelivery = delivery
    return found


def test_a_message_that_arrives_with_the_end_of_its_link_is_dropped(
    peer: ScriptedPeer, asked: Asked, freed: Freed
) -> None:
    """A message and the end of its link that arrive in one read are taken from a link that is not freed yet."""

    def end(conversation: Conversation, link: Any) -> None:
        with conversation.together():
            if link.is_sender:
                conversation.send(link, proton.Message(id="2", body=b"late").encode())
            link.close()
            conversation.flush()

    peer.link_ends = end
    delivery_of(asked)
    asked.adapter.execute((Unsubscribe(CONSUMER),))
    eventually(lambda: freed.endpoints)
    assert asked.sent("queue://other") is None
    assert freed.misuses == []
    assert sum(isinstance(each, Arrived) for each in asked.events) == 1


def test_a_link_is_freed_once_with_its_session(peer: ScriptedPeer, asked: Asked, freed: Freed) -> None:
    """The link of a rejection that was not confirmed before its consumer ended is freed with the session, and once."""
    peer.attaches = lambda link: "-barrier-" not in link.name
    delivery = delivery_of(asked)
    asked.adapter.execute((PoisonAck(delivery, Cause("ValueError"), 1), Unsubscribe(CONSUMER)))
    eventually(lambda: any(isinstance(each, Confirmed) for each in asked.events))
    assert asked.sent("queue://other") is None
    assert freed.misuses == []
    assert any(isinstance(each, proton.Session) for each in freed.endpoints)


def test_deliveries_of_a_freed_link_cannot_be_settled(peer: ScriptedPeer, asked: Asked, freed: Freed) -> None:
    """A delivery whose link was freed has no handle; the end of its transaction does not touch proton's delivery."""
    held: list[Any] = []

    def hold(conversation: Conversation, link: Any, delivery: Any) -> bool:
        held.append(delivery)
        return False

    def answer(conversation: Conversation, link: Any) -> None:
        for delivery in held:
            delivery.update(proton.Delivery.ACCEPTED)
            delivery.settle()

    peer.discharges, peer.taken = hold, answer
    delivery = delivery_of(asked)
    asked.adapter.execute((Commit(7, (delivery,), ()),))
    eventually(lambda: held)
    asked.adapter.execute((Unsubscribe(CONSUMER),))
    eventually(lambda: any(isinstance(each, proton.Session) for each in freed.endpoints))
    eventually(lambda: delivery.handle is None)
    assert not delivery.source.unsettled
    assert asked.sent("queue://other") is None
    assert freed.misuses == []
