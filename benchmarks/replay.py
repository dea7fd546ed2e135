"""Recordings of a broker, given to an adapter again: a socket without a network, and the broker's answers.

`benchmarks.record` makes the recordings. The messages and the broker's description of itself are the recorded bytes.
Names that the client chooses (receipts, the subscription) are taken from what it writes.
"""

from __future__ import annotations

import re
import socket
import sys
import time
from abc import ABC, abstractmethod
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

__all__ = ["PROTOCOLS", "AmqpReplay", "FedSocket", "Replay", "StompReplay", "connecting_with", "recording"]

PROTOCOLS = ("stomp", "amqp")
# Bytes that one read of the library brings: more than 100 messages of the recordings, fewer than the 256 at which its
# reading thread pauses.
CHUNK = 65536


def recording(protocol: str) -> Path:
    """Return the file of what Artemis sent over a protocol."""
    return Path(__file__).parent / "recordings" / f"artemis.{protocol}.gz"


class Replay(ABC):
    """The broker's side of one connection, of one protocol."""

    messages: Sequence[bytes]
    """Frames with one message each, in the order in which they were sent."""
    identities: Sequence[Hashable]
    """The name of each message in its acknowledgement, in the same order."""

    @abstractmethod
    def answer(self, written: bytes) -> bytes:
        """Return the broker's answer to bytes that the client wrote before the first message."""

    @abstractmethod
    def acknowledged(self, written: bytes) -> Sequence[Hashable]:
        """Return the names that are acknowledged in all that the client wrote, as often as they are."""


class StompReplay(Replay):
    """Artemis over STOMP."""

    def __init__(self, sent: bytes, most: int | None = None) -> None:
        # The bodies of the recordings are without a null byte.
        frames = [frame.lstrip(b"\n") + b"\0\n" for frame in sent.split(b"\0")]
        self._connected = next(frame for frame in frames if frame.startswith(b"CONNECTED\n"))
        self.messages = [frame for frame in frames if frame.startswith(b"MESSAGE\n")][:most]
        self.identities = [_header(b"ack", message) for message in self.messages]

    def answer(self, written: bytes) -> bytes:
        """Answer a log-in, a subscription, and each frame with a receipt."""
        answers = b""
        for frame in written.split(b"\0"):
            command = frame.lstrip().partition(b"\n")[0]
            if command in {b"CONNECT", b"STOMP"}:
                answers += self._connected
            if command == b"SUBSCRIBE":
                recorded, name = _header(b"subscription", self.messages[0]), _header(b"id", frame)
                old, new = (b"\nsubscription:%b\n" % each for each in (recorded, name))
                self.messages = [message.replace(old, new, 1) for message in self.messages]
            if receipt := _header(b"receipt", frame):
                answers += b"RECEIPT\nreceipt-id:%b\n\n\0\n" % receipt
        return answers

    def acknowledged(self, written: bytes) -> list[bytes]:
        """Return the ids of the ACK frames."""
        frames = (frame.lstrip() for frame in written.split(b"\0"))
        return [_header(b"id", frame) for frame in frames if frame.startswith(b"ACK\n")]


def _header(name: bytes, frame: bytes) -> bytes:
    found = re.search(rb"\n%b:([^\n]*)\n" % name, frame)
    return found[1] if found else b""


# Descriptors of frames, and of the outcome of a message.
INIT, OUTCOME, OPEN, BEGIN, ATTACH, TRANSFER, DISPOSITION = 0x41, 0x44, 0x10, 0x11, 0x12, 0x14, 0x15
ACCEPTED = 0x24
HEADER = 0x100
"""Stands for a protocol header, which has no descriptor."""
ASKED = {HEADER: HEADER, OUTCOME: INIT, OPEN: OPEN, BEGIN: BEGIN, ATTACH: ATTACH}
"""Frames of the broker that answer a frame of the client. The others before the first message follow one of these."""


