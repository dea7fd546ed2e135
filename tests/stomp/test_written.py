"""What is written, in which order, and what a broker's complaint makes of it: one connection, without a socket."""

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

MEANWHILE = 0.05  # seconds that another thread gets; more changes nothing where it is made to wait


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    """Return an adapter with one consumer."""
    wire = Wire(monkeypatch)
    wire.adapter.execute((Subscribe(1, "queue://orders", window=10),))
    wire.written.clear()
    return wire


def message(wire: Wire, name: str, epoch: int = 1) -> StompDelivery:
    """Return a message that came for the consumer."""
    head = f"MESSAGE\nsubscription:TOKEN-1\ndestination:/queue/orders\nmessage-id:{name}\nack:{name}".encode()
    delivery = StompDelivery(wire.link.subscriptions["1"], head, b"x")
    delivery.epoch = epoch
    return delivery


def commands(wire: Wire) -> list[bytes]:
    """Return the commands of the frames that were written."""
    return [frame.partition(b"\n")[0] for frame in wire.written]


def lost(wire: Wire) -> ConnectionLost:
    """End the connection; return the one thing that the sink is told of it."""
    wire.link.lost("gone")
    wire.link.lost("gone")
    (event,) = [event for event in wire.events if isinstance(event, ConnectionLost)]
    return event


def suspect(wire: Wire) -> Hashable:
    """Return the id of the message over which the connection ended."""
    return name_of(lost(wire))


def name_of(loss: ConnectionLost) -> Hashable:
    """Return the id of its suspect, which may have a digest besides."""
    proof = loss.suspect
    key = proof[0] if isinstance(proof, tuple) and isinstance(proof[0], tuple) else proof
    return key[1] if isinstance(key, tuple) else key


def test_an_unsubscribe_does_not_overtake_an_acknowledgement(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two threads the first to begin is the first to write."""
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
    """One that was widened has several at the broker."""
    wire.link.subscriptions.begin("1.2", wire.link.subscriptions["1"])
    wire.adapter.execute([Unsubscribe(1)])
    assert wire.written == [b"UNSUBSCRIBE\nid:TOKEN-1\n\n", b"UNSUBSCRIBE\nid:TOKEN-1.2\n\n"]


def test_what_cannot_be_acknowledged_is_left_out(wire: Wire) -> None:
    """A message of another connection, and one of a consumer that has ended, have no ACK."""
    here, there, ended = message(wire, "a"), message(wire, "b", epoch=7), message(wire, "c")
    wire.adapter.execute([Accept([here, there])])
    wire.adapter.execute([Unsubscribe(1), Accept([ended])])
    assert wire.written == [b"ACK\nid:a\n\n", b"UNSUBSCRIBE\nid:TOKEN-1\n\n"]


def test_what_was_acknowledged_is_the_suspect_of_an_error(wire: Wire) -> None:
    """The last message that was acknowledged, if the broker names none."""
    wire.adapter.execute([Accept([message(wire, "a"), message(wire, "b")])])
    wire.link.on_error(Frame("ERROR", {"message": "no"}, b""))
    assert suspect(wire) == "b"


def test_a_refused_poison_acknowledgement_accuses_its_message(wire: Wire) -> None:
    """The broker says no to the NACK, and closes the connection over it."""
    wire.adapter.execute([PoisonAck(message(wire, "a"), Cause("bad"), 1)])
    wire.answer(b"NACK", "no")
    assert suspect(wire) == "a"


def test_a_copy_on_classic_is_in_no_transaction(wire: Wire) -> None:
    """It would keep the original, and go through all that it keeps at each COMMIT; so the copy is confirmed first."""
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
    """The last whole message before the rubbish, handed over or not; where there is none, no other message."""
    wire.link.disconnect_cause.accuse(message(wire, "earlier"))
    for data in reads:
        wire.read(data)
    (loss,) = [event for event in wire.events if isinstance(event, ConnectionLost)]
    assert name_of(loss) == expected
    assert "a body is longer than its frame says" in str(loss.error)


def test_a_broker_that_closes_after_an_error_is_gone_at_once(wire: Wire) -> None:
    """Artemis always does: nobody may take the connection for one that still stands. Classic may go on."""
    for profile, ends in ((wire.link.profile, 0), (StompArtemis(), 1)):
        wire.link.profile = profile
        wire.link.on_error(Frame("ERROR", {"message": "no"}, b""))
        assert sum(isinstance(event, ConnectionLost) for event in wire.events) == ends
