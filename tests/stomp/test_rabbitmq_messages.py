"""Properties of a MESSAGE of RabbitMQ (docs/measured/rabbitmq-stomp.md)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.stomp.test_deliveries import delivery

from redelivery_stomp.profiles import StompArtemis, StompRabbitMQ

if TYPE_CHECKING:
    from redelivery_stomp.profile_base import StompProfile

SESSION = "session-a"
LINES = ["subscription:1", "destination:/queue/orders", f"message-id:T_1@@{SESSION}@@1", "redelivered:false",
         f"ack:T_1@@{SESSION}@@1"]  # fmt: skip
MINE = ["mine:1", "redeliveryId:own", "amqp-message-id:theirs", "timestamp:1700000000", "priority:7", "persistent:true",
        "content-length:1"]  # fmt: skip


def test_what_a_frame_says() -> None:
    """A message is identified by a property or this library's header, not by the broker's id, new at each delivery."""
    seen = delivery(StompRabbitMQ(), [*LINES, *MINE])
    assert seen.key == ("queue://orders", "theirs", "1700000000")
    assert (seen.destination, seen.priority, seen.persistent, seen.redelivered) == (
        "queue://orders",
        7,
        True,
        False,
    )
    assert seen.message_id == "theirs"
    assert dict(seen.headers) == {"mine": "1", "redeliveryId": "own"}
    assert seen.timestamp is not None
    assert seen.timestamp.isoformat() == "2023-11-14T22:13:20+00:00"
    assert delivery(StompRabbitMQ(), [*LINES, "redeliveryId:own"]).key == ("queue://orders", "own", None)
    assert delivery(StompRabbitMQ(), LINES).key is None
    assert delivery(StompRabbitMQ(), LINES).message_id is None


def test_the_queue_is_where_it_was_consumed_from() -> None:
    """A queue's message has the consumed destination, as the header names the exchange; a topic's has its own topic."""
    through = [*LINES[2:], "destination:/exchange/logs/key"]
    assert delivery(StompRabbitMQ(), through).destination == "queue://orders"
    topic = [*LINES[2:], "destination:/topic/a.b"]
    assert delivery(StompRabbitMQ(), topic, to="topic://a.>").destination == "topic://a.b"
    assert delivery(StompRabbitMQ(), LINES, to="native:///amq/queue/orders").destination == "queue://orders"
    assert (
        delivery(StompRabbitMQ(), through, to="native:///amq/queue/x").destination
        == "native:///exchange/logs/key"
    )


def test_quorum_queues_count() -> None:
    """A quorum queue's message has a delivery count; a classic queue's has the redelivered flag only."""
    assert delivery(StompRabbitMQ(), LINES).broker_count is None
    assert delivery(StompRabbitMQ(), [*LINES, "x-delivery-count:3"]).broker_count == 3


def test_properties_come_behind_the_headers() -> None:
    """A property is read from the last header of its name: another producer's header does not hide it."""
    seen = delivery(StompRabbitMQ(), [*LINES, "persistent:maybe", "timestamp:x", *MINE])
    assert seen.persistent
    assert seen.timestamp is not None


@pytest.mark.parametrize("at", ["1700000000", "1700000000000"])
def test_a_timestamp_is_in_seconds_or_an_amqp_clients_milliseconds(at: str) -> None:
    """A timestamp in seconds, or in an AMQP client's milliseconds, is the same time."""
    seen = delivery(StompRabbitMQ(), [*LINES, f"timestamp:{at}"])
    assert seen.timestamp is not None
    assert seen.timestamp.timestamp() == 1700000000


def test_expiry() -> None:
    """A message expires at its producer's time in milliseconds, else after its time to live from the arrival."""
    told = delivery(StompRabbitMQ(), [*LINES, "expires:1700000000500", "expiration:60000"])
    assert told.expires_at == 1700000000.5
    before = time.time()
    lives = delivery(StompRabbitMQ(), [*LINES, "expiration:60000"])
    assert lives.expires_at is not None
    assert before + 60 <= lives.expires_at <= time.time() + 60
    assert lives.expiration is not None
    assert delivery(StompRabbitMQ(), LINES).expires_at is None
    assert delivery(StompRabbitMQ(), LINES).expiration is None


@pytest.mark.parametrize(
    ("extra", "kind"),
    [
        ([], "bytes"),
        (["amq-msg-type:text"], "text"),
        (["x-amqp-1.0-properties:\0Ss", "type:amqp-1.0"], "partial"),
        (["x-amqp-1.0-app-properties:\0St", "type:binary"], "partial"),
    ],
)
def test_body_kinds(extra: list[str], kind: str) -> None:
    """A body of an AMQP 1.0 client is partial: it and its properties are in AMQP's encoding, and no copy is whole."""
    assert delivery(StompRabbitMQ(), [*LINES, *extra]).body_kind == kind


def test_a_header_called_expires_is_the_applications_own() -> None:
    """A header `expires` is the application's own, unless the message has RabbitMQ's property `expiration`."""
    assert delivery(StompRabbitMQ(), [*LINES, "expires:3600"]).expires_at is None
    assert delivery(StompRabbitMQ(), [*LINES, "expires:1700000000000", "expiration:5000"]).expires_at == 1.7e9


@pytest.mark.parametrize("number", ["9" * 400, "9" * 5000, "²", "-1", "1e3", ""])
@pytest.mark.parametrize("profile", [StompRabbitMQ(), StompArtemis()])
def test_no_number_of_a_producer_does_harm(profile: StompProfile, number: str) -> None:
    """A producer's value that is not a plain number, or has too many digits, is ignored."""
    names = ("expires", "expiration", "timestamp", "priority", "x-delivery-count")
    seen = delivery(profile, [*LINES, *(f"{name}:{number}" for name in names)])
    assert (seen.expires_at, seen.expiration, seen.timestamp, seen.broker_count) == (None, None, None, None)
    assert seen.priority == 4


def test_a_date_that_python_does_not_know() -> None:
    """A date from the year 10000 on is None."""
    for profile in (StompRabbitMQ(), StompArtemis()):
        late = delivery(
            profile, [*LINES, "expires:999999999999999", "expiration:1", "timestamp:999999999999999"]
        )
        assert (late.expiration, late.timestamp) == (None, None)
