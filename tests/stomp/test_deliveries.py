"""A MESSAGE frame as a delivery, per broker: identity, body kind, addresses, settlement (docs/measured/index.md)."""

from __future__ import annotations

from typing import Any

import pytest

from redelivery.core.commands import Forward, Subscribe
from redelivery.core.dead_lettering.dead_letter_headers import never_copied
from redelivery.core.delivery import Cause
from redelivery.core.outgoing import Outgoing
from redelivery.errors import ConfigurationError
from redelivery.uri.parser import parse_uri
from redelivery_stomp.delivery import StompDelivery, Subscription
from redelivery_stomp.headers import copy_of, send_headers
from redelivery_stomp.profile_base import PROTOCOL, StompProfile
from redelivery_stomp.profiles import StompArtemis, StompClassic, StompRabbitMQ, profile_for


@pytest.mark.parametrize(
    ("version", "limit"), [("3.10.8", None), ("4.0.5", 20), ("4.2", 20), ("4.3.6", None), ("", None)]
)
def test_a_release_may_count_on_rabbitmq(version: str, limit: int | None) -> None:
    """Before 4.3 RabbitMQ 4 has quorum queues that count releases; over STOMP it is not known which queues are some."""
    able = StompRabbitMQ().able(version)
    assert (able.version, able.release_limit) == (version, limit)


CLASSIC = [
    "subscription:1", "destination:/queue/orders", "ack:ID\\cvm-1\\c1", "message-id:ID\\cvm-2\\c1", "expires:0",
    "priority:7", "timestamp:1700000000123", "persistent:true",
]  # fmt: skip
ARTEMIS = ["subscription:1", "message-id:12,345", "destination:orders", "expires:0", "redelivered:false",
           "priority:7", "timestamp:1700000000123", "persistent:true", "ack:12,345"]  # fmt: skip


def delivery(
    profile: StompProfile,
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
    [(StompClassic(), CLASSIC, "ID:vm-2:1"), (StompArtemis(), ARTEMIS, "345")],
    ids=["classic", "artemis"],
)
def test_what_a_frame_says(profile: StompProfile, lines: list[str], identity: str) -> None:
    """The broker's headers become the delivery's fields, and are not application properties."""
    seen = delivery(profile, [*lines, "reply-to:/queue/answers" if identity != "345" else "reply-to:queue\\c//answers",
                              "correlation-id:a\\cb", "type:order", "mine:1"])  # fmt: skip
    assert seen.key == ("queue://orders", identity, "1700000000123")
    assert seen.message_id == identity
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
    """A flag is read from the broker's own lines, not from a property that looks like one."""
    lines = ["destination:/queue/orders", "message-id:1", "note:redelivered\\ctrue", "expires:9900000000000"]
    seen = delivery(StompClassic(), lines)
    assert (seen.redelivered, seen.persistent, seen.expires_at) == (False, False, 9900000000.0)
    assert delivery(StompClassic(), [*lines, "redelivered:true", "persistent:true"]).redelivered


def test_a_producers_property_changes_no_flag() -> None:
    """A property with the name of a flag changes nothing: Artemis writes its own headers before it."""
    own = ["message-id:1,7", "expires:1700000000000", "redelivered:false", "persistent:false"]
    seen = delivery(StompArtemis(), [*own, "expires:0", "redelivered:true", "persistent:true", "last:1"])
    assert (seen.redelivered, seen.persistent, seen.expires_at) == (False, False, 1700000000.0)


def test_settlements() -> None:
    """A settlement of 1.2 names the handle as it was on the wire; on Artemis that is the message-id, never `ack`."""
    assert delivery(StompClassic(), CLASSIC).settlement(b"ACK") == b"ACK\nid:ID\\cvm-1\\c1\n"
    forged = ["ack:9", *ARTEMIS]
    assert delivery(StompArtemis(), forged).settlement(b"ACK") == b"ACK\nid:12,345\n"
    old = delivery(StompClassic(), CLASSIC, version="1.1").settlement(b"NACK")
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
    """An address is written as the broker writes it, and read back; addresses of Artemis have no kind."""
    assert StompClassic().address(destination) == classic
    assert StompArtemis().address(destination) == artemis
    if not destination.startswith("native"):
        assert StompClassic().qualified(classic, "queue") == destination
        assert StompArtemis().qualified(artemis, destination.partition("://")[0]) == destination


