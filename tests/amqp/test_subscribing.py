"""Subscriptions during a reconnect: one link on the current connection, and none for an old one."""

from __future__ import annotations

import threading

import pytest
from tests.amqp.peer import PATIENCE, ScriptedPeer

import redelivery
from redelivery.adapter import AdapterEvent, Agreed, Opening, Sent, Subscribed
from redelivery.clock import SystemClock
from redelivery.core.commands import Credit, Send, Subscribe
from redelivery.core.outgoing import Outgoing
from redelivery_amqp import AmqpAdapter

QUEUE = "queue://orders"


class Answers:
    """A sink with which a test waits for the broker's answers."""

    def __init__(self) -> None:
        self.subscribed: list[Subscribed] = []
        self._sent = threading.Event()

    def __call__(self, event: AdapterEvent) -> None:
        if isinstance(event, Subscribed):
            self.subscribed.append(event)
        elif isinstance(event, Sent):
            self._sent.set()

    def wait_for_a_send(self, adapter: AmqpAdapter) -> None:
        """Send a message and wait for its outcome: earlier commands have been answered too."""
        self._sent.clear()
        adapter.execute((Send(1, Outgoing(QUEUE, b"")),))
        assert self._sent.wait(PATIENCE)


@pytest.mark.parametrize("late", [False, True], ids=["never", "late"])
def test_a_consumer_begins_though_the_end_of_the_one_before_is_not_answered(
    monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """A consumer starts although the end of the one before has no answer, and without a reconnect."""
    monkeypatch.setattr(ScriptedPeer, "product", "RabbitMQ")
    monkeypatch.setattr(ScriptedPeer, "version", "3.10.8")
    monkeypatch.setattr(ScriptedPeer, "ends_late", late)
    monkeypatch.setattr("redelivery_amqp.detach.UNENDED", 0.01)
    with ScriptedPeer() as peer, redelivery.connect(peer.uri) as connection:
        for queue in ("a", "b", "c"):
            with connection.consumer(queue):
                assert [address for _, address in peer.consumers][-1].endswith(queue)
        assert peer.connections == 1


def test_a_subscription_made_for_an_old_connection_is_dropped() -> None:
    """Commands that begin with a Subscribe of another epoch are dropped; its own is carried out once."""
    with ScriptedPeer() as peer:
        adapter, answers, settings = AmqpAdapter(), Answers(), redelivery.parse_uri(peer.uri)
        for epoch in (1, 2):
            adapter.open(Opening(settings, settings.endpoints[0], epoch, SystemClock()), answers)
        adapter.execute((Subscribe(7, QUEUE, 10, epoch=1), Credit(7, 10)))
        answers.wait_for_a_send(adapter)
        assert peer.consumers == []
        for epoch in (2, 2, 1):
            adapter.execute((Subscribe(7, QUEUE, 10, epoch=epoch), Credit(7, 10)))
        answers.wait_for_a_send(adapter)
        adapter.close(PATIENCE)
    assert peer.consumers == [(2, "orders")]
    assert [(event.consumer, event.error) for event in answers.subscribed] == [(7, None)]


def test_what_was_agreed_when_it_connected() -> None:
    """The agreed heart-beats are reported; None for a peer without an idle timeout, and without a connection."""
    with ScriptedPeer() as peer:
        adapter, settings = (
            AmqpAdapter(),
            redelivery.parse_uri(f"{peer.uri}{'&' if '?' in peer.uri else '?'}redelivery.heartbeat=7000"),
        )
        assert adapter.agreed() is None
        adapter.open(Opening(settings, settings.endpoints[0], 1, SystemClock()), Answers())
        assert adapter.agreed() == Agreed("AMQP 1.0", None, 7.0)
        adapter.close(PATIENCE)
