"""Deliveries over AMQP: the properties that they show, and those that a copy keeps."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.amqp.peer import proton

from redelivery.core.commands import Forward, Subscribe
from redelivery.core.delivery import Cause, Delivery
from redelivery.core.outgoing import Outgoing
from redelivery.message import Message
from redelivery.uri.parser import parse_uri
from redelivery_amqp.delivery import AmqpDelivery
from redelivery_amqp.message_copies import copied
from redelivery_amqp.message_encoding import encoded
from redelivery_amqp.profiles import AmqpArtemis, AmqpBrokerJ, AmqpClassic, AmqpRabbitMQ, AmqpRabbitMQ4
from redelivery_amqp.receiver import ReceiverLink

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery_amqp.profile_base import AmqpProfile

AT = 1_800_000_000.0


def delivery(
    data: bytes, destination: str = "queue://orders", profile: AmqpProfile | None = None
) -> AmqpDelivery:
    receiver = ReceiverLink(Subscribe(1, destination, 100), 1, profile or AmqpArtemis(), lambda _: None)
    return AmqpDelivery(receiver, data, None, 0, AT)


def message(body: Any = b"body", *, inferred: bool = True, **fields: Any) -> bytes:
    made = proton.Message(body=body, **fields)
    made.inferred = inferred
    return bytes(made.encode())


def test_a_bare_message_has_defaults() -> None:
    """A message with only a body has AMQP's defaults, no identity and no time."""
    bare = delivery(b"\0Su\xa0\x02hi")
    assert bare.body == b"hi"
    assert (bare.key, bare.message_id, bare.group, bare.reply_to, bare.timestamp) == (None,) * 5
    assert (bare.persistent, bare.priority, bare.broker_count, bare.redelivered) == (False, 4, 0, False)
    assert (bare.expires_at, bare.expiration, bare.content_type, bare.headers) == (None, None, None, {})


@pytest.mark.parametrize(
    ("destination", "classic"),
    [
        ("queue://orders", False),
        ("temp-queue://mine", False),
        ("topic://orders", True),
        ("native://orders", True),
    ],
)
def test_only_classic_keeps_too_few_letters_of_a_topic(destination: str, *, classic: bool) -> None:
    """On Classic a rejection leaves too few dead letters where the destination is not known to be a queue."""
    assert delivery(message(), destination, AmqpClassic()).fanned_out is classic
    assert delivery(message(), destination).fanned_out is False


@pytest.mark.parametrize(("profile", "late"), [(AmqpClassic(), 0.0), (AmqpArtemis(), 0.5)])
def test_a_delayed_copy_on_classic_expires_with_its_original(profile: AmqpProfile, late: float) -> None:
    """Classic's scheduler is late and moves the expiry by that: a delayed copy still expires on time."""
    told = {"redeliveryCopy": "run-1@queue://orders", "redeliveryExpires": str(int((AT + 3) * 1000))}
    copy = encoded(Outgoing("queue://orders", b"x", headers=told, expires_at=AT + 3.5), profile, AT)
    assert delivery(copy, profile=profile).expires_at == AT + 3 + late


def test_what_was_sent_is_what_is_seen() -> None:
    """Each property of a message that this library sends arrives."""
    sent = Outgoing(
        "queue://orders", b"text", "text", {"n": 1, "s": "x"}, content_type="text/plain", correlation_id="c",
        reply_to="queue://answers", message_type="kind", priority=7, group="g", expires_at=AT + 60, persistent=True,
    )  # fmt: skip
    seen = delivery(encoded(sent, AmqpArtemis(), AT))
    assert (seen.body, seen.body_kind, dict(seen.headers)) == (b"text", "text", {"n": 1, "s": "x"})
    assert (seen.content_type, seen.correlation_id, seen.reply_to) == ("text/plain", "c", "queue://answers")
    assert (seen.message_type, seen.priority, seen.group, seen.persistent) == ("kind", 7, "g", True)
    assert seen.expires_at == AT + 60
    assert seen.timestamp == datetime.fromtimestamp(AT, UTC)


def test_a_time_to_live_of_months_is_sent() -> None:
    """A time to live above 49 days (32 bits of milliseconds) is sent as `absolute-expiry-time` only."""
    for days, ttl in ((49, 49 * 86400.0), (50, 0.0)):
        sent = Outgoing("queue://orders", b"", "text", {}, expires_at=AT + days * 86400)
        wire = proton.Message()
        wire.decode(encoded(sent, AmqpArtemis(), AT))
        assert (wire.ttl, wire.expiry_time) == (ttl, AT + days * 86400)


