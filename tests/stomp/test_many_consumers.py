"""Many consumers of one connection, and many subscriptions of one consumer."""

from __future__ import annotations

import threading

import pytest
from stomp.utils import Frame
from tests.stomp.test_refused import Wire

from redelivery import AdapterError
from redelivery.adapter import Subscribed
from redelivery.adapter_support.sockets import ResponseTimeout
from redelivery.core.commands import Subscribe, Unsubscribe
from redelivery.core.events import ConnectionLost
from redelivery_stomp.profiles import StompRabbitMQ

PATIENCE = 10.0


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    """An adapter at Classic whose frames can be read and answered."""
    return Wire(monkeypatch)


def test_on_classic_they_begin_together(wire: Wire) -> None:
    """Consumers on Classic start together after one check of their dead-letter queue, not one after the other."""
    wire.adapter.execute(
        [Subscribe(n, f"queue://q{n}", window=10, dead_letters=("queue://g",)) for n in range(1, 201)]
    )
    assert wire.commands() == [b"BEGIN", b"SEND", b"ABORT"]
    wire.answer(b"SEND")
    wire.answer(b"ABORT")
    assert wire.commands()[3:] == [b"SUBSCRIBE"] * 200


@pytest.mark.parametrize(
    ("destination", "woken"),
    [
        ("queue://orders.*", True),
        ("queue://orders.>", True),
        ("queue://a,queue://b", True),
        ("queue://orders", False),
        ("topic://orders.*", False),
    ],
)
def test_classic_is_woken_for_consumers_of_several_queues(
    wire: Wire, destination: str, *, woken: bool
) -> None:
    """A consumer of several queues on Classic also begins and ends a subscription that wakes these queues."""
    wire.adapter.execute([Subscribe(1, destination, window=10)])
    wire.answer(b"SUBSCRIBE")
    assert wire.commands()[1:] == ([b"SUBSCRIBE", b"UNSUBSCRIBE"] if woken else [])


def test_on_rabbitmq_dead_letters_are_checked_once_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each connection to RabbitMQ checks a dead-letter queue once; a late refusal is for all of its consumers."""
    wire = Wire(monkeypatch, StompRabbitMQ())
    commands = [Subscribe(n, f"queue://q{n}", window=10, dead_letters=("queue://g",)) for n in (1, 2, 3)]
    wire.adapter.execute(commands)
    for _ in range(4):
        wire.answer_last()
    assert wire.commands() == [b"BEGIN", b"SEND", b"ABORT", *[b"SUBSCRIBE"] * 3]
    wire.events.clear()
    wire.adapter.execute([Unsubscribe(2)])
    wire.link.on_error(
        Frame(
            "ERROR",
            {"message": "access_refused", "version": "1.2"},
            b"access to queue 'g' in vhost '/' refused",
        )
    )
    told = {event.consumer: event.error for event in wire.events if isinstance(event, Subscribed)}
    assert set(told) >= {1, 3}
    assert all(
        isinstance(told[n], AdapterError) and "queue://g cannot be used" in str(told[n]) for n in (1, 3)
    )
    wire.again().adapter.execute(commands[:1])
    assert wire.commands() == [b"BEGIN", b"SEND", b"ABORT"]


def test_a_receipt_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receipt that never arrives ends the connection with that reason: later consumers would never start."""
    monkeypatch.setattr(
        "redelivery_stomp.subscribing.ResponseTimeout", lambda over, silent: ResponseTimeout(over, limit=0.01)
    )
    wire, heard = Wire(monkeypatch, StompRabbitMQ()), threading.Event()
    lost = wire.link.lost

    def told(reason: str, *, by_broker: bool) -> None:
        lost(reason, by_broker=by_broker)
        heard.set()

    monkeypatch.setattr(wire.link, "lost", told)
    wire.adapter.execute([Subscribe(1, "queue://orders", window=10)])
    assert heard.wait(PATIENCE)
    (error,) = (event.error for event in wire.events if isinstance(event, ConnectionLost))
    assert "has not answered a consumer that starts" in str(error)


def test_a_wide_window_on_dead_letters_is_shared_on_classic(wire: Wire) -> None:
    """A wide window on dead letters is divided into subscriptions of 500, begun after the first and ended together."""
    wire.adapter.execute([Subscribe(1, "queue://DLQ", window=1100, existing=True)])
    assert wire.commands() == [b"SUBSCRIBE"]
    wire.answer_last()
    assert wire.commands() == [b"SUBSCRIBE"] * 3
    assert [frame.partition(b"\nid:")[2].partition(b"\n")[0] for frame in wire.written] == [
        b"TOKEN-1",
        b"TOKEN-1.1",
        b"TOKEN-1.2",
    ]
    assert all(b"\nactivemq.prefetchSize:500\n" in frame for frame in wire.written)
    assert sum(isinstance(event, Subscribed) for event in wire.events) == 1
    wire.adapter.execute([Unsubscribe(1)])
    assert wire.commands().count(b"UNSUBSCRIBE") == 3
    wire.again().adapter.execute([Subscribe(1, "queue://orders", window=1100)])
    wire.answer_last()
    assert wire.commands() == [b"SUBSCRIBE"]
