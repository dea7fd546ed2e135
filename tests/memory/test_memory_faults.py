"""Ends of connections, and faults that a test can inject into the memory broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from redelivery.adapter import Sent, Subscribed
from redelivery.core.commands import Accept, Credit, Forward, PoisonAck, Release, Send, Subscribe, Unsubscribe
from redelivery.core.events import Confirmed, ConnectionLost
from redelivery.core.outgoing import Outgoing
from redelivery.errors import AdapterError, TransportError

if TYPE_CHECKING:
    from redelivery.testing import ManualClock, MemoryBroker

from tests.memory_peer import CAUSE, QUEUE, Peer, broker, clock, peer

__all__ = ["broker", "clock", "peer"]  # fixtures


@pytest.mark.parametrize("ending", ["cut", "close", "unsubscribe"])
def test_unsettled_comes_back_counted(
    peer: Peer, broker: MemoryBroker, clock: ManualClock, ending: str
) -> None:
    """An unsettled message of an ended consumer is redelivered in the old order, marked, with a count of one more."""
    for n in range(3):
        broker.send(QUEUE, str(n))
    peer.consume(credit=2)
    first, _ = peer.got()
    peer.do(Accept((first,)))
    if ending == "cut":
        assert broker.cut() == 1
        (lost,) = peer.told(ConnectionLost)
        assert (lost.epoch, type(lost.error)) == (1, TransportError)
    elif ending == "close":
        peer.adapter.close(1.0)
        assert peer.events == [Subscribed(1)]
    else:
        peer.do(Unsubscribe(1))
    other = Peer(broker, clock).consume()
    assert [(d.body, d.redelivered, d.broker_count) for d in other.got()] == [
        (b"1", True, 1),
        (b"2", False, 0),
    ]


def test_commands_for_an_old_connection_are_dropped(peer: Peer, broker: MemoryBroker) -> None:
    """A settlement of a delivery of an older connection does nothing."""
    broker.send(QUEUE, "a")
    peer.consume()
    (old,) = peer.got()
    broker.cut()
    peer.do(Accept((old,)))
    peer.open()
    peer.events.clear()
    peer.do(Accept((old,)), PoisonAck(old, CAUSE, 1), Release((old,)))
    peer.consume()
    (new,) = peer.got()
    assert new.key == old.key
    assert peer.told(Confirmed) == []
    assert broker.depth(QUEUE) == 1


def test_poison_moves_to_the_dead_letter_queue(peer: Peer, broker: MemoryBroker) -> None:
    """A poison message is on the dead-letter queue, with cause, count and origin, before it is confirmed."""
    message_id = broker.send(QUEUE, "bad", headers={"k": "v"}, persistent=False)
    peer.consume()
    (delivery,) = peer.got()
    peer.do(PoisonAck(delivery, CAUSE, 3))
    assert [(c.delivery, c.error) for c in peer.told(Confirmed)] == [(delivery, None)]
    assert broker.depth(QUEUE) == 0
    (letter,) = broker.dead_letters()
    assert (letter.text, letter.cause, letter.count) == ("bad", CAUSE.text, 3)
    assert (letter.original_destination, letter.original_id) == (QUEUE, message_id)
    assert letter.headers["k"] == "v"
    assert letter.headers["redeliveryOriginalDeliveryMode"] == "NON_PERSISTENT"
    assert [step.action for step in broker.history(message_id)] == ["sent", "delivered", "poisoned"]


def test_forward_is_atomic(peer: Peer, broker: MemoryBroker) -> None:
    """A forward stores the copy and removes the original, or does neither."""
    broker.send(QUEUE, "bad")
    peer.consume()
    (delivery,) = peer.got()
    forward = Forward(delivery, Outgoing("queue://mine", b"copy"), CAUSE, 1)
    broker.fail_forward()
    peer.do(forward)
    (refused,) = peer.told(Confirmed)
    assert isinstance(refused.error, AdapterError)
    assert (broker.depth("mine"), broker.depth(QUEUE)) == (0, 1)
    peer.do(forward)
    (done,) = peer.told(Confirmed)
    assert done.error is None
    assert (broker.depth("mine"), broker.depth(QUEUE)) == (1, 0)


def test_asking_twice_makes_one_dead_letter(peer: Peer, broker: MemoryBroker) -> None:
    """A stalled confirmation arrives after the resume; a repeated command is confirmed without a second copy."""
    broker.send(QUEUE, "bad")
    peer.consume()
    (delivery,) = peer.got()
    broker.stall_confirmations()
    peer.do(PoisonAck(delivery, CAUSE, 1))
    peer.do(Send(5, Outgoing(QUEUE, b"more")))
    assert peer.told(Confirmed) == peer.told(Sent) == []
    peer.do(PoisonAck(delivery, CAUSE, 1))
    broker.resume_confirmations()
    assert [c.error for c in peer.told(Confirmed)] == [None, None]
    assert [s.token for s in peer.told(Sent)] == [5]
    assert len(broker.dead_letters()) == 1


def test_refused_settlements(peer: Peer, broker: MemoryBroker) -> None:
    """Poison acknowledgements are refused by number, or by message."""
    broker.send(QUEUE, "good")
    broker.send(QUEUE, "bad")
    peer.consume()
    good, bad = peer.got()
    broker.refuse_settlements(lambda message: message.text == "bad")
    peer.do(PoisonAck(good, CAUSE, 1), PoisonAck(bad, CAUSE, 1))
    assert [c.error is None for c in peer.told(Confirmed)] == [True, False]
    broker.refuse_settlements(1)
    peer.do(PoisonAck(bad, CAUSE, 1), PoisonAck(bad, CAUSE, 1))
    assert [c.error is None for c in peer.told(Confirmed)] == [False, True]


def test_refused_sends_and_connections(peer: Peer, broker: MemoryBroker) -> None:
    """A send can be refused, and so can a connection, with a chosen error."""
    broker.refuse_sends(1)
    peer.do(Send(1, Outgoing(QUEUE, b"")), Send(2, Outgoing(QUEUE, b"")))
    assert [sent.error is None for sent in peer.told(Sent)] == [False, True]
    broker.cut()
    broker.refuse_connections()
    with pytest.raises(TransportError, match="refuses connections"):
        peer.open()
    broker.refuse_connections(lambda: AdapterError("wrong password"))
    with pytest.raises(AdapterError, match="wrong password"):
        peer.open()
    broker.accept_connections()
    peer.open()
    assert broker.connections == 1


def test_lost_accepts_come_again_marked(peer: Peer, broker: MemoryBroker) -> None:
    """A message whose accept was lost stays with the broker, and is redelivered, marked, after a cut."""
    broker.send(QUEUE, "a")
    broker.send(QUEUE, "b")
    peer.consume()
    broker.drop_accepts(1)
    peer.do(Accept(peer.got()))
    assert [message.delivered for message in broker.messages(QUEUE)] == [True]
    broker.cut()
    peer.open()
    peer.consume()
    assert [(d.body, d.redelivered) for d in peer.got()] == [(b"a", True)]


def test_cut_of_one_client(broker: MemoryBroker, clock: ManualClock) -> None:
    """One client's connections can be cut, with a suspect message."""
    mine, other = Peer(broker, clock, client_id="mine"), Peer(broker, clock, client_id="other")
    assert broker.cut("mine", suspect="ID:7") == 1
    assert [(lost.suspect, lost.consumer) for lost in mine.told(ConnectionLost)] == [("ID:7", None)]
    assert other.events == []


def test_a_second_subscription_of_one_consumer_is_none(peer: Peer, broker: MemoryBroker) -> None:
    """A second subscription of a consumer, or one for another connection, is ignored: nothing outlives the consumer."""
    peer.do(Subscribe(2, QUEUE, 10, epoch=7), Credit(2, 10))
    peer.consume().do(Subscribe(1, QUEUE, 10))
    assert peer.told(Subscribed) == [Subscribed(1)]
    peer.do(Unsubscribe(1))
    broker.send(QUEUE, "a")
    assert peer.got() == []