def test_patterns_and_replies_on_artemis() -> None:
    """Classic's `>` is written as Artemis' `#`; a `reply-to` address includes its kind."""
    assert StompArtemis().pattern("queue://a.>") == "a.#"
    assert StompArtemis().pattern("topic://>") == "#"
    assert StompArtemis().pattern("queue://a.*.b>") == "a.*.b>"
    assert StompArtemis().pattern("native://a.>") == "a.>"
    assert StompClassic().pattern("queue://a.>") == "/queue/a.>"
    assert StompArtemis().reply_address("queue://a") == "queue://a"
    assert StompArtemis().reply_address("native://a") == "a"


@pytest.mark.parametrize("body", [b"", b"x", b"a\0b"])
def test_a_copys_kind(body: bytes) -> None:
    """Bytes have a content-length; Text has none, except with a NUL in it, which only Classic can carry as Text."""
    length = ("content-length", len(body))
    data, text = Outgoing("queue://d", body), Outgoing("queue://d", body, body_kind="text")
    assert list(StompClassic().send_headers(data)) == [length]
    assert list(StompArtemis().send_headers(data)) == [("destination-type", "ANYCAST"), length]
    nul = b"\0" in body
    assert list(StompClassic().send_headers(text)) == ([("amq-msg-type", "text"), length] if nul else [])
    assert list(StompArtemis().send_headers(text)) == [
        ("destination-type", "ANYCAST"),
        *([length] if nul else []),
    ]


def test_a_copys_own_headers() -> None:
    """A copy on Artemis has an id by which a second copy is dropped, made of the broker's number, time and queue."""
    seen = delivery(StompArtemis(), [*ARTEMIS, "_AMQ_DUPL_ID:theirs"])
    headers = dict(StompArtemis().copy_headers(Forward(seen, Outgoing("queue://DLQ", b"x"), Cause("why"), 1)))
    assert headers["_AMQ_ORIG_ADDRESS"] == headers["_AMQ_ORIG_QUEUE"] == "orders"
    assert headers["_AMQ_DUPL_ID"] == "redelivery:345:1700000000123:orders"
    assert all(map(never_copied, ("_AMQ_DUPL_ID", "AMQ_SCHEDULED_DELAY", "JMSXDeliveryCount", "__AMQ_CID")))
    assert {"ack", "message-id", "destination", "content-length", "receipt"} <= PROTOCOL


@pytest.mark.parametrize(
    ("consumed", "told", "origin", "address", "queue"),
    [
        ("queue://orders", "shop", "queue://orders", "shop", "orders"),
        ("native://shop::orders", "shop", "native://shop::orders", "shop", "orders"),
        ("queue://orders.*", "orders.eu", "queue://orders.eu", "orders.eu", "orders.eu"),
        ("topic://news", "news", "topic://news", "news", "news"),
        ("native://shop", "shop", "native://shop", "shop", "shop"),
    ],
)
def test_the_queue_that_is_consumed_is_where_a_message_came_from(
    consumed: str, told: str, origin: str, address: str, queue: str
) -> None:
    """Artemis sends the address, which other queues have, too; the queue of a wildcard is the one that it names."""
    lines = [*(line for line in ARTEMIS if not line.startswith("destination:")), f"destination:{told}"]
    seen = delivery(StompArtemis(), lines, to=consumed)
    assert seen.destination == origin
    headers = dict(StompArtemis().copy_headers(Forward(seen, Outgoing("queue://DLQ", b"x"), Cause("why"), 1)))
    assert (headers["_AMQ_ORIG_ADDRESS"], headers["_AMQ_ORIG_QUEUE"]) == (address, queue)


