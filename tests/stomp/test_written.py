"""Frames that one connection writes, their order, and the effect of a broker's ERROR, without a socket."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from stomp.utils import Frame
from tests.stomp.test_refused import Wire

from redelivery.core.commands import Accept, Forward, PoisonAck, Subscribe, Unsubscribe
from redelivery.core.delivery import Cause
from redelivery.core.events import Confirmed, ConnectionLost
from redelivery.core.outgoing import Outgoing
from redelivery_stomp.delivery import StompDelivery
from redelivery_stomp.profiles import StompArtemis

if TYPE_CHECKING:
    from collections.abc import Hashable

MEANWHILE = 0.05  # seconds that another thread gets; more changes nothing if it is made to wait


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    """Return an adapter with one consumer."""
    wire = Wire(monkeypatch)
    wire.adapter.execute((Subscribe(1, "queue://orders", window=10),))
    wire.written.clear()
    return wire


def message(wire: Wire, name: str, epoch: int = 1) -> StompDelivery:
    """Return a message that arrived for the consumer."""
    head = f"MESSAGE\nsubscription:TOKEN-1\ndestination:/queue/orders\nmessage-id:{name}\nack:{name}".encode()
    delivery = StompDelivery(wire.link.subscriptions["1"], head, b"x")
    delivery.epoch = epoch
    return delivery


def commands(wire: Wire) -> list[bytes]:
    """Return the commands of the frames that were written."""
    return [frame.partition(b"\n")[0] for frame in wire.written]


def lost(wire: Wire) -> ConnectionLost:
    """End the connection; return the one event that is reported."""
    wire.link.lost("gone")
    wire.link.lost("gone")
    (event,) = [event for event in wire.events if isinstance(event, ConnectionLost)]
    return event


def suspect(wire: Wire) -> Hashable:
    """Return the id of the message that is suspected of ending the connection."""
    return name_of(lost(wire))


def name_of(loss: ConnectionLost) -> Hashable:
    """Return the id of the loss's suspect, which may also have a digest."""
    proof = loss.suspect
    key = proof[0] if isinstance(proof, tuple) and isinstance(proof[0], tuple) else proof
    return key[1] if isinstance(key, tuple) else key


def test_an_unsubscribe_does_not_overtake_an_acknowledgement(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An UNSUBSCRIBE is written after the acknowledgement that another thread has begun to write."""
    ack = Accept([message(wire, "a")])
    other = threading.Thread(target=wire.adapter.execute, args=([Unsubscribe(1)],))
    write = wire.write

    def slow(data: bytes) -> None:
        if not other.ident:
            other.start()
            other.join(MEANWHILE)
        write(data)

    monkeypatch.setattr(wire.link.transport, "write", slow)
    wire.adapter.execute([ack])
    other.join()
    assert commands(wire) == [b"ACK", b"UNSUBSCRIBE"]


def test_all_subscriptions_of_a_consumer_end_with_it(wire: Wire) -> None:
    """The end of a consumer ends all of its subscriptions."""
    wire.link.subscriptions.begin("1.2", wire.link.subscriptions["1"])
    wire.adapter.execute([Unsubscribe(1)])
    assert wire.written == [b"UNSUBSCRIBE\nid:TOKEN-1\n\n", b"UNSUBSCRIBE\nid:TOKEN-1.2\n\n"]


def test_what_cannot_be_acknowledged_is_left_out(wire: Wire) -> None:
    """A message of another connection, or of an ended consumer, has no ACK."""
    here, there, ended = message(wire, "a"), message(wire, "b", epoch=7), message(wire, "c")
    wire.adapter.execute([Accept([here, there])])
    wire.adapter.execute([Unsubscribe(1), Accept([ended])])
    assert wire.written == [b"ACK\nid:a\n\n", b"UNSUBSCRIBE\nid:TOKEN-1\n\n"]


def test_what_was_acknowledged_is_the_suspect_of_an_error(wire: Wire) -> None:
    """An ERROR that names no message accuses the last acknowledged one."""
    wire.adapter.execute([Accept([message(wire, "a"), message(wire, "b")])])
    wire.link.on_error(Frame("ERROR", {"message": "no"}, b""))
    assert suspect(wire) == "b"


def test_a_refused_poison_acknowledgement_accuses_its_message(wire: Wire) -> None:
    """A poison acknowledgement that the broker refuses accuses its message, and the broker closes the connection."""
    wire.adapter.execute([PoisonAck(message(wire, "a"), Cause("bad"), 1)])
    wire.answer(b"NACK", "no")
    assert suspect(wire) == "a"


def test_a_copy_on_classic_is_in_no_transaction(wire: Wire) -> None:
    """A copy on Classic is confirmed before its message is acknowledged, without a transaction: that would be slow."""
    bad = message(wire, "a")
    wire.adapter.execute([Forward(bad, Outgoing("queue://graves", b"x"), Cause("bad"), 1)])
    assert commands(wire) == [b"SEND"]
    assert b"\ntransaction:" not in wire.written[0]
    wire.answer(b"SEND")
    (answer,) = [event for event in wire.events if isinstance(event, Confirmed)]
    assert (answer.delivery, answer.error) == (bad, None)
    wire.adapter.execute([Accept([bad])])
    assert commands(wire) == [b"SEND", b"ACK"]


def received(name: str, subscription: str = "TOKEN-1") -> bytes:
    """Return a message as it arrives."""
    head = f"MESSAGE\nsubscription:{subscription}\ndestination:/queue/orders\nmessage-id:{name}\nack:{name}"
    return head.encode() + b"\n\nx\0\n"


@pytest.mark.parametrize(
    ("reads", "expected"),
    [
        pytest.param([received("a"), b"rubbish\0"], "a", id="handed over"),
        pytest.param([received("a"), received("b") + b"rubbish\0"], "b", id="in the same read"),
        pytest.param(
            [received("a") + received("b", "TOKEN-9") + b"rubbish\0"], None, id="of an ended consumer"
        ),
        pytest.param([b"rubbish\0"], None, id="nowhere"),
    ],
)
def test_what_is_no_frame_accuses_the_message_before_it(
    wire: Wire, reads: list[bytes], expected: str | None
) -> None:
    """Bytes that are not a frame accuse the last whole message before them, and no other one."""
    wire.link.disconnect_cause.accuse(message(wire, "earlier"))
    for data in reads:
        wire.read(data)
    (loss,) = [event for event in wire.events if isinstance(event, ConnectionLost)]
    assert name_of(loss) == expected
    assert "a body is longer than its frame says" in str(loss.error)


def test_a_broker_that_closes_after_an_error_is_gone_at_once(wire: Wire) -> None:
    """An ERROR of Artemis, which always closes, ends the connection at once; one of Classic does not."""
    for profile, ends in ((wire.link.profile, 0), (StompArtemis(), 1)):
        wire.link.profile = profile
        wire.link.on_error(Frame("ERROR", {"message": "no"}, b""))
        assert sum(isinstance(event, ConnectionLost) for event in wire.events) == ends
