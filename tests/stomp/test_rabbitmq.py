"""RabbitMQ over STOMP: frames that are written, commands that are refused here (docs/measured/rabbitmq-stomp.md)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.eventually import eventually
from tests.stomp.test_refused import Wire

from redelivery import AdapterError, ConfigurationError, parse_uri
from redelivery.adapter import Sent, Subscribed
from redelivery.core.commands import Accept, Forward, PoisonAck, Release, Send, Subscribe, Unsubscribe
from redelivery.core.delivery import Cause
from redelivery.core.events import Arrived
from redelivery.core.outgoing import Outgoing
from redelivery_stomp.connection import connect_frame
from redelivery_stomp.profiles import StompArtemis, StompRabbitMQ, profile_for

if TYPE_CHECKING:
    from redelivery.core.delivery import Delivery

SESSION = "session-a"


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    """Return an adapter logged in at RabbitMQ, whose frames can be read."""
    return Wire(monkeypatch, StompRabbitMQ())


def arrive(wire: Wire, *tags: int, subscription: int = 1) -> list[Delivery]:
    """Make messages arrive; return those that are reported."""
    before = len(wire.events)
    ack = f"T_{subscription}@@{SESSION}@@"
    wire.link._messages([
        (f"MESSAGE\nsubscription:TOKEN-{subscription}\ndestination:/queue/orders\nack:{ack}{tag}".encode(), b"%d" % tag)
        for tag in tags
    ])  # fmt: skip
    return [one for event in wire.events[before:] if isinstance(event, Arrived) for one in event.deliveries]


# Frames that are written.


@pytest.mark.parametrize(
    ("destination", "address"),
    [
        ("queue://a.b", "/queue/a.b"),
        ("queue://a/b 100%", "/queue/a%2Fb 100%25"),
        ("topic://a", "/topic/a"),
        ("native:///amq/queue/x", "/amq/queue/x"),
    ],
)
def test_addresses(destination: str, address: str) -> None:
    """A name is escaped as the broker unescapes it, and read back."""
    assert StompRabbitMQ().address(destination) == StompRabbitMQ().pattern(destination) == address
    if not destination.startswith("native"):
        assert StompRabbitMQ().qualified(address, "queue") == destination


def test_patterns_and_answers() -> None:
    """Classic's `>` is written as `#`; an address of neither a queue nor a topic is read as `native://`."""
    assert (StompRabbitMQ().pattern("topic://a.>"), StompRabbitMQ().pattern("topic://>")) == (
        "/topic/a.#",
        "/topic/#",
    )
    assert StompRabbitMQ().pattern("topic://a.*.b>") == "/topic/a.*.b>"
    assert StompRabbitMQ().qualified("/reply-queue/amq.gen-1", "queue") == "native:///reply-queue/amq.gen-1"
    assert StompRabbitMQ().qualified("/queue/%C3%BC", "topic") == "queue://ü"
    assert StompRabbitMQ().qualified("answers", "queue") == "queue://answers"


def test_a_subscription(wire: Wire) -> None:
    """A subscription's window is in messages, within the broker's limit; it declares the user's arguments."""
    wire.link.profile = StompRabbitMQ(parse_uri("stomp://h?redelivery.queueArguments=x-queue-type:quorum"))
    wire.adapter.execute((Subscribe(1, "queue://orders", window=70_000),))
    (frame,) = wire.written
    assert (
        b"\ndestination:/queue/orders\nack:client-individual\nprefetch-count:65535\nx-queue-type:quorum\n"
        in frame
    )


def test_a_durable_subscription(wire: Wire) -> None:
    """A durable subscription is a queue named by client id and subscription name, without queue arguments."""
    settings = parse_uri("stomp://h?jms.clientID=me&redelivery.queueArguments=x-queue-type:quorum")
    wire.link.profile = StompRabbitMQ(settings)
    wire.adapter.execute((Subscribe(1, "topic://news", window=10, subscription="daily"),))
    (frame,) = wire.written
    assert b"\ndurable:true\nauto-delete:false\nx-queue-name:stomp-subscription-me.daily\n" in frame
    assert b"x-queue-type" not in frame