def copy_id(
    destination: str,
    *,
    client_id: str = "app",
    durable: str | None = None,
    owner: str = "a",
    consumer: int = 1,
) -> str:
    """The id of a copy on Artemis, of message 345 at address `orders` as one subscriber got it."""
    profile = profile_for("", "artemis", parse_uri(f"stomp://localhost?jms.clientID={client_id}"))
    command = Subscribe(consumer, destination, window=10, subscription=durable)
    subscription = Subscription(command, 1, profile, "1.2", owner)
    seen = subscription.make(subscription, "\n".join(["MESSAGE", *ARTEMIS]).encode(), b"x")
    copied = Forward(seen, Outgoing("queue://DLQ", b"x"), Cause("why"), 1)
    (again,) = dict(profile.redrive_headers(copied)).values()
    assert dict(profile.copy_headers(copied))["_AMQ_DUPL_ID"] == again
    return str(again)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"owner": "a"}, {"owner": "b"}),
        ({"consumer": 1}, {"consumer": 2}),
        ({"durable": "s", "client_id": "A"}, {"durable": "s", "client_id": "B"}),
        ({"durable": "s"}, {"durable": "t"}),
        ({"durable": "s"}, {}),
    ],
    ids=["two connections", "two consumers", "two client ids", "two names", "durable and plain"],
)
def test_two_subscribers_of_a_topic_have_two_copies(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Copies of one message from two subscribers have two ids on Artemis: it would drop the second dead letter."""
    assert copy_id("topic://orders", **one) != copy_id("topic://orders", **other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("queue://orders", "queue://>"),
        ("queue://orders.*", "queue://>"),
        ("native://orders::a", "native://orders::b"),
        ("queue://orders::a", "queue://orders::b"),
        ("queue://orders", "topic://orders"),
    ],
)
def test_one_message_in_two_queues_has_two_copies(one: str, other: str) -> None:
    """Copies of one message from two queues of its address have two ids on Artemis."""
    assert copy_id(one) != copy_id(other)


@pytest.mark.parametrize(
    ("destination", "durable"),
    [
        ("queue://orders", None), ("queue://>", None), ("temp-queue://orders", None), ("native://orders::a", None),
        ("topic://orders", "s"), ("topic://>", "s"),
    ],
)  # fmt: skip
def test_a_second_copy_of_a_stored_message_has_the_id_of_the_first(
    destination: str, durable: str | None
) -> None:
    """Another consumer of the same queue, or durable subscription, makes the same id, also in another process."""
    first = copy_id(destination, durable=durable)
    assert copy_id(destination, durable=durable, owner="b", consumer=2) == first


def test_a_second_copy_of_a_plain_subscriber_has_the_id_of_the_first() -> None:
    """A consumer without a queue of a known name keeps its ids over the reconnects of its connection."""
    assert copy_id("native://orders") == copy_id("native://orders")
    assert copy_id("native://orders") != copy_id("native://orders", owner="b")


@pytest.mark.parametrize(
    ("server", "kind"),
    [
        ("ActiveMQ-Artemis/2.40.0 ActiveMQ Artemis", StompArtemis),
        ("ActiveMQ/6.1.7", StompClassic),
        ("RabbitMQ/3.10.8", StompRabbitMQ),
    ],
)
def test_which_broker_it_is(server: str, kind: type[StompProfile]) -> None:
    """The `server` header decides which broker it is."""
    assert isinstance(profile_for(server), kind)


@pytest.mark.parametrize("server", ["Apollo/1.7", ""])
def test_other_brokers_are_refused(server: str) -> None:
    """Other brokers are refused: what they do with a poison acknowledgement is not measured."""
    with pytest.raises(ConfigurationError, match="not supported yet"):
        profile_for(server)


def test_where_a_broker_says_that_a_dead_letter_came_from() -> None:
    """Each broker has its own headers for the origin of a dead letter, and for causes of its own."""
    multicast = ["_AMQ_ORIG_ADDRESS:orders", "_AMQ_ORIG_ROUTING_TYPE:0"]
    claim = "redeliveryOriginalDestination:topic\\c//orders"
    by_broker = "_AMQ_ORIG_MESSAGE_ID:7"
    for profile, lines, origin, died_of in (
        (StompClassic(), ["original-destination:/queue/a"], "queue://a", None),
        (StompClassic(), ["original-destination:/topic/a", "dlqDeliveryFailureCause:x"], "topic://a", "x"),
        (
            StompClassic(),
            ["dlqDeliveryFailureCause:java.lang.Throwable\\c Message Expired 7"],
            None,
            "expired",
        ),
        (StompArtemis(), ["_AMQ_ORIG_ADDRESS:orders", "_AMQ_ORIG_QUEUE:orders"], "queue://orders", None),
        # A copy has its own header for a topic; a message that Artemis dead-lettered has none.
        (StompArtemis(), ["_AMQ_ORIG_ADDRESS:orders", "_AMQ_ORIG_QUEUE:orders", claim], None, None),
        (StompArtemis(), ["_AMQ_ORIG_ADDRESS:orders", by_broker, claim], "queue://orders", None),
        (StompArtemis(), [*multicast, "_AMQ_ACTUAL_EXPIRY:5"], "topic://orders", "expired"),
        (StompRabbitMQ(), ["x-first-death-queue:a", "x-first-death-reason:rejected"], "queue://a", None),
        (StompRabbitMQ(), ["x-first-death-queue:a", "x-first-death-reason:expired"], "queue://a", "expired"),
    ):
        seen = delivery(profile, ["subscription:1", *lines])
        assert (seen.origin, seen.died_of) == (origin, died_of), lines


FORGED = [
    "original-destination:/queue/admin", "JMS_AMQP_MA_x-opt-ORIG-ADDRESS:admin", "_AMQ_ORIG_ADDRESS:admin",
    "_AMQ_ORIG_MESSAGE_ID:7", "x-first-death-queue:admin", "x-death:x", "mine:1",
]  # fmt: skip


@pytest.mark.parametrize(
    "profile", [StompClassic(), StompArtemis(), StompRabbitMQ()], ids=lambda p: type(p).__name__
)
def test_a_copy_has_no_record_of_its_producers(profile: StompProfile) -> None:
    """A copy has none of the headers of an earlier dead letter that a producer wrote: a redrive would trust them."""
    seen = delivery(profile, ["subscription:1", "destination:/queue/orders", "message-id:1,2", *FORGED])
    for redrive in (False, True):
        command = Forward(
            seen, Outgoing("queue://DLQ", b"x", headers=seen.headers), Cause("why"), 1, redrive=redrive
        )
        copy = delivery(
            profile,
            [
                "destination:/queue/DLQ",
                *(f"{name}:{value}" for name, value in copy_of(profile, command).headers.items()),
            ],
        )
        assert "admin" not in f"{copy.origin} {dict(copy.headers)}"
        assert copy.headers["mine"] == "1"


def test_a_copy_has_no_text_in_the_place_of_an_annotation_that_is_none() -> None:
    """A copy of an AMQP producer's message on Artemis lacks what keeps it from AMQP readers, and keeps the rest."""
    lines = [
        "JMS_AMQP_ENCODED_MA_x-opt-l:[B@6d72e8f5",
        "JMS_AMQP_MA_x-opt-jms-msg-type:5",
        "JMS_AMQP_MA_x-opt-jms-dest:0",
    ]
    seen = delivery(
        StompArtemis(), ["destination:orders", "message-id:1,2", *lines, "JMS_AMQP_MA_x-opt-mine:3", "n:1"]
    )
    copy = copy_of(
        StompArtemis(),
        Forward(seen, Outgoing("queue://DLQ", b"x", headers=seen.headers), Cause("why"), 1, redrive=True),
    )
    assert {name for name in copy.headers if name != "_AMQ_DUPL_ID"} == {"JMS_AMQP_MA_x-opt-mine", "n"}


PROPERTIES = [
    "subscription:1", "destination:/queue/orders", "message-id:1", "content-encoding:forged", "mine:1",
    "app-id:shop\\c1", "user-id:me", "content-encoding:gzip", "reply-to:/reply-queue/answers",
]  # fmt: skip


@pytest.mark.parametrize(("redrive", "delay"), [(False, None), (True, None), (False, 5.0)])
@pytest.mark.parametrize("user", ["me", "another"])
def test_a_copy_on_rabbitmq_keeps_the_properties_of_0_9_1(
    user: str, redrive: bool, delay: float | None
) -> None:
    """A dead letter, a redriven message and a delayed copy can be read: encoding and application stay, the user if his.

    RabbitMQ closes the connection over the `user-id` of another user.
    """
    profile = StompRabbitMQ(parse_uri(f"stomp://localhost?jms.userName={user}&jms.password=p"))
    seen = delivery(profile, PROPERTIES)
    assert (seen.content_encoding, dict(seen.headers)) == ("gzip", {"mine": "1"})
    out = Outgoing("queue://DLQ", b"x", headers=seen.headers, reply_to=seen.reply_to, delay=delay)
    copy = copy_of(profile, Forward(seen, out, Cause("why"), 1, redrive=redrive))
    sent = {name: value for name, value in send_headers(profile, copy) if value is not None}
    own = {name: sent.get(name) for name in ("content-encoding", "app-id", "user-id", "mine", "reply-to")}
    assert own == {
        "content-encoding": "gzip",
        "app-id": "shop:1",
        "user-id": "me" if user == "me" else None,
        "mine": "1",
        "reply-to": "answers",
    }


def test_an_expired_message_of_classic_is_no_copy() -> None:
    """An expired message counts as moved by Classic; a copy, with its cause in both headers, does not."""
    expired = "dlqDeliveryFailureCause:java.lang.Throwable\\c Message Expired 7"
    for lines, moved in (
        ([expired, "redeliveryCause:forged"], True),
        (["dlqDeliveryFailureCause:a", "redeliveryCause:a"], False),
        (["redeliveryCause:a"], False),
    ):
        assert delivery(StompClassic(), ["subscription:1", *lines]).moved is moved
    assert not delivery(StompArtemis(), ["subscription:1", expired]).moved


@pytest.mark.parametrize("profile", [StompClassic(), StompRabbitMQ()], ids=lambda p: type(p).__name__)
def test_a_kind_that_there_is_not(profile: StompProfile) -> None:
    """A destination of an unknown kind is an error that names it."""
    with pytest.raises(ConfigurationError, match="'bogus://x' must start with one of queue://"):
        profile.address("bogus://x")


@pytest.mark.parametrize(
    ("message_id", "amqp", "expected"),
    [
        ("ID\\cvm-44125-1795521604009-6\\c5\\c0\\c0\\c1", True, True),
        ("ID\\corder-1", True, False),
        ("ID\\cAMQP_ULONG\\c5", True, False),
        ("ID\\corder-1", False, True),
        ("", True, False),
    ],
)
def test_classic_acknowledges_ids_of_its_own_only(message_id: str, *, amqp: bool, expected: bool) -> None:
    """Only a message from AMQP with an id of its producer cannot be settled on Classic."""
    lines = [line for line in CLASSIC if not line.startswith("message-id")] + [f"message-id:{message_id}"]
    lines += ["JMS_AMQP_HEADER:true"] * amqp
    seen = delivery(StompClassic(), lines)
    assert (seen.settleable, StompClassic.capabilities.unsettleable) == (expected, True)
    for profile in (StompArtemis(), StompRabbitMQ()):
        assert delivery(profile, lines).settleable
        assert not profile.capabilities.unsettleable


@pytest.mark.parametrize("before", [True, False])
def test_a_message_is_the_same_in_each_delivery_whatever_its_producer_forged(*, before: bool) -> None:
    """The digest of a message leaves out handle, subscription and flag, also a producer's lines of these names."""

    def delivered(handle: str, *own: str) -> bytes:
        forged = ["x1:1", "ack:ID\\cvm-9\\c1", "redelivered:perhaps", "y:v"]
        lines = [f"subscription:{handle}", *CLASSIC[1:2], f"ack:{handle}", *CLASSIC[3:], *own]
        return delivery(StompClassic(), [*forged, *lines] if before else [*lines, *forged]).digest()

    assert delivered("ID\\cvm-1\\c1") == delivered("ID\\cvm-1\\c7", "redelivered:true")
    assert delivered("ID\\cvm-1\\c1") != delivered("ID\\cvm-1\\c1", "mine:1")


def test_a_large_header_block_is_not_kept_once_the_message_is_accepted() -> None:
    """An accepted message keeps only the lines of its key, as ten thousand are kept; the application's has all."""
    seen = delivery(StompArtemis(), [*ARTEMIS, "mine:" + "x" * 5000])
    kept = seen.let_go()
    assert isinstance(kept, StompDelivery)
    assert (kept.key, kept.strong, len(kept.head) < 300) == (seen.key, True, True)
    assert (seen.body, len(dict(seen.headers)["mine"])) == (b"", 5000)
    small = delivery(StompArtemis(), ARTEMIS)
    assert small.let_go() is small