class AmqpReplay(Replay):
    """Artemis over AMQP 1.0. Its frames name links as the client did when they were recorded."""

    def __init__(self, sent: bytes, most: int | None = None) -> None:
        frames, _ = _frames(sent)
        self.messages = [frame for kind, frame in frames if kind == TRANSFER][:most]
        # Artemis counts deliveries from 0.
        self.identities = range(len(self.messages))
        self._answers: dict[int, list[bytes]] = {}
        group: list[bytes] = []
        for kind, frame in frames[: [kind for kind, _ in frames].index(TRANSFER)]:
            if kind in ASKED:
                group = self._answers.setdefault(ASKED[kind], [])
                group.append(frame)
            else:
                group[-1] += frame
        self._rest = b""

    def answer(self, written: bytes) -> bytes:
        """Answer each frame that the broker answered, in the same order for each kind of frame."""
        frames, self._rest = _frames(self._rest + written)
        return b"".join([self._answers[kind].pop(0) for kind, _ in frames if self._answers.get(kind)])

    def acknowledged(self, written: bytes) -> list[int]:
        """Return the numbers of the deliveries that dispositions accept and settle."""
        frames, _ = _frames(written)
        return [number for kind, frame in frames if kind == DISPOSITION for number in _accepted(frame)]


def _frames(data: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """Return the whole frames, each with its descriptor (0: an empty frame), and the bytes after them."""
    found: list[tuple[int, bytes]] = []
    at = 0
    while len(data) - at >= 8:
        header = data.startswith(b"AMQP", at)
        size = 8 if header else int.from_bytes(data[at : at + 4], "big")
        if len(data) - at < size:
            break
        frame = data[at : at + size]
        # Artemis and proton describe each frame with a small number: 00 53 and one byte.
        found.append((HEADER if header else frame[10] if size > 10 else 0, frame))
        at += size
    return found, data[at:]


def _accepted(frame: bytes) -> range:
    """Return the numbers of the deliveries that a disposition accepts and settles."""
    from proton import Data, Described  # noqa: PLC0415 - STOMP needs no proton

    data = Data()
    data.decode(frame[8:])
    data.next()
    # Fields at the end may be missing.
    fields: list[Any] = [*data.get_object().value, None, None, None]
    role, first, last, settled, state, *_ = fields
    accepted = isinstance(state, Described) and state.descriptor == ACCEPTED
    return range(first, (first if last is None else last) + 1) if role and settled and accepted else range(0)


class FedSocket(socket.socket):
    """The adapter's end. What it reads is what the other end gives; what it writes is kept, and answered at first.

    Each `give` is one read of the adapter: the sockets keep the limits of messages, which only Linux has.
    """

    def __init__(self, replay: Replay) -> None:
        near, self._far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__(fileno=near.detach())
        self._replay = replay
        self._answers = True
        self._written: list[bytes] = []
        self.last_write = 0.0
        """Processor time of this process at the last write."""

    @property
    def written(self) -> bytes:
        """All that the adapter wrote since `begin`."""
        return b"".join(self._written)

    def begin(self) -> None:
        """Keep what is written from now on, and answer nothing more."""
        self._answers = False

    def give(self, data: bytes) -> None:
        """Send these bytes to the adapter, for one read."""
        self._far.send(data)

    def send(self, data: bytes | memoryview, flags: int = 0, /) -> int:  # type: ignore[override]
        """Take all bytes."""
        if not self._answers:
            self._written.append(bytes(data))
            self.last_write = time.process_time()
        elif answer := self._replay.answer(bytes(data)):
            self.give(answer)
        return len(data)

    def sendall(self, data: bytes | memoryview, flags: int = 0, /) -> None:  # type: ignore[override]
        """Take all bytes."""
        self.send(data)

    def close(self) -> None:
        """Close both ends."""
        self._far.close()
        super().close()


@contextmanager
def connecting_with(protocol: str, connected: Callable[..., socket.socket]) -> Iterator[None]:
    """Replace the function with which the adapter of a protocol connects its socket."""
    package = f"redelivery_{protocol}"
    import_module(package)
    own = [module for name, module in sorted(sys.modules.items()) if name.startswith(f"{package}.")]
    with ExitStack() as patches:
        for module in own:
            if hasattr(module, "connected"):
                patches.enter_context(patch.object(module, "connected", connected))
        yield
