"""A MESSAGE frame as a delivery, per broker: identity, body kind, addresses, settlement (docs/measured-stomp.md)."""

from __future__ import annotations

import pytest

from redelivery.core.commands import Forward, Subscribe
from redelivery.core.delivery import Cause
from redelivery.core.outgoing import Outgoing
from redelivery.errors import ConfigurationError
from redelivery_stomp.delivery import StompDelivery, Subscription
from redelivery_stomp.profile_base import NEVER_COPIED, PROTOCOL, Profile
from redelivery_stomp.profiles import Artemis, Classic, RabbitMQ, profile_for

CLASSIC = [
    "subscription:1", "destination:/queue/orders", "ack:ID\\cvm-1\\c1", "message-id:ID\\cvm-2\\c1", "expires:0",
    "priority:7", "timestamp:1700000000123", "persistent:true",
]  # fmt: skip
ARTEMIS = ["subscription:1", "message-id:12,345", "destination:orders", "expires:0", "redelivered:false",
           "priority:7", "timestamp:1700000000123", "persistent:true", "ack:12,345"]  # fmt: skip


def delivery(
    profile: Profile,
    lines: list[str],
    body: bytes = b"x",
    *,
    to: str = "queue://orders",
    version: str = "1.2",
) -> StompDelivery:
    """A delivery of this frame."""
    subscription = Subscription(Subscribe(1, to, window=10), 1, profile, version)
    return subscription.make(subscription, "\n".join(["MESSAGE", *lines]).encode(), body)


@pytest.mark.parametrize(
    ("profile", "lines", "identity"),
    [(Classic(), CLASSIC, "ID:vm-2:1"), (Artemis(), ARTEMIS, "345")],
    ids=["classic", "artemis"],
)
def test_what_a_frame_says(profile: Profile, lines: list[str], identity: str) -> None:
    """The broker's headers become the delivery's fields, and are no application properties."""
    seen = delivery(profile, [*lines, "reply-to:/queue/answers" if identity != "345" else "reply-to:queue\\c//answers",
                              "correlation-id:a\\cb", "type:order", "mine:1"])  # fmt: skip
    assert seen.key == ("queue://orders", identity, "1700000000123")
    assert (seen.destination, seen.priority, seen.persistent, seen.redelivered) == (
        "queue://orders",
        7,
        True,
        False,
    )
    assert (seen.reply_to, seen.correlation_id, seen.message_type) == ("queue://answers", "a:b", "order")
    assert seen.expires_at is None
    assert seen.expiration is None
    assert seen.timestamp is not None
    assert seen.timestamp.isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert dict(seen.headers) == {"mine": "1"}


def test_flags() -> None:
    """Only the broker's own lines count, not a property that looks like one."""
    lines = ["destination:/queue/orders", "message-id:1", "note:redelivered\\ctrue", "expires:1700000000000"]
    seen = delivery(Classic(), lines)
    assert (seen.redelivered, seen.persistent, seen.expires_at) == (False, False, 1700000000.0)
    assert delivery(Classic(), [*lines, "redelivered:true", "persistent:true"]).redelivered


def test_a_producers_property_changes_no_flag() -> None:
    """Artemis writes its own headers first; a property of the same name comes behind them."""
    own = ["message-id:1,7", "expires:1700000000000", "redelivered:false", "persistent:false"]
    seen = delivery(Artemis(), [*own, "expires:0", "redelivered:true", "persistent:true", "last:1"])
    assert (seen.redelivered, seen.persistent, seen.expires_at) == (False, False, 1700000000.0)


@pytest.mark.parametrize(
    ("profile", "extra", "body", "kind"),
    [
        (Classic(), [], b"text", "text"),
        (Classic(), ["content-length:1"], b"x", "bytes"),
        (Classic(), ["content-length:0"], b"", "bytes"),
        (Classic(), [], b"", "unknown"),
        (Classic(), ["redeliveryId:1"], b"", "text"),
        (Classic(), ["amq-msg-type:text", "content-length:3"], b"a\0b", "text"),
        (Artemis(), ["content-length:4"], b"text", "text"),
        (Artemis(), ["content-length:4"], b"\0map", "partial"),
        (Artemis(), ["content-length:0"], b"", "bytes"),
        (Artemis(), [], b"", "text"),
        (Artemis(), ["__AMQ_CID:1"], b"", "unknown"),
    ],
)
def test_body_kinds(profile: Profile, extra: list[str], body: bytes, kind: str) -> None:
    """What the measured table says of each kind of JMS message."""
    lines = CLASSIC if isinstance(profile, Classic) else ARTEMIS
    assert delivery(profile, [*lines, *extra], body).body_kind == kind


def test_bytes_on_artemis_have_their_length_in_front() -> None:
    """Its place is all that tells Bytes from Text."""
    assert delivery(Artemis(), ["subscription:1", "content-length:1", *ARTEMIS[1:]]).body_kind == "bytes"


def test_settlements() -> None:
    """1.2 names the handle as it stood on the wire; Artemis' is the message-id, whatever a producer put into `ack`."""
    assert delivery(Classic(), CLASSIC).settlement(b"ACK") == b"ACK\nid:ID\\cvm-1\\c1\n"
    forged = ["ack:9", *ARTEMIS]
    assert delivery(Artemis(), forged).settlement(b"ACK") == b"ACK\nid:12,345\n"
    old = delivery(Classic(), CLASSIC, version="1.1").settlement(b"NACK")
    assert old == b"NACK\nmessage-id:ID\\cvm-2\\c1\nsubscription:1\n"