@pytest.mark.parametrize(
    ("body", "inferred", "seen", "kind", "value"),
    [
        (b"\0\xff" * 200, True, b"\0\xff" * 200, "bytes", b"\0\xff" * 200),
        (b"", True, b"", "bytes", b""),
        ("h\u00e9", False, "h\u00e9".encode(), "text", "h\u00e9"),
        ("x" * 300, False, b"x" * 300, "text", "x" * 300),
        (b"binary value", False, b"binary value", "bytes", b"binary value"),
        ({"a": 1, "b": b"\0"}, False, None, "bytes", {"a": 1, "b": b"\0"}),
        ([1, "two", None], False, None, "bytes", [1, "two", None]),
        (42, False, None, "bytes", 42),
    ],
)
def test_bodies(body: Any, inferred: bool, seen: bytes | None, kind: str, value: Any) -> None:
    """A body of any type is shown as bytes in `body`, and decoded in `value`."""
    arrived = delivery(message(body, inferred=inferred))
    assert isinstance(arrived.body, bytes)
    assert seen is None or arrived.body == seen
    assert arrived.body_kind == kind
    assert arrived.value == value


def test_several_data_sections_are_one_body() -> None:
    """Several data sections are one body: a producer may split it."""
    assert delivery(b"\0Su\xa0\x02hi\0Su\xb0\x00\x00\x00\x01!").body == b"hi!"


def test_sections_with_long_descriptors() -> None:
    """Sections with descriptors of eight bytes are found."""
    long = b"\0\x80" + (0x75).to_bytes(8, "big") + b"\xa0\x02hi"
    assert delivery(long).body == b"hi"


def test_what_is_no_message_is_its_own_body() -> None:
    """Bytes that are not a message are shown as the body, unchanged; it is never empty."""
    garbled = delivery(b"\xff\xfe")
    assert garbled.body == b"\xff\xfe"
    assert (garbled.key, garbled.value, dict(garbled.headers)) == (None, b"\xff\xfe", {})


@pytest.mark.parametrize("identity", [1, "1", b"1", uuid.UUID(int=1)])
def test_ids_of_every_kind(identity: Any) -> None:
    """Ids of AMQP's four types differ, even if their texts are equal."""
    arrived = delivery(message(id=proton.ulong(identity) if isinstance(identity, int) else identity))
    others = [delivery(message(id=other)).key for other in (proton.ulong(1), "1", b"1", uuid.UUID(int=1))]
    assert others.count(arrived.key) == 1
    assert isinstance(arrived.message_id, str)


def test_one_id_at_two_times_is_two_messages() -> None:
    """Two messages with one id are one message only if their creation times are equal."""
    first, again, later = (delivery(message(id="x", creation_time=AT + s)).key for s in (0, 0, 1))
    assert first == again != later


def test_our_own_id_stands_in_for_an_absent_one() -> None:
    """The library's own id is used if there is no message-id: Classic's STOMP consumers cannot acknowledge one."""
    arrived = delivery(message(properties={"redeliveryId": "u"}))
    assert arrived.message_id == "u"
    assert arrived.key is not None


def test_counts_and_marks() -> None:
    """The header's delivery-count is the broker's count; first-acquirer counts only on RabbitMQ."""
    counted = delivery(message(delivery_count=2))
    assert (counted.broker_count, counted.redelivered) == (2, True)
    first, again = message(first_acquirer=True), message(durable=True, priority=4, ttl=1.0)
    assert not delivery(first, profile=AmqpRabbitMQ()).redelivered
    assert not delivery(again, profile=AmqpArtemis()).redelivered
    later = proton.Message(body=b"")
    later.first_acquirer, later.delivery_count = False, 0
    assert not delivery(bytes(later.encode()), profile=AmqpClassic()).redelivered


def test_a_message_without_an_absolute_expiry_lives_from_its_arrival() -> None:
    """Without an absolute expiry a message expires its `ttl` after its arrival: Broker-J sends the rest of it."""
    assert delivery(message(ttl=5.0)).expires_at == AT + 5


