"""Ctrl-C in the main thread while it writes a frame over STOMP: no half of a frame stays on the wire."""

from __future__ import annotations

import signal

import pytest
from tests.interrupts import default_handler
from tests.stomp.peer import ScriptedPeer

import redelivery
from redelivery_stomp.transport import BufferedWriter

__all__ = ["default_handler"]


class Listening(ScriptedPeer):
    """One that keeps the bodies of what is sent, as it would read them."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        super().__init__(lambda _: ())

    def ends_over(self, frame: bytes) -> bool:
        """Take a frame in."""
        head, _, body = frame.partition(b"\n\n")
        if head.startswith(b"SEND\n"):
            self.bodies.append(body)
        return False


def test_an_interrupted_send_is_written_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket takes half of a frame as Ctrl-C comes: the rest follows before KeyboardInterrupt is raised."""
    half = BufferedWriter._at_once
    interrupted: list[int] = []

    def take_half(self: BufferedWriter, data: bytes) -> int:
        if not data.startswith(b"SEND") or interrupted:
            return half(self, data)
        taken = half(self, data[: len(data) // 2])
        interrupted.append(taken)
        signal.raise_signal(signal.SIGINT)
        return taken

    monkeypatch.setattr(BufferedWriter, "_at_once", take_half)
    with Listening() as peer, redelivery.connect(peer.uri) as connection:
        with pytest.raises(KeyboardInterrupt):
            connection.send("orders", "first")
        connection.send("orders", "second", timeout=30)
        assert interrupted
        assert peer.bodies == [b"first", b"second"]
        assert peer.connections == 1
