"""Any bytes on a STOMP connection: they are messages, a fault, or nothing, the same at every split.

`check` reads one input: its first byte selects how the rest is split. `DICTIONARY` has the tokens of such streams. The
connection's token is always `TOKEN`, as if the producer knew it: other bytes prove nothing.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.fuzz.target import Target

from redelivery.core.commands import Subscribe
from redelivery.core.dead_lettering.dead_letter_headers import readable_origin
from redelivery.core.destination import Destination
from redelivery_stomp.delivery import StompDelivery, Subscription
from redelivery_stomp.disconnect_cause import said
from redelivery_stomp.frame_scanner import FrameLimits, FrameScanner, OtherFrame
from redelivery_stomp.frames import RawHeaders, frame_end, read_headers
from redelivery_stomp.profiles import StompArtemis, StompClassic, StompRabbitMQ
from redelivery_stomp.subscriptions import Subscriptions

if TYPE_CHECKING:
    from redelivery_stomp.profile_base import StompProfile

__all__ = ["DICTIONARY", "TARGETS", "TOKEN", "check"]

TOKEN = "0123456789abcdef"
DICTIONARY = (
    b"MESSAGE\n", b"MESSAGE\r\n", b"RECEIPT\n", b"ERROR\n", b"CONNECTED\n", b"\0", b"\0\n", b"\n", b"\r\n", b"\n\n",
    b"\r\n\r\n", b"\0\nMESSAGE\n", b"\nsubscription:0123456789abcdef-1", b"\nreceipt-id:0123456789abcdef-r1",
    b":0123456789abcdef", b"\nsubscription:1", b"\nreceipt-id:r1-1", b"\nack:ID\\c1-1\\c1", b"\nmessage-id:1,1",
    b"\ndestination:/queue/a", b"\ndestination:/queue/a.b,", b"\ndestination:/topic/,", b",", b"topic://", b"x,y://z",
    b"/remote-temp-queue/ID:", b"?", b".>", b"\noriginal-destination:queue://a,", b"\n_AMQ_ORIG_ADDRESS:a,",
    b"\\c", b"\\", b"\ncontent-length:", b"\ncontent-length:3", b"99999999999999999999",
    b"\ntimestamp:253402300799999", b"\nexpires:1", b"\nexpiration:9", b"\npriority:-1", b"\npersistent:true",
    b"\nredelivered:true", b"\namq-msg-type:text", b"\xff\xfe", b":", b"\nx-amqp-1.0-properties:\0Ss",
    b"\namqp-message-id:1", b"\nbrowser:end", b"\nmessage:bad", b"\nversion:1.2",
)  # fmt: skip
LIMITS = FrameLimits(2000, 3000)
CONSUMED = ("queue://a", "queue://a.>", "topic://#", "native://a.#", "temp-queue://a", "queue://a,b.*")
PROFILES: tuple[StompProfile, ...] = (StompClassic(), StompArtemis(), StompRabbitMQ())
PROPERTIES = (
    "key", "identity", "destination", "origin", "died_of", "redelivered", "expires_at", "group", "persistent",
    "body_kind", "message_id", "content_type", "correlation_id", "reply_to", "message_type", "priority", "timestamp",
    "expiration", "broker_count",
)  # fmt: skip

Cut = tuple[list[tuple[bytes, bytes]], list[OtherFrame], bool]


def check(data: bytes) -> None:
    """Read one input; an exception, also a failed assert, is a fault of the library."""
    seed, stream = data[0] if data else 0, data[1:]
    whole = _read([stream])
    assert _read(_pieces(stream, seed)) == whole, "another split gives another result"
    messages, others, _ = whole
    for head, body in messages:
        assert f"\nsubscription:{TOKEN}".encode() in head, "a message that the broker did not write"
        for profile in PROFILES:
            _settle(StompDelivery, profile, head, body)
    for each in others:
        headers = read_headers(each.head)
        said(headers, each.body)
        assert (
            each.command == "CONNECTED" or each.command == "ERROR" or headers["receipt-id"].startswith(TOKEN)
        )


def _pieces(stream: bytes, seed: int) -> list[bytes]:
    if seed == 0:
        return [stream[i : i + 1] for i in range(len(stream))]
    drawn = random.Random(seed)
    pieces, at = [], 0
    while at < len(stream):
        size = drawn.choice((1, 2, 7, 30, 200))
        pieces.append(stream[at : at + size])
        at += size
    return pieces


def _read(pieces: list[bytes]) -> Cut:
    scanner = FrameScanner(TOKEN, LIMITS)
    scanner.proof.handle = StompClassic.handle
    messages: list[tuple[bytes, bytes]] = []
    others: list[OtherFrame] = []
    for piece in pieces:
        found, rest = scanner.feed(piece)
        messages += found
        others += rest
    return messages + scanner._held, others, bool(scanner.fault)


def _settle(kind: type[StompDelivery], profile: StompProfile, head: bytes, body: bytes) -> None:
    """Read all properties of a message, and acknowledge it."""
    known = Subscriptions(TOKEN)
    consumed = CONSUMED[len(head) % len(CONSUMED)]
    subscription = Subscription(Subscribe(1, consumed, window=10), 1, profile, "1.2")
    known.begin("1", subscription)
    known.of(head)
    delivery = (profile.makes or kind)(subscription, head, body)
    for name in PROPERTIES:
        getattr(delivery, name)
    dict(delivery.headers)
    # The destination selects the policy: a wrong one would end the consumer at every start.
    assert Destination.parse(delivery.destination).members
    readable_origin(delivery.origin)
    for name in ("message-id", "ack", "destination", "timestamp"):
        assert RawHeaders(head).get(name) == read_headers(head).get(name), name
    if delivery.nameable:
        ack = delivery.settlement(b"ACK") + b"\n\0"
        assert frame_end(ack, 0) == len(ack), "an ACK that is not one frame"
        assert ack.count(b"\n") == 3, "an ACK with another header"


TARGETS = (Target(name="stomp-frames", check=check, dictionary=DICTIONARY, longest=4096),)
