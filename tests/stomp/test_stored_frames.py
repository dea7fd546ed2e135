"""A MESSAGE that is restored from its bytes is the same delivery; a quick check finds plain messages."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.restored import again, is_plain, shown_by
from tests.stomp.test_deliveries import ARTEMIS, CLASSIC

from redelivery.core.commands import Subscribe
from redelivery.core.dead_lettering.routing import COPY
from redelivery.driver.port import restorer
from redelivery.errors import ConfigurationError
from redelivery_stomp.delivery import StompDelivery, Subscription
from redelivery_stomp.even_frames import frame_wire
from redelivery_stomp.profiles import StompArtemis, StompClassic, StompRabbitMQ

NOW = 1_700_000_000.0
RABBITMQ = [
    "subscription:1", "destination:/queue/orders", "message-id:T_1@@s@@1", "ack:T_1@@s@@1", "redelivered:false",
    "amqp-message-id:m-1", "x-delivery-count:2", "persistent:1", "timestamp:1700000000", "content-length:4",
]  # fmt: skip
PROFILES = {
    "activemq": (StompClassic, CLASSIC),
    "artemis": (StompArtemis, ARTEMIS),
    "rabbitmq": (StompRabbitMQ, RABBITMQ),
}
DESTINATIONS = (
    "queue://orders",
    "queue://orders.>",
    "topic://news.*",
    "native:///queue/orders",
    "temp-queue://mine",
)
# Header lines that the quick check reads, lines that look like them, and others.
TELLING = [
    b"expires:1600000000000", b"expires:1800000000000", b"expires:0", b"expires:x", b"expiration:5000",
    b"expiration:0", b"content-length:4", b"amq-msg-type:text", b"amq-msg-type:bytes", b"__AMQ_CID:c",
    b"JMS_AMQP_ORIGINAL_ENCODING:2", b"JMS_AMQP_ORIGINAL_ENCODING:7", b"NATIVE_MESSAGE_ID:1",
    b"timestamp:0", b"x-amqp-1.0-header:x", b"reply-to:queue\\c//a", b"priority:9", b"persistent:true",
    b"redelivered:true", b"JMSXGroupID:g", b"type:t", b"_AMQ_GROUP_ID:g", b"correlation-id:a\\cb",
    b"message-id:9", b"destination:/queue/Berlin", b"a\\nb:c\\\\d\\r", b"_AMQ_ORIG_ADDRESS:a",
    b"original-destination:queue\\c//x", b"x-first-death-queue:q", b"redeliveryId:r", b"\xff\xfe:\x80",
    b"%b:c" % COPY.encode(),
]  # fmt: skip
LINES = st.lists(st.sampled_from(TELLING) | st.binary(max_size=12), max_size=6)
ODD_BODIES = [b"", b"body", b"\0Sw\xa1\x01x", b"\1\0\0\0\2x\0", b"\0", b"{}" * 2000, b"\xff\xfe"]
BODIES = st.sampled_from(ODD_BODIES) | st.binary(max_size=20)


def arrived(
    broker: str,
    lines: list[bytes],
    body: bytes,
    to: str = "queue://orders",
    *,
    crlf: bool = False,
    own: bool = True,
) -> StompDelivery:
    """A delivery with these lines, before or after those of the broker."""
    profile, usual = PROFILES[broker]
    source = Subscription(Subscribe(3, to, window=10), 7, profile(), "1.2")
    usual_lines = [line.encode() for line in usual] if own else []
    head = (b"\r\n" if crlf else b"\n").join([b"MESSAGE", *usual_lines, *lines])
    return source.make(source, head, body)


def restored(delivery: StompDelivery, broker: str, to: str, at: float) -> object:
    """The same delivery, restored from its bytes."""
    return shown_by(again(restorer({"scheme": "stomp", **frame_wire(broker, "1.2", to)}), delivery, at))


@pytest.mark.parametrize("broker", PROFILES)
@given(lines=LINES, body=BODIES, to=st.sampled_from(DESTINATIONS), crlf=st.booleans(), own=st.booleans())
@example(lines=[], body=b"x", to="queue://orders", crlf=False, own=True)
@example(lines=[b"x:" + b"y" * 100_000], body=b"z" * 300_000, to="queue://orders", crlf=False, own=True)
def test_a_frame_is_restored(
    broker: str, lines: list[bytes], body: bytes, to: str, crlf: bool, own: bool
) -> None:
    """A restored delivery has all properties of the original, for usual and unusual frames and for garbage."""
    delivery = arrived(broker, lines, body, to, crlf=crlf, own=own)
    at = getattr(delivery, "arrived", 0.0)
    assert restored(delivery, broker, to, at) == shown_by(delivery)


@pytest.mark.parametrize("broker", PROFILES)
@given(head=st.binary(max_size=60), body=BODIES)
def test_garbage_is_restored(broker: str, head: bytes, body: bytes) -> None:
    """Bytes that are not a header block are kept unchanged."""
    profile, _ = PROFILES[broker]
    source = Subscription(Subscribe(3, "queue://orders", window=10), 7, profile(), "1.2")
    delivery = source.make(source, head, body)
    assert restored(delivery, broker, "queue://orders", getattr(delivery, "arrived", 0.0)) == shown_by(
        delivery
    )


@pytest.mark.parametrize("broker", PROFILES)
@given(lines=LINES, body=BODIES, crlf=st.booleans(), own=st.booleans())
def test_what_is_plain_at_a_glance_is_plain(
    broker: str, lines: list[bytes], body: bytes, crlf: bool, own: bool
) -> None:
    """The quick check accepts no message that has expired, has lost its body, or cannot be settled."""
    delivery = arrived(broker, lines, body, crlf=crlf, own=own)
    assert is_plain(delivery, NOW) or not delivery.plain(NOW)


@pytest.mark.parametrize("broker", PROFILES)
@pytest.mark.parametrize("lines", [[], [b"content-length:1"], [b"mine:1"]])
def test_the_usual_message_is_plain_at_a_glance(
    broker: str, lines: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quick check accepts the usual message by its bytes, without reading a property."""
    delivery = arrived(broker, lines, b"x")
    for name in ("expires_at", "body_kind"):
        monkeypatch.setattr(StompDelivery, name, property(lambda _: pytest.fail("asked")))
    assert delivery.plain(NOW)


def test_the_time_of_the_arrival_decides_about_expiry() -> None:
    """A restored message expires by the given time of its arrival, on Classic and on RabbitMQ."""
    classic = arrived("activemq", [], b"x", own=False)
    source, head = classic.source, b"MESSAGE\nexpires:1700000000000\nmessage-id:1"
    classic = source.make(source, head, b"x")
    restore = restorer({"scheme": "stomp", **frame_wire("activemq", "1.2", "queue://orders")})
    assert restore(head, b"x", NOW - 1).expires_at == NOW
    assert restore(head, b"x", NOW + 1).expires_at is None
    assert classic.expires_at is None
    assert time.time() > NOW
    rabbit = restorer({"scheme": "stomp+ssl", **frame_wire("rabbitmq", "1.2", "queue://orders")})
    assert rabbit(b"MESSAGE\nexpiration:5000", b"x", NOW).expires_at == NOW + 5


def test_a_wire_of_no_broker_is_refused() -> None:
    """An unknown broker, or a missing value, raises before any delivery is restored."""
    with pytest.raises(ConfigurationError, match="other over STOMP is not supported"):
        restorer({"scheme": "stomp", "broker": "other", "version": "1.2", "destination": "queue://a"})
    with pytest.raises(ConfigurationError, match="wire has no version, destination"):
        restorer({"scheme": "stomp", "broker": "artemis"})