@pytest.mark.parametrize(
    ("profile", "to", "seen"),
    [
        (AmqpClassic(), "queue://shop.orders", "queue://shop.orders"),
        (AmqpArtemis(), "shop.orders", "queue://shop.orders"),
        (AmqpBrokerJ(), "shop.orders", "queue://shop.orders"),
    ],
)
def test_a_wildcard_consumer_sees_each_messages_own_destination(
    profile: AmqpProfile, to: str, seen: str
) -> None:
    """A wildcard consumer sees each message's own destination; any other consumer that of its subscription."""
    data = message(address=to)
    assert delivery(data, "queue://shop.>", profile).destination == seen
    assert delivery(data, "queue://DLQ", profile).destination == "queue://DLQ"


def copy_of(original: AmqpDelivery, profile: AmqpProfile) -> AmqpDelivery:
    headers = {**original.headers, "redeliveryCause": "ValueError: x"}
    copy = Outgoing("queue://DLQ", original.body, original.body_kind, headers, priority=original.priority)
    return delivery(
        copied(Forward(original, copy, Cause("ValueError: x"), 3), original, profile, AT), "queue://DLQ"
    )


@pytest.mark.parametrize(
    ("body", "inferred"),
    [(b"\0\xff", True), ("t", False), ({"a": [1, {"b": proton.uint(2)}]}, False), ([1], True)],
)
def test_a_copy_keeps_the_body_byte_for_byte(body: Any, inferred: bool) -> None:
    """A copy keeps the encoded body byte for byte, of any type."""
    original = delivery(message(body, inferred=inferred))
    copy = copy_of(original, AmqpArtemis())
    assert [original.raw[a - 3 : b] for _, a, b in original.places[-1:]] == [
        copy.raw[a - 3 : b] for _, a, b in copy.places[-1:]
    ]
    assert copy.value == original.value


def test_a_copy_keeps_what_the_application_sees() -> None:
    """A copy keeps the types of properties and correlation id, the JMS type, group, subject and content type."""
    made = proton.Message(
        body={"k": "v"}, correlation_id=uuid.UUID(int=3), subject="kind", reply_to="answers"
    )
    made.properties = {"small": proton.ubyte(3), "at": proton.timestamp(9), "t": "x", "_AMQ_DUPL_ID": "app"}
    made.annotations = {
        proton.symbol("x-opt-jms-msg-type"): proton.byte(2),
        proton.symbol("x-opt-delivery-delay"): 5,
    }
    made.content_type, made.group_id, made.priority = "application/x", "g", 9
    copy = copy_of(delivery(bytes(made.encode())), AmqpClassic())
    decoded = proton.Message()
    decoded.decode(copy.raw)
    properties = decoded.properties or {}
    assert decoded.correlation_id == uuid.UUID(int=3)
    assert type(properties["small"]) is proton.ubyte
    assert type(properties["at"]) is proton.timestamp
    assert "_AMQ_DUPL_ID" not in properties
    assert properties["dlqDeliveryFailureCause"] == "ValueError: x"
    assert copy.annotations == {"x-opt-jms-msg-type": 2}
    assert (copy.content_type, copy.group, copy.message_type, copy.priority) == (
        "application/x",
        "g",
        "kind",
        9,
    )
    assert (copy.reply_to, copy.persistent, decoded.id) == ("queue://answers", True, None)


# What producers, RabbitMQ 4 and Artemis write into annotations; a broker acts on none of these.
KEPT = {
    "x-tenant": "acme", "x-list": ["a", proton.int32(1), {proton.symbol("k"): True}], "x-basic-type": "order.created",
    "x-opt-mine": proton.ubyte(3), "x-opt-jms-reply-to": proton.byte(1), "x-opt-partition-key": "p",
    # Each begins as one of those below.
    "x-ccy": "EUR", "x-cc-email": "a@b", "x-exchange-rate": 1.5, "x-routing-keyword": "k", "x-delivery-counter": 7,
    "x-deathdate": "d", "x-acquired-counter": 1, "x-opt-deaths-head": "d", "x-opt-to-types": "t",
    "x-opt-jms-destiny": "d", "x-opt-routing-types": "t", "x-opt-ingress-times": 1,
    "x-opt-ACTUAL-EXPIRY-DATE": "d", "x-qpid-not-valid-before-noon": "n",
}  # fmt: skip
ACTED_ON = [
    "x-opt-delivery-time", "x-opt-delivery-delay", "x-opt-delivery-cron", "x-qpid-not-valid-before",
    "x-opt-ORIG-ADDRESS", "x-opt-ORIG-MESSAGE-ID", "x-opt-ACTUAL-EXPIRY", "x-death", "x-first-death-queue",
    "x-last-death-reason", "x-opt-deaths", "x-opt-redeliveryCount", "x-opt-redeliveryCause", "x-opt-jms-dest",
    "x-opt-to-type", "x-opt-routing-type", "x-exchange", "x-routing-key", "x-cc", "x-acquired-count",
    "x-delivery-count", "x-opt-amq-mr-adr", "x-opt-ingress-time", "x-opt-rabbitmq-received-time",
]  # fmt: skip