def test_a_message_to_be_sent(wire: Wire) -> None:
    """A SEND has the length, the id and the time to live of its message, and no `persistent:false`."""
    headers = {"redeliveryId": "own", "mine": "1"}
    message = Outgoing(
        "queue://orders", b"a\0b", "text", headers, persistent=False, expires_at=time.time() + 60
    )
    wire.adapter.execute((Send(1, message),))
    written = b"\0".join(wire.written)
    for line in (b"content-length:3", b"amq-msg-type:text", b"amqp-message-id:own", b"mine:1", b"expires:"):
        assert b"\n" + line in written
    lives = int(written.partition(b"\nexpiration:")[2].partition(b"\n")[0])
    assert 0 < lives <= 60_000
    assert b"persistent" not in written


def test_a_copy(wire: Wire) -> None:
    """A copy keeps its id, without the headers that declare a queue or describe an earlier dead letter."""
    wire.link.profile = StompRabbitMQ(
        parse_uri("stomp://h?redelivery.deadLetterArguments=x-queue-type:quorum")
    )
    wire.adapter.execute((Subscribe(1, "queue://orders", window=10),))
    (one,) = arrive(wire, 1)
    one.head += b"\nx-message-ttl:5\nx-first-death-queue:q\nmine:1\namqp-message-id:theirs"  # type: ignore[attr-defined]
    copy = Outgoing("queue://DLQ", b"x", headers=one.headers)
    wire.written.clear()
    wire.adapter.execute((Forward(one, copy, Cause("bad"), 1),))
    (frame,) = wire.written
    assert frame.startswith(b"SEND\ndestination:/queue/DLQ\npersistent:true\n")
    assert b"\nmine:1\n" in frame
    assert b"\namqp-message-id:theirs\n" in frame
    assert b"\nx-queue-type:quorum\n" in frame
    assert b"ttl" not in frame
    assert b"death" not in frame


def test_settlements(wire: Wire) -> None:
    """A NACK either requeues the message or sends it to the dead-letter exchange."""
    wire.adapter.execute((Subscribe(1, "queue://orders", window=10),))
    one, two, three = arrive(wire, 1, 2, 3)
    wire.written.clear()
    wire.adapter.execute((Accept((one,)), Release((two,)), PoisonAck(three, Cause("bad"), 1)))
    assert sorted(frame.partition(b"receipt:")[0] for frame in wire.written) == [
        b"ACK\nid:T_1@@session-a@@1\n\n",
        b"NACK\nid:T_1@@session-a@@2\nrequeue:true\n\n",
        b"NACK\nid:T_1@@session-a@@3\nrequeue:false\n",
    ]


def test_an_ended_consumer_gives_back_what_it_holds_and_what_is_on_its_way(wire: Wire) -> None:
    """An ended consumer's id is subscribed to an unused topic until its unsettled and late messages are released."""
    wire.adapter.execute((Subscribe(1, "queue://orders", window=10),))
    one, _, _ = arrive(wire, 1, 2, 3)
    wire.adapter.execute((Accept((one,)),))
    wire.written.clear()
    wire.adapter.execute((Unsubscribe(1),))
    ended, again, *back = wire.written
    assert ended == b"UNSUBSCRIBE\nid:TOKEN-1\n\n"
    assert again.startswith(b"SUBSCRIBE\nid:TOKEN-1\ndestination:/topic/redelivery.nowhere.")
    assert sorted(back) == [b"NACK\nid:T_1@@session-a@@%d\nrequeue:true\n\n" % tag for tag in (2, 3)]
    assert arrive(wire, 4) == [], "what was on its way is no longer the application's"
    wire.answer(b"SUBSCRIBE")
    eventually(lambda: any(frame.startswith(b"ABORT") for frame in wire.written))
    assert b"NACK\nid:T_1@@session-a@@4\nrequeue:true\n\n" in wire.written
    assert arrive(wire, 5) == []
    wire.answer(b"ABORT")
    eventually(lambda: wire.written.count(b"UNSUBSCRIBE\nid:TOKEN-1\n\n") == 2)
    assert b"NACK\nid:T_1@@session-a@@5\nrequeue:true\n\n" in wire.written
    assert [frame for frame in wire.written if b"@@1\n" in frame] == [], "what was accepted is not given back"


