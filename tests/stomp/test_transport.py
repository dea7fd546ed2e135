"""Heart-beats: those that the client asks for, and frames that count as one."""

from __future__ import annotations

import socket
from types import SimpleNamespace

from tests.stomp.peer import opening

import redelivery
from redelivery_stomp.connection import connect_frame
from redelivery_stomp.frame_scanner import FrameScanner
from redelivery_stomp.transport import ScanningTransport


def test_connect_asks_for_heart_beats() -> None:
    """CONNECT has the milliseconds between heart-beats that the client can send, and that it wants."""
    settings = redelivery.parse_uri("stomp://machine")
    assert b"\nheart-beat:4000,5000\n" in connect_frame(settings, (4000, 5000))


def test_a_message_is_as_good_as_a_heart_beat() -> None:
    """A broker that sends messages without heart-beats between them does not count as silent."""
    first = opening("stomp://machine")
    taken: list[tuple[bytes, bytes]] = []
    transport = ScanningTransport(
        first.endpoint, first.settings.tls, 1.0, FrameScanner("TOKEN"), taken.extend
    )
    transport.heartbeats = SimpleNamespace(received_heartbeat=0.0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        transport.socket, transport.running = ours, True
        theirs.sendall(b"MESSAGE\nsubscription:TOKEN-1\nmessage-id:1\n\nbody\0")
        theirs.shutdown(socket.SHUT_WR)
        transport.receive()
        transport.cleanup()
    assert [body for _, body in taken] == [b"body"]
    assert transport.heartbeats.received_heartbeat > 0