@pytest.mark.parametrize("profile", [AmqpClassic, AmqpArtemis, AmqpBrokerJ, AmqpRabbitMQ, AmqpRabbitMQ4])
@pytest.mark.parametrize("redrive", [False, True])
def test_a_copy_keeps_annotations_except_those_that_a_broker_acts_on(
    profile: type[AmqpProfile], redrive: bool
) -> None:
    """Lists, maps and types of annotations stay; no delay, route, record of a death or note comes back to a broker."""
    told = KEPT | dict.fromkeys(ACTED_ON, 7)
    found = delivery(message(annotations={proton.symbol(name): value for name, value in told.items()}))
    out = Outgoing("queue://DLQ", found.body)
    command = Forward(found, out, Cause("ValueError: x"), 2, redrive=redrive)
    decoded = proton.Message()
    decoded.decode(copied(command, found, profile(), AT))
    kept = {str(name): value for name, value in (decoded.annotations or {}).items()}
    records = {"x-opt-ORIG-ADDRESS": "orders", "x-opt-ORIG-QUEUE": "orders"}
    assert kept == (KEPT | records if profile is AmqpArtemis and not redrive else KEPT)
    assert type(kept["x-opt-mine"]) is proton.ubyte


def test_a_copy_keeps_properties_whose_names_begin_as_those_that_a_broker_acts_on() -> None:
    """A whole name is left out of a copy; a longer one, which is the producer's, stays."""
    left_out = ["_AMQ_DUPL_ID", "scheduledJobId", "redeliveryDelay", "original-destination", "x-death"]
    theirs = {f"{name}s": "v" for name in left_out}
    copy = copy_of(delivery(message(properties=theirs | dict.fromkeys(left_out, "v"))), AmqpBrokerJ())
    assert {name: copy.headers.get(name) for name in (*theirs, *left_out)} == theirs | dict.fromkeys(left_out)


def test_a_handler_reads_annotations_and_changes_none() -> None:
    """A handler sees annotations by name as text, nested values too, read-only; and how the body is compressed."""
    told = {proton.symbol(name): value for name, value in KEPT.items()}
    told[proton.symbol("x-opt-ORIG-QUEUE")] = "q"
    found = delivery(message(annotations=told, content_encoding="gzip"), profile=AmqpRabbitMQ4())
    seen = Message(found, cast("Any", None))
    assert dict(seen.annotations) == {**KEPT, "x-opt-ORIG-QUEUE": "q"}
    assert seen.annotations["x-list"][2] == {"k": True}
    assert (seen.content_encoding, seen.message_type) == ("gzip", "order.created")
    with pytest.raises(TypeError):
        cast("dict[str, Any]", seen.annotations)["x-tenant"] = "other"
    assert Message(Delivery(1, 1, b""), cast("Any", None)).annotations == {}


def test_rabbitmq_gets_no_annotation_that_it_refuses() -> None:
    """RabbitMQ 4 detaches a sender over a name without `x-`, and each consumer of a null: its copies have neither."""
    told = {"x-a": [None], "trace": "t", "x-none": None}
    found = delivery(message(annotations={proton.symbol(name): value for name, value in told.items()}))
    for profile, names in ((AmqpRabbitMQ4(), ["x-a"]), (AmqpClassic(), list(told))):
        assert list(copy_of(found, profile).annotations) == names


@pytest.mark.parametrize(("user", "kept"), [("me", b"me"), ("another", None), (None, None)])
def test_rabbitmq_gets_no_user_id_of_another_user(user: str | None, kept: bytes | None) -> None:
    """RabbitMQ refuses a copy with the `user-id` of another user than the consumer's; the others take it."""
    found = delivery(message(user_id=b"me", content_encoding="gzip"))
    settings = parse_uri(
        "amqp://localhost" + ("" if user is None else f"?jms.userName={user}&jms.password=p")
    )
    for profile in (AmqpRabbitMQ(settings), AmqpRabbitMQ4((), settings)):
        copy = copy_of(found, profile)
        assert (copy.field(1), copy.content_encoding) == (kept, "gzip")
    assert copy_of(found, AmqpArtemis(settings)).field(1) == b"me"


