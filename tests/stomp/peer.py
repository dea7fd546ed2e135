"""Brokers for tests, on this machine: one that stops reading, and one that sends what a script returns."""

from __future__ import annotations

import re
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

import redelivery
from redelivery.adapter import Opening
from redelivery.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from redelivery_stomp.transport import ScanningTransport

__all__ = ["FrozenPeer", "ScriptedPeer", "opening", "stuck"]

PATIENCE = 10.0  # seconds
CONNECTED = b"CONNECTED\nversion:1.2\nserver:ActiveMQ/5.18.3\nheart-beat:0,0\n\n\0"


class FrozenPeer:
    """A broker on a free port that stops reading. `answers=False`: not even CONNECT is answered.

    `receipts`: number of requests that are answered before; `then`: bytes that are still sent, with `{id}` for the id
    of the last SUBSCRIBE.
    """

    def __init__(self, *, answers: bool = True, receipts: int = 0, then: bytes = b"") -> None:
        self._answers = answers
        self._receipts = receipts
        self._then = then
        self._listening = socket.create_server(("127.0.0.1", 0))
        # Each connection inherits this small window: a write soon blocks.
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._accepted: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self.port: int = self._listening.getsockname()[1]

    @property
    def uri(self) -> str:
        """URI of this broker."""
        return f"stomp://127.0.0.1:{self.port}"

    def _serve(self) -> None:
        while True:
            try:
                accepted, _ = self._listening.accept()
            except OSError:
                return
            self._accepted.append(accepted)
            if self._answers:
                self._greet(accepted)

    def _greet(self, accepted: socket.socket) -> None:
        while b"\0" not in accepted.recv(4096):
            pass
        accepted.sendall(CONNECTED)
        heard, owed, identity = b"", self._receipts, b""
        while owed:
            heard += accepted.recv(4096)
            identity = (re.findall(rb"SUBSCRIBE\nid:([^\n]+)", heard) or [identity])[-1]
            for receipt in re.findall(rb"\nreceipt:([^\n]+)", heard):
                accepted.sendall(b"RECEIPT\nreceipt-id:%b\n\n\0" % receipt)
                owed, heard = owed - 1, b""
        accepted.sendall(self._then.replace(b"{id}", identity))

    def thaw(self, size: int) -> bytes:
        """Read until this number of bytes has arrived; return them."""
        (accepted,) = self._accepted
        heard = bytearray()
        accepted.settimeout(PATIENCE)
        while len(heard) < size:
            chunk = accepted.recv(1 << 20)
            assert chunk, f"the end came after {len(heard)} bytes"
            heard += chunk
        return bytes(heard)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)  # wakes `accept`, which a close does not
        self._listening.close()
        self._thread.join(PATIENCE)
        for accepted in self._accepted:
            accepted.close()


def opening(uri: str) -> Opening:
    """Return the argument of `Adapter.open` for this URI's first address."""
    settings = redelivery.parse_uri(uri)
    return Opening(settings, settings.endpoints[0], 1, SystemClock())


def stuck(transport: ScanningTransport) -> bool:
    """True if bytes wait for a broker that does not read."""
    return transport.behind


class ScriptedPeer:
    """A Classic on a free port: it answers requests, and to each SUBSCRIBE sends what `script` returns for its id."""

    connected = CONNECTED

    def __init__(self, script: Callable[[bytes], Iterable[bytes]]) -> None:
        self._script = script
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self.connections = 0
        self.settled: list[bytes] = []
        self.uri = f"stomp://127.0.0.1:{self._listening.getsockname()[1]}"

    def _serve(self) -> None:
        while True:
            try:
                accepted, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._talk, args=(accepted,), daemon=True).start()

    def _talk(self, accepted: socket.socket) -> None:
        with accepted, suppress(OSError):
            # Each piece is sent when the script yields it: by default a piece behind another one waits 40 ms for its
            # acknowledgement.
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._converse(accepted)

    def ends_over(self, frame: bytes) -> bool:
        """True if this broker closes the connection on this frame, without an ERROR."""
        del frame
        return False

    def error_over(self, frame: bytes) -> bytes | None:
        """Return the ERROR with which this broker closes the connection over this frame; None: it does not."""
        del frame
        return None

    def also(self, frame: bytes) -> bytes:
        """Return frames that this broker sends after a frame, beside its receipt."""
        del frame
        return b""

    def answer(self, frame: bytes) -> bytes | None:
        """Return the answer to this CONNECT; None: the broker closes the connection instead."""
        del frame
        return self.connected

    def _converse(self, accepted: socket.socket) -> None:
        heard = b""
        while chunk := accepted.recv(65536):
            *frames, heard = (heard + chunk).split(b"\0")
            for each in frames:
                command = each.lstrip(b"\n").partition(b"\n")[0]
                if self.ends_over(each.lstrip(b"\n")):
                    return
                if (error := self.error_over(each.lstrip(b"\n"))) is not None:
                    accepted.sendall(error)
                    return
                if command == b"CONNECT":
                    if (answer := self.answer(each)) is None:
                        return
                    accepted.sendall(answer)
                if command in (b"ACK", b"NACK"):
                    self.settled.append(each.lstrip(b"\n"))
                # Before the receipt: what a subclass notes of a frame is there once the client has its answer.
                more = self.also(each.lstrip(b"\n"))
                for receipt in re.findall(rb"\nreceipt:([^\n]+)", each):
                    accepted.sendall(b"RECEIPT\nreceipt-id:%b\n\n\0\n" % receipt)
                if more:
                    accepted.sendall(more)
                if command == b"SUBSCRIBE":
                    (identity,) = re.findall(rb"\nid:([^\n]+)", each)
                    for piece in self._script(identity):
                        accepted.sendall(piece)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(PATIENCE)
