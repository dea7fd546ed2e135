"""Deliveries over AMQP that are restored from stored bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.amqp.test_delivery import AT, message
from tests.restored import again, is_plain, shown_by

from redelivery.core.commands import Subscribe
from redelivery.core.outgoing import Outgoing
from redelivery.driver.port import restorer
from redelivery.errors import ConfigurationError
from redelivery_amqp.delivery import AmqpDelivery
from redelivery_amqp.message_encoding import encoded
from redelivery_amqp.profiles import AmqpArtemis, AmqpBrokerJ, AmqpClassic, AmqpRabbitMQ, AmqpRabbitMQ4
from redelivery_amqp.receiver import ReceiverLink
from redelivery_amqp.stored_sections import section_wire

if TYPE_CHECKING:
    from redelivery_amqp.profile_base import AmqpProfile

PROFILES: dict[str, tuple[AmqpProfile, str, str]] = {
    "classic": (AmqpClassic(), "activemq", "5.18.3"),
    "artemis": (AmqpArtemis(), "artemis", "2.40.0"),
    "brokerj": (AmqpBrokerJ(), "qpid-broker-j", "9.2.0"),
    "rabbitmq": (AmqpRabbitMQ(), "rabbitmq", "3.10.8"),
    "rabbitmq4": (AmqpRabbitMQ4((4, 0, 1)), "rabbitmq", "4.0.1"),
    "rabbitmq43": (AmqpRabbitMQ4((4, 3, 6)), "rabbitmq", "4.3.6"),
}
DESTINATIONS = ("queue://orders", "queue://orders.>", "topic://news.*", "native://a")
DATA, LONG_DATA = b"\0Su\xa0\x02hi", b"\0Su\xb0\x00\x00\x00\x01!"
SECTIONS = [
    b"\0Sp\xc0\x02\x01A", b"\0Sp\xc0\x05\x03AP\x04@", b"\0Sp\xc0\x09\x03AP\x04p\x00\x00\x00\x64",
    b"\0Sp\xc0\x04\x02AP\x04", b"\0Sp\xc0\x08\x05AP\x04@BR\x03",
    b"\0Sp\xd0\x00\x00\x00\x05\x00\x00\x00\x01A", b"\0SpE", b"\0Sp\xc0\x05\x05AP\x04@",
    b"\0Ss\xc0\x05\x01\xa1\x02id", b"\0Ss\xc0\x0e\x09@@\xa1\x08orders.a@@@@@",
    b"\0St\xc1\x07\x02\xa1\x01a\xa1\x01b", b"\0Sr\xc1\x16\x02\xa3\x0dx-routing-key\xa1\x04orde", b"\0Sr@",
    DATA, LONG_DATA, b"\0Su\xa0\x00", b"\0Su\xa1\x02hi", b"\0Sw\xa1\x02hi", b"\0Sw\xa0\x02hi", b"\0Sw\x40",
    b"\0SwR\x2a", b"\0Sw\xc1\x07\x02\xa1\x01a\xa1\x01b", b"\0Sv\xc0\x03\x01R\x01", b"\0SxE",
    b"\0\x80\0\0\0\0\0\0\0\x75\xa0\x01x", b"\0\xa3\x10amqp:data:binary\xa0\x01x", b"\0",
]  # fmt: skip
RAW = st.lists(st.sampled_from(SECTIONS), max_size=6).map(b"".join) | st.binary(max_size=40)


def arrived(raw: bytes, name: str = "artemis", to: str = "queue://orders") -> AmqpDelivery:
    """Return a delivery of these bytes."""
    receiver = ReceiverLink(Subscribe(3, to, 100), 7, PROFILES[name][0], lambda _: None)
    handle: Any = object()
    return AmqpDelivery(receiver, raw, handle, 0, AT)


def shown_again(delivery: AmqpDelivery, name: str, to: str) -> dict[str, Any]:
    """Return the properties of the restored delivery."""
    _, broker, version = PROFILES[name]
    return shown_by(again(restorer({"scheme": "amqp", **section_wire(broker, version, to)}), delivery, AT))


@pytest.mark.parametrize("name", PROFILES)
@given(raw=RAW, to=st.sampled_from(DESTINATIONS))
@example(raw=b"", to="queue://orders")
@example(raw=DATA + LONG_DATA, to="queue://orders")
@example(raw=b"\0Su\xa0\x00" + DATA, to="queue://orders")
@example(raw=b"\0Ss\xc0\x05\x01\xa1\x02id\0Su\xb0\x00\x04\x93\xe0" + b"x" * 300_000, to="queue://orders")
def test_a_message_is_restored(name: str, raw: bytes, to: str) -> None:
    """Every property of a restored delivery is that of the original, for all sections and for other bytes."""
    delivery = arrived(raw, name, to)
    head, body = delivery.stored()
    assert head + (body or b"") == raw
    assert body in (None, delivery.body)
    assert shown_again(delivery, name, to) == shown_by(delivery)


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize(
    "body", [b"\0\xff" * 200, b"", "h\u00e9", {"a": 1, "b": b"\0"}, [1, "two", None], 42, None]
)
def test_what_proton_encodes_is_restored(name: str, body: Any) -> None:
    """Bodies of all types, and the properties of other clients, are restored."""
    fields = {
        "id": "m",
        "properties": {"n": 1, "f": 0.5},
        "ttl": 5.0,
        "creation_time": 1.7e9,
        "group_id": "g",
    }
    for inferred in (False, True):
        delivery = arrived(message(body, inferred=inferred and isinstance(body, bytes), **fields), name)
        assert shown_again(delivery, name, "queue://orders") == shown_by(delivery)
        assert shown_by(delivery)["expires_at"] == AT + 5.0


def test_only_the_body_of_one_last_data_section_is_apart() -> None:
    """Only a body of one last data section is stored apart; any other body stays in the first part."""
    sent = encoded(Outgoing("queue://orders", b"payload", headers={"a": "b"}), AmqpArtemis(), AT)
    assert arrived(sent).stored() == (sent[:-7], b"payload")
    assert arrived(DATA).stored() == (b"\0Su\xa0\x02", b"hi")
    for raw in (DATA + LONG_DATA, DATA + b"\0SxE", b"\0Sw\xa1\x02hi", b"no message", b"\0Su\xa1\x02hi"):
        assert arrived(raw).stored() == (raw, None)


@given(raw=RAW)
def test_what_is_plain_at_a_glance_is_plain(raw: bytes) -> None:
    """The quick check never takes a message for plain that has expired, or has no body."""
    delivery = arrived(raw)
    for now in (AT - 1, AT + 1):
        assert is_plain(delivery, now) or not delivery.plain(now)


@pytest.mark.parametrize("header", [b"", *SECTIONS[:2], *SECTIONS[3:6]])
def test_the_usual_message_is_plain_at_a_glance(header: bytes) -> None:
    """A header without a time to live, in the forms that brokers write, passes the quick check."""
    assert arrived(header + DATA).plain(AT)
    assert not arrived(SECTIONS[2] + DATA).plain(AT + 1)
    assert arrived(SECTIONS[2] + DATA).plain(AT)


def test_a_wire_of_no_broker_is_refused() -> None:
    """An unknown broker name, or a missing value, is refused before anything is restored."""
    with pytest.raises(ConfigurationError, match="other over AMQP is not supported"):
        restorer({"scheme": "amqp", "broker": "other", "version": "", "destination": "queue://a"})
    with pytest.raises(ConfigurationError, match="wire has no broker, version"):
        restorer({"scheme": "amqps", "destination": "queue://a"})