@pytest.mark.parametrize(("profile", "annotation", "value"), [
    (AmqpClassic(), "x-opt-delivery-delay", 1500),
    (AmqpArtemis(), "x-opt-delivery-delay", 1500),
    (AmqpBrokerJ(), "x-opt-delivery-time", int(AT * 1000) + 1500),
])  # fmt: skip
def test_delays(profile: AmqpProfile, annotation: str, value: int) -> None:
    """A delay is a plain number: for Broker-J a time, for the others milliseconds from now."""
    sent = encoded(Outgoing("queue://q", b"", delay=1.5), profile, AT)
    assert delivery(sent, profile=profile).annotations[annotation] == value


def test_a_copy_tells_its_own_story() -> None:
    """A copy of a dead letter has the dead-letter properties of its last death, not those of the original."""
    raw = message(b"x", properties={"redeliveryCause": "old", "redeliveryRedrives": "1", "nr": 7})
    dead = delivery(raw)
    headers = {"redeliveryCause": "new", "redeliveryRedrives": "2", "nr": "7"}
    for redrive, told in ((False, {"_AMQ_ORIG_ADDRESS": "orders", "_AMQ_ORIG_QUEUE": "orders"}), (True, {})):
        command = Forward(
            dead, Outgoing("queue://a", b"x", headers=headers), Cause("new"), 1, redrive=redrive
        )
        again = delivery(copied(command, dead, AmqpArtemis(), AT))
        assert again.headers == {"redeliveryCause": "new", "redeliveryRedrives": "2", "nr": 7, **told}


def test_where_artemis_says_that_a_dead_letter_came_from() -> None:
    """The origin of a dead letter of Artemis is in annotations; another queue name than the address is a topic."""
    for queue, origin in (("orders", "queue://orders"), ("a.subscription", "topic://orders")):
        told = {proton.symbol("x-opt-ORIG-ADDRESS"): "orders", proton.symbol("x-opt-ORIG-QUEUE"): queue}
        assert delivery(message(annotations=told)).origin == origin
    assert delivery(message()).origin is None
    expired = {proton.symbol("x-opt-ACTUAL-EXPIRY"): 5}
    assert delivery(message(annotations=expired)).died_of == "expired"
    assert (
        delivery(message(properties={"dlqDeliveryFailureCause": "x: Message Expired"})).died_of == "expired"
    )


@pytest.mark.parametrize("body", [bytes(5000), b"x" * 200, "text" * 2000, {"a": [1] * 3000}])
def test_a_message_that_is_let_go_of_keeps_all_but_a_large_body(body: Any) -> None:
    """A message that was let go of keeps everything except a large body: thousands of them are remembered."""
    seen = delivery(
        message(body, inferred=isinstance(body, bytes), id="m-1", properties={"n": 1}, creation_time=AT)
    )
    key = seen.key
    seen.let_go()
    assert (seen.body, seen.key, dict(seen.headers)) == (b"", key, {"n": 1})
    assert len(seen.raw) < 300 or not isinstance(body, bytes)


@pytest.mark.parametrize("end", [AmqpDelivery.let_go, AmqpDelivery.slim])
def test_values_that_were_read_are_not_kept_once_it_is_accepted(
    end: Callable[[AmqpDelivery], object],
) -> None:
    """Decoded values are dropped when a message is accepted: they need many times the memory of its bytes."""
    seen = delivery(message(id="m-1", properties={"n": 1}, creation_time=AT))
    assert (seen.key, dict(seen.headers)) == (seen.key, {"n": 1})
    end(seen)
    assert (seen._properties, seen._fields) == (None, {})
    assert (seen.message_id, dict(seen.headers)) == ("m-1", {"n": 1})


@pytest.mark.parametrize(
    "properties", [{"a": proton.Array(proton.UNDESCRIBED, proton.Data.NULL)}, {str(n): n for n in range(200)}]
)
def test_large_properties_are_not_kept_while_a_message_waits(properties: dict[str, Any]) -> None:
    """Large properties of a parked message are dropped: 47 bytes of empty lists need 4.5 MiB when decoded."""
    seen = delivery(message(properties=properties))
    assert set(seen.headers) == set(properties)
    assert seen._properties is None