def test_a_plain_topic_consumer_just_ends(wire: Wire) -> None:
    """A plain topic consumer releases nothing: its messages end with its subscription."""
    wire.adapter.execute((Subscribe(1, "topic://news", window=10),))
    arrive(wire, 1)
    wire.written.clear()
    wire.adapter.execute((Unsubscribe(1),))
    assert wire.written == [b"UNSUBSCRIBE\nid:TOKEN-1\n\n"]


# Commands that are refused here.


@pytest.mark.parametrize(
    ("message", "word"),
    [
        (Outgoing("queue://orders", b"", delay=1.0), "delay="),
        (Outgoing("temp-queue://mine", b""), "temporary"),
        (Outgoing("queue://orders", b"", reply_to="temp-queue://mine"), "temporary"),
        (Outgoing("queue://orders", b"", headers={"expiration": "5"}), "'expiration'"),
        (Outgoing("queue://orders", b"", headers={"x-message-ttl": "5"}), "'x-message-ttl'"),
    ],
)
def test_what_cannot_be_sent(wire: Wire, message: Outgoing, word: str) -> None:
    """A message that cannot be sent is refused with a reason, and no frame is written."""
    wire.adapter.execute((Send(1, message),))
    (event,) = wire.events
    assert isinstance(event, Sent)
    assert isinstance(event.error, AdapterError)
    assert word in str(event.error)
    assert wire.written == []


@pytest.mark.parametrize(
    ("destination", "dead_letters", "word"),
    [
        ("temp-queue://mine", (), "temporary"),
        ("queue://orders", ("native:///amq/queue/DLQ",), "drops"),
        ("queue://orders", ("queue://DLQ", "native:///exchange/dead/letters"), "drops"),
    ],
)
def test_what_cannot_be_consumed(
    wire: Wire, destination: str, dead_letters: tuple[str, ...], word: str
) -> None:
    """A dead-letter destination must be a declared queue: elsewhere the broker confirms and drops a message."""
    wire.adapter.execute((Subscribe(1, destination, window=10, dead_letters=dead_letters),))
    (event,) = wire.events
    assert isinstance(event, Subscribed)
    assert word in str(event.error)
    assert wire.written == []


@pytest.mark.parametrize("option", ["queueArguments", "deadLetterArguments"])
def test_others_declare_no_queues(option: str) -> None:
    """Queue arguments are refused on a broker without them."""
    settings = parse_uri(f"stomp://h?redelivery.{option}=x-queue-type:quorum")
    with pytest.raises(ConfigurationError, match=f"redelivery.{option} is for RabbitMQ only: artemis"):
        profile_for("ActiveMQ-Artemis/2.40.0", "auto", settings)
    assert isinstance(profile_for("RabbitMQ/3.10.8", "auto", settings), StompRabbitMQ)
    assert isinstance(profile_for("", "artemis"), StompArtemis)


@pytest.mark.parametrize(("option", "host"), [("", "/"), ("?redelivery.virtualHost=second", "second")])
def test_the_virtual_host(option: str, host: str) -> None:
    """The virtual host is the user's, or RabbitMQ's default: it refuses the machine's name, unlike the others."""
    assert f"\nhost:{host}\n".encode() in connect_frame(parse_uri(f"stomp://machine{option}"), (0, 0))


@pytest.mark.parametrize(
    ("version", "cautious"), [("4.3.6", True), ("4.0.5", True), ("3.13.7", False), ("", False)]
)
def test_a_quorum_queue_drops_what_many_losses_had(version: str, *, cautious: bool) -> None:
    """A consumer that declares a quorum queue on RabbitMQ 4 is warned of its limit, with the policy that lifts it."""
    profile = StompRabbitMQ(parse_uri("stomp://h?redelivery.queueArguments=x-queue-type:quorum"))
    command = Subscribe(1, "queue://shop.orders", window=10)
    able = profile.for_consumer(command, profile.able(version))
    assert (able is not None) is cautious
    if able is not None:
        assert able.loss_limit == 20
        assert "after 20 lost connections" in able.caution
        assert "'^shop\\.orders$' '{\"delivery-limit\":-1}'" in able.caution
    plain = StompRabbitMQ()
    assert plain.for_consumer(command, plain.able(version)) is None
