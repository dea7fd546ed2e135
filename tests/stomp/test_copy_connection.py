"""Copies to a place in doubt have a connection of their own: a refusal does not cut the consumers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from tests.eventually import eventually
from tests.stomp.peer import ScriptedPeer

import redelivery

if TYPE_CHECKING:
    import pytest

CONNECTED = b"CONNECTED\nversion:1.2\nserver:RabbitMQ/4.3.6\nheart-beat:0,0\n\n\0"
MESSAGE = (
    b"MESSAGE\nsubscription:%b\nmessage-id:%b@@s@@%d\nack:%b@@s@@%d\ndestination:/queue/orders\n"
    b"amqp-message-id:%b\ntimestamp:1\npersistent:true\ncontent-length:%d\n\n%b\0"
)


class Refusing(ScriptedPeer):
    """A RabbitMQ that closes a connection over each SEND to the dead-letter queue, as for a node that is down."""

    connected = CONNECTED

    def __init__(self) -> None:
        self.down = threading.Event()
        self.down.set()
        self.letters = 0
        super().__init__(self._deliver)

    def _deliver(self, identity: bytes) -> list[bytes]:
        if b"." in identity:
            # A further subscription of the same consumer.
            return []
        return [
            MESSAGE % (identity, b"T_1", number, b"T_1", number, body, len(body), body)
            for number, body in enumerate((b"bad", b"good"), 1)
        ]

    def ends_over(self, frame: bytes) -> bool:
        letter = frame.startswith(b"SEND") and b"/queue/DLQ" in frame and b"transaction:" not in frame
        self.letters += letter
        return letter and self.down.is_set()


def test_a_refused_copy_cuts_the_consumers_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first refusal of a dead letter costs the connection, the next ones another; then it is confirmed there."""
    monkeypatch.setattr("redelivery.core.pending_confirms.FIRST", 0.02)
    runs: list[bytes] = []

    def handle(message: redelivery.Message) -> None:
        runs.append(message.body)
        if message.body == b"bad":
            raise redelivery.Poison("no such order")

    with Refusing() as peer:
        uri = f"failover:({peer.uri})?initialReconnectDelay=10"
        with redelivery.connect(uri) as connection:
            connection.listen("orders", handle)
            connection.start()
            eventually(lambda: peer.letters >= 3)
            assert connection.health().connection.reconnects == 1
            assert connection.connected
            peer.down.clear()
            eventually(lambda: connection.report().poisoned == 1)
            assert connection.health().connection.reconnects == 1
            letters = peer.letters
            # The next one goes over the consumer's connection again.
            adapter: Any = connection._driver._adapter
            assert adapter._doubtful == set()
    assert (letters, runs.count(b"bad")) == (4, 1)


class Down(Refusing):
    """A RabbitMQ whose dead-letter queue is on a node that stops."""

    def ends_over(self, frame: bytes) -> bool:
        # Operators restart the node to which the consumer is connected, too.
        return self.stops.is_set() and frame.startswith(b"ACK")

    def error_over(self, frame: bytes) -> bytes | None:
        if not (self.stops.is_set() and frame.startswith(b"SEND") and b"/queue/DLQ" in frame):
            return None
        self.refused += 1
        return (
            b"ERROR\nmessage:not_found\nversion:1.0,1.1,1.2\n\n"
            b"NOT_FOUND - queue 'DLQ' in vhost '/' process is stopped by supervisor\0"
        )

    def __init__(self) -> None:
        self.refused = 0
        self.stops = threading.Event()
        super().__init__()


def test_a_dead_letter_queue_that_is_down_keeps_no_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer starts again though the node of its dead letters is down: one check is refused, and no later one."""
    monkeypatch.setattr("redelivery.driver.connection.refused_consumers.FIRST", 0.02)
    handled: list[bytes] = []

    def handle(message: redelivery.Message) -> None:
        handled.append(message.body)
        peer.stops.set()

    with Down() as peer, redelivery.connect(f"failover:({peer.uri})?initialReconnectDelay=10") as connection:
        connection.listen("orders", handle)
        connection.start()
        eventually(lambda: connection.health().connection.reconnects >= 2)
        eventually(lambda: connection.health().consumers[0].state == "consuming")
    assert peer.refused == 1