@pytest.mark.parametrize(
    ("destination", "classic", "artemis"),
    [
        ("queue://a.b", "/queue/a.b", "a.b"),
        ("topic://a", "/topic/a", "a"),
        ("temp-queue://mine", "/temp-queue/mine", "mine"),
        ("temp-queue://ID:vm-1:2:3", "/remote-temp-queue/ID:vm-1:2:3", "ID:vm-1:2:3"),
        ("native:///queue/x?y", "/queue/x?y", "/queue/x?y"),
    ],
)
def test_addresses(destination: str, classic: str, artemis: str) -> None:
    """As the broker writes them; and back, but for Artemis, whose addresses have no kind."""
    assert Classic().address(destination) == classic
    assert Artemis().address(destination) == artemis
    if not destination.startswith("native"):
        assert Classic().qualified(classic, "queue") == destination
        assert Artemis().qualified(artemis, destination.partition("://")[0]) == destination


def test_patterns_and_replies_on_artemis() -> None:
    """Classic's `>` is Artemis' `#`; an answer's address tells its kind."""
    assert Artemis().pattern("queue://a.>") == "a.#"
    assert Artemis().pattern("topic://>") == "#"
    assert Artemis().pattern("queue://a.*.b>") == "a.*.b>"
    assert Artemis().pattern("native://a.>") == "a.>"
    assert Classic().pattern("queue://a.>") == "/queue/a.>"
    assert Artemis().reply_address("queue://a") == "queue://a"
    assert Artemis().reply_address("native://a") == "a"


@pytest.mark.parametrize("body", [b"", b"x", b"a\0b"])
def test_a_copys_kind(body: bytes) -> None:
    """Bytes always with content-length; Text without, save with a NUL, which only Classic can carry as Text."""
    length = ("content-length", len(body))
    data, text = Outgoing("queue://d", body), Outgoing("queue://d", body, body_kind="text")
    assert list(Classic().send_headers(data)) == [length]
    assert list(Artemis().send_headers(data)) == [("destination-type", "ANYCAST"), length]
    nul = b"\0" in body
    assert list(Classic().send_headers(text)) == ([("amq-msg-type", "text"), length] if nul else [])
    assert list(Artemis().send_headers(text)) == [("destination-type", "ANYCAST"), *([length] if nul else [])]


def test_a_copys_own_headers() -> None:
    """On Artemis an id by which a second copy is dropped: of the address and the broker's number, nobody else's."""
    seen = delivery(Artemis(), [*ARTEMIS, "_AMQ_DUPL_ID:theirs"])
    headers = dict(Artemis().copy_headers(Forward(seen, Outgoing("queue://DLQ", b"x"), Cause("why"), 1)))
    assert headers["_AMQ_ORIG_ADDRESS"] == headers["_AMQ_ORIG_QUEUE"] == "orders"
    assert headers["_AMQ_DUPL_ID"] == "redelivery:queue://orders:345"
    assert {"_AMQ_DUPL_ID", "AMQ_SCHEDULED_DELAY", "JMSXDeliveryCount", "__AMQ_CID"} <= NEVER_COPIED
    assert {"ack", "message-id", "destination", "content-length", "receipt"} <= PROTOCOL


@pytest.mark.parametrize(
    ("server", "kind"),
    [
        ("ActiveMQ-Artemis/2.40.0 ActiveMQ Artemis", Artemis),
        ("ActiveMQ/6.1.7", Classic),
        ("RabbitMQ/3.10.8", RabbitMQ),
    ],
)
def test_which_broker_it_is(server: str, kind: type[Profile]) -> None:
    """By its own name."""
    assert isinstance(profile_for(server), kind)


@pytest.mark.parametrize("server", ["Apollo/1.7", ""])
def test_other_brokers_are_refused(server: str) -> None:
    """Nobody has measured what they do with a poison acknowledgement."""
    with pytest.raises(ConfigurationError, match="not supported yet"):
        profile_for(server)


def test_where_a_broker_says_that_a_dead_letter_came_from() -> None:
    """Each in headers of its own; of why it died they tell only what they did themselves."""
    multicast = ["_AMQ_ORIG_ADDRESS:orders", "_AMQ_ORIG_ROUTING_TYPE:0"]
    for profile, lines, origin, died_of in (
        (Classic(), ["original-destination:/queue/a"], "queue://a", None),
        (Classic(), ["original-destination:/topic/a", "dlqDeliveryFailureCause:x"], "topic://a", "x"),
        (Classic(), ["dlqDeliveryFailureCause:java.lang.Throwable\\c Message Expired 7"], None, "expired"),
        (Artemis(), ["_AMQ_ORIG_ADDRESS:orders", "_AMQ_ORIG_QUEUE:orders"], "queue://orders", None),
        (Artemis(), [*multicast, "_AMQ_ACTUAL_EXPIRY:5"], "topic://orders", "expired"),
        (RabbitMQ(), ["x-first-death-queue:a", "x-first-death-reason:rejected"], "queue://a", None),
        (RabbitMQ(), ["x-first-death-queue:a", "x-first-death-reason:expired"], "queue://a", "expired"),
    ):
        seen = delivery(profile, ["subscription:1", *lines])
        assert (seen.origin, seen.died_of) == (origin, died_of), lines
