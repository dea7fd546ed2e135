"""A MESSAGE of ActiveMQ Classic proves nothing: its producer's properties replace the broker's headers."""

from __future__ import annotations

import time

import pytest
from tests.core.bench import routed
from tests.stomp.test_deliveries import CLASSIC, delivery

from redelivery.core.commands import Forward, PoisonAck
from redelivery.core.delivery import Record
from redelivery_stomp.profiles import StompClassic


def test_nothing_that_classic_writes_of_a_message_is_proof() -> None:
    """A property can replace id and time: a message is identified by them and all of its bytes."""
    seen = delivery(StompClassic(), CLASSIC, b"body")
    assert (seen.strong, seen.dated, seen.digested) == (False, True, True)
    assert seen.proof == (seen.key, seen.digest())
    assert seen.slim() == len(seen.head) + 4
    assert delivery(StompClassic(), CLASSIC, b"other").proof != seen.proof
    assert not delivery(StompClassic(), [*CLASSIC[:-2], "timestamp:0"]).dated


@pytest.mark.parametrize(
    ("consumed", "header", "expected"),
    [
        ("queue://orders", "/queue/orders", "queue://orders"),
        ("queue://orders", "/queue/Berlin", "queue://orders"),
        ("queue://orders", "/topic/orders", "queue://orders"),
        ("queue://orders?consumer.priority=5", "/queue/Berlin", "queue://orders"),
        ("queue://orders", "/queue/" + "x" * 5000, "queue://orders"),
        ("queue://orders.>", "/queue/orders.eu", "queue://orders.eu"),
        ("queue://orders.>", "/queue/admin", "queue://orders.>"),
        ("queue://orders.>", "/queue/orders.*", "queue://orders.>"),
        ("queue://orders.>", "/queue/orders.a,admin", "queue://orders.>"),
        ("queue://orders.>", "/queue/orders.a?b=c", "queue://orders.>"),
        ("queue://orders.>", "/queue/", "queue://orders.>"),
        ("queue://orders.>", "/queue/orders." + "a" * 2000, "queue://orders.>"),
        ("queue://a,b", "/queue/b", "queue://b"),
        ("queue://a,b", "/queue/c", "queue://a,b"),
        ("topic://news.*", "/topic/news.x", "topic://news.x"),
        ("topic://news.*", "/queue/news.x", "topic://news.*"),
        ("native:///queue/orders", "/queue/Berlin", "queue://orders"),
        ("temp-queue://mine", "/remote-temp-queue/ID\\cvm-1\\c2", "temp-queue://ID:vm-1:2"),
        ("temp-queue://mine", "/queue/Berlin", "temp-queue://mine"),
        ("temp-queue://mine", "/remote-temp-queue/ID\\cvm-1\\c2,", "temp-queue://mine"),
        ("queue://orders.>", "/queue/orders.a,", "queue://orders.>"),
    ],
)
def test_a_producer_does_not_say_on_classic_where_its_message_was(
    consumed: str, header: str, expected: str
) -> None:
    """A header names the destination of a message only if the consumer consumes several, and it is one of them."""
    lines = [f"destination:{header}", *[line for line in CLASSIC if not line.startswith("destination")]]
    seen = delivery(StompClassic(), lines, to=consumed)
    assert seen.destination == expected
    assert seen.key == (expected, "ID:vm-2:1", "1700000000123")


def test_what_says_that_it_is_persistent_is_copied_where_it_can_be() -> None:
    """A whole message with `persistent:true` is NACKed on request only: it may be non-persistent, and be dropped."""
    seen = delivery(StompClassic(), CLASSIC)
    assert seen.persistent
    for route, kind in (("auto", Forward), ("ack", PoisonAck)):
        command = routed(dead_letter=route).command(seen, Record(1), StompClassic.capabilities, 0.0, 0.0)
        assert isinstance(command, kind)


@pytest.mark.parametrize(
    ("consumed", "header", "record", "expected"),
    [
        ("queue://orders", "/queue/orders", None, False),
        ("queue://orders?consumer.priority=5", "/queue/orders", None, False),
        ("queue://orders.>", "/queue/orders.eu", None, False),
        ("temp-queue://mine", "/remote-temp-queue/ID\\cvm-1\\c2", None, False),
        ("native:///queue/orders", "/queue/orders", None, False),
        ("topic://orders", "/topic/orders", None, True),
        ("native:///topic/orders", "/topic/orders", None, True),
        (
            "queue://Consumer.A.VirtualTopic.a",
            "/queue/Consumer.A.VirtualTopic.a",
            "/topic/VirtualTopic.a",
            True,
        ),
        ("queue://a", "/queue/a", "/queue/a,queue\\c//b", True),
        ("queue://orders", "/queue/orders", "", True),
        # A virtual topic with setOriginalDestination=false, and a producer that wrote the header.
        ("queue://Consumer.A.VirtualTopic.a", "/topic/VirtualTopic.a", None, True),
        ("queue://orders.>", "/queue/admin", None, True),
    ],
)
def test_a_message_of_a_fan_out_is_known(
    consumed: str, header: str, record: str | None, *, expected: bool
) -> None:
    """Classic shows that a message came through a topic, a virtual topic, or a composite destination."""
    lines = [f"destination:{header}", *[line for line in CLASSIC if not line.startswith("destination")]]
    lines += [] if record is None else [f"original-destination:{record}"]
    assert delivery(StompClassic(), lines, to=consumed).fanned_out is expected


@pytest.mark.parametrize("ahead", [-3600.0, 3600.0], ids=["it has passed", "it is to come"])
def test_what_classic_has_sent_lived(monkeypatch: pytest.MonkeyPatch, ahead: float) -> None:
    """A message that arrived is handled though its header says expired: that may be a property, or a wrong clock."""
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)
    told = 1_700_000_000.0 + ahead
    lines = [f"expires:{told * 1000:.0f}", *[line for line in CLASSIC if not line.startswith("expires")]]
    assert delivery(StompClassic(), lines).expires_at == (told if ahead > 0 else None)
    assert delivery(StompClassic(), CLASSIC).expires_at is None


def test_a_delayed_copy_expires_with_its_original(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler is half a second late and moves the expiry by that: a delayed copy still expires on time."""
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)
    others = [line for line in CLASSIC if not line.startswith("expires")]
    own = ["redeliveryCopy:run-1@queue\\c//orders", "redeliveryExpires:1700000003000"]
    assert delivery(StompClassic(), ["expires:1700000003500", *others, *own]).expires_at == 1_700_000_003.0
    assert delivery(StompClassic(), ["expires:1700000003500", *others, own[1]]).expires_at == 1_700_000_003.5
