"""One connection through the proxy: its two directions, and the rules that end it at an exact byte."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from integration.frames import EOL, FrameSplitter

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

T = TypeVar("T")
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER with 0 s: close() sends RST


class Cut(Exception):
    """Raised where the connection ends: with RST, or else with FIN."""

    def __init__(self, *, reset: bool) -> None:
        """Set the kind of end."""
        super().__init__(reset)
        self.reset = reset


class Rule(NamedTuple):
    """Cut after `left` more frames (of one command), or bytes."""

    left: int
    command: str | None
    reset: bool
    forward_last: bool


@dataclass
class Way:
    """One direction: counters of the bytes that passed, and the rules for later ones. Read it from any thread."""

    frames: int = 0
    bytes: int = 0
    eols: int = 0  # heart-beats, and the line end that brokers write after a frame
    log: list[str] = field(default_factory=list)  # the commands of the frames, in order
    delay: float = 0.0
    rate: float = 0.0  # bytes a second that pass; 0: all
    half: Rule | None = None  # cut in the middle of the `left`-th frame from now
    after_frames: Rule | None = None
    after_bytes: Rule | None = None
    flowing: asyncio.Event = field(default_factory=asyncio.Event)


class Link:
    """One client's connection, and its connection to the broker."""

    def __init__(self, client: asyncio.StreamWriter, broker: asyncio.StreamWriter) -> None:
        """Store both ends."""
        self.writers = (client, broker)
        self.closed = asyncio.Event()

    def close(self, *, reset: bool) -> None:
        """End both halves: with RST, or with FIN after all written bytes were sent."""
        self.closed.set()
        for writer in self.writers:
            if reset:
                raw: socket.socket = writer.get_extra_info("socket")
                with contextlib.suppress(OSError):
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                writer.transport.abort()
            else:
                writer.close()


class Pump:
    """Forwards one direction of one connection, and applies the rules at the exact byte."""

    def __init__(self, link: Link, sink: asyncio.StreamWriter, way: Way, *, opaque: bool) -> None:
        """Write the bytes of `run` to `sink`."""
        self._link = link
        self._sink = sink
        self._way = way
        self._splitter = None if opaque else FrameSplitter()
        self._middle = False  # True in the middle of a frame
        self._held = bytearray()  # the frame that will be cut in its middle
        self._unsent = bytearray()

    async def run(self, kept: asyncio.Queue[tuple[float, bytes]]) -> None:
        """Forward until the source ends or the connection is cut."""
        while True:
            due, data = await self._unless_closed(kept.get())
            await self._until(due)
            await self._unless_closed(self._way.flowing.wait())
            if not data:
                self._sink.write_eof()
                return
            if self._way.rate:
                await self._until(asyncio.get_running_loop().time() + len(data) / self._way.rate)
            try:
                for piece, command in self._splitter.feed(data) if self._splitter else [(data, None)]:
                    self._piece(piece, command)
            finally:
                await self._flush()

    def _piece(self, piece: bytes, command: str | None) -> None:
        way = self._way
        begins, self._middle = not self._middle and command != EOL, command is None
        half = way.half
        if self._held or (half is not None and half.left <= 1 and begins):
            self._held += piece
            if command is None:
                return
            way.half = None
            self._write(bytes(self._held[: len(self._held) // 2]))
            raise Cut(reset=half is not None and half.reset)
        if half is not None and command:
            way.half = half._replace(left=half.left - 1)
        rule = way.after_frames if command else None
        last = rule is not None and rule.command in {None, command} and rule.left <= 1
        if rule is None or not last or rule.forward_last:
            self._write(piece)
        if command:
            way.frames += 1
            way.log.append(command)
        way.eols += command == EOL
        if rule is not None and rule.command in {None, command}:
            way.after_frames = None if last else rule._replace(left=rule.left - 1)
            if last:
                raise Cut(reset=rule.reset)

    def _write(self, piece: bytes) -> None:
        rule = self._way.after_bytes
        if rule is not None:
            piece, whole = piece[: rule.left], piece
            self._way.after_bytes = rule._replace(left=rule.left - len(whole))
        self._way.bytes += len(piece)
        self._unsent += piece
        if rule is not None and len(piece) >= rule.left:
            self._way.after_bytes = None
            raise Cut(reset=rule.reset)

    async def _flush(self) -> None:
        """Forward in one write what was read at once.

        Frame by frame, RabbitMQ could send a message between an UNSUBSCRIBE and the SUBSCRIBE behind it, which the
        client writes together: it answers with an ERROR (docs/measured/rabbitmq-stomp.md).
        """
        data = bytes(self._unsent)
        self._unsent.clear()
        if data:
            self._sink.write(data)
            await self._sink.drain()

    async def _until(self, due: float) -> None:
        left = due - asyncio.get_running_loop().time()
        if left > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._link.closed.wait(), left)

    async def _unless_closed(self, work: Coroutine[Any, Any, T]) -> T:
        closed = asyncio.ensure_future(self._link.closed.wait())
        wanted = asyncio.ensure_future(work)
        await asyncio.wait({closed, wanted}, return_when=asyncio.FIRST_COMPLETED)
        closed.cancel()
        if not wanted.done():
            wanted.cancel()
            raise Cut(reset=False)
        return wanted.result()
