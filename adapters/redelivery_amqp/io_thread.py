"""I/O thread of one connection: moves bytes between a socket and proton, and runs the actions that follow from them."""

from __future__ import annotations

import logging
import re
import select
import socket
import ssl
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import proton
from cproton_ffi import ffi, lib

from redelivery.adapter_support.wire_log import WIRE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = ["ACCEPTED", "REJECTED", "RELEASED", "Handle", "IoThread", "ProtonEngine", "line"]


# ---- Io thread -------------------------------------------------------------------------------------------

# Bytes per read. Smaller reads cost more switches of the interpreter lock.
READ = 262144


class IoThread:
    """Reader on its own thread. Writes happen on the thread that has something to write, under the wire's lock.

    Args:
        sock: Connected socket; closed when the thread ends.
        wire: Protocol engine of the connection.
        arrived: Called with the lock held after bytes arrived or time passed; returns the actions to run without it.
        ended: Called once with the reason, when the thread ends.
    """

    def __init__(
        self,
        sock: socket.socket,
        wire: ProtonEngine,
        arrived: Callable[[], list[Callable[[], None]]],
        ended: Callable[[str], None],
    ) -> None:
        sock.settimeout(0.0)
        self._socket = sock
        self._encrypted = isinstance(sock, ssl.SSLSocket)
        self._wire = wire
        self._arrived = arrived
        self._ended = ended
        # When bytes arrived last (monotonic seconds).
        self.heard = time.monotonic()
        # True if the thread was ended by an error in the adapter.
        self.faulty = False
        self._over = False
        # True while the socket takes no more bytes.
        self._blocked = False
        self._reason = "the broker closed the connection"
        self._bell, self._ring = socket.socketpair()
        self._bell.settimeout(0.0)
        self._ring.settimeout(0.0)
        self._buffer = memoryview(bytearray(READ))
        self._thread = threading.Thread(target=self._run, name="redelivery-amqp", daemon=True)

    @property
    def own(self) -> bool:
        """True on the connection's thread."""
        return threading.current_thread() is self._thread

    def start(self) -> None:
        """Start to read."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End the thread, and wait up to `timeout` seconds for it: no callback runs afterwards."""
        self._over = True
        self.wake()
        if not self.own and self._thread.is_alive():
            self._thread.join(timeout)

    def flush(self) -> None:
        """Write proton's output. The caller has the wire's lock; the call never waits."""
        if self._blocked or self._over:
            # The thread continues when the socket takes more.
            return
        wire = self._wire
        while (data := wire.output()) is not None:
            try:
                written = self._socket.send(data)
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                self._blocked = True
                if not self.own:
                    self.wake()
                return
            except OSError as error:
                self._fail(str(error) or type(error).__name__)
                return
            wire.written(written)

    def _fail(self, reason: str) -> None:
        self._reason = reason
        self._over = True
        self.wake()

    def end(self) -> None:
        """End the thread after its current turn."""
        self._over = True
        self.wake()

    def wake(self) -> None:
        """Wake the thread for a turn."""
        with suppress(OSError):
            self._ring.send(b"!")

    # The thread.

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._bell.fileno(), select.POLLIN)
        number = self._socket.fileno()
        poll.register(number, select.POLLIN)
        try:
            while not self._over:
                for action in self._turn():
                    action()
                if self._over:
                    break
                events = select.POLLIN | (select.POLLOUT if self._blocked else 0)
                poll.modify(number, events)
                if any(where != number for where, _ in poll.poll(self._patience())):
                    with suppress(OSError):
                        self._bell.recv(4096)
        except Exception as error:  # noqa: BLE001 - a fault must end the connection, not leave it open without a thread
            self.faulty = True
            self._reason = f"a fault in the adapter: {type(error).__name__}: {error}"
        finally:
            self._over = True
            for end in (self._socket, self._bell, self._ring):
                end.close()
            self._ended(self._reason)

    def _turn(self) -> list[Callable[[], None]]:
        """Read once, have proton decode it, and write; return the actions to run without the lock."""
        with self._wire.lock:
            self._read()
            actions = self._arrived()
            self._deadline = self._wire.tick(time.monotonic())
            self._blocked = False
            self._flush_at_end()
            return actions

    def _flush_at_end(self) -> None:
        # A close frame is written even if the thread ends.
        over, self._over = self._over, False
        self.flush()
        self._over = self._over or over

    _deadline = 0.0

    def _patience(self) -> float | None:
        """Return the milliseconds to wait for bytes; None: no limit."""
        if self._encrypted and self._socket.pending():  # type: ignore[attr-defined]
            return 0
        return None if not self._deadline else max(0.0, self._deadline - time.monotonic()) * 1000

    def _read(self) -> None:
        try:
            size = self._socket.recv_into(self._buffer)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError as error:
            self._reason = str(error) or type(error).__name__
            size = 0
        if size:
            self.heard = time.monotonic()
            self._wire.feed(self._buffer[:size])
        else:
            self._wire.end_of_input()
            self._over = True


# ---- Frame log -------------------------------------------------------------------------------------------
# Log of AMQP frames: proton's own trace, without the log-in and without the content of messages.

_LOG_IN = re.compile(r"@sasl-(init|response|challenge)\b")
_CONTENT = re.compile(r"\] \((\d+)\) .*", re.DOTALL)
LONGEST = 400  # characters of a line


def trace(transport: proton.Transport) -> None:
    """Log the frames of a connection, if frame logging is enabled when it is created."""
    if WIRE.isEnabledFor(logging.DEBUG):
        transport.tracer = _traced
        transport.trace(proton.Transport.TRACE_FRM)


def line(text: str) -> str:
    """Return a line of proton's trace without credentials and content."""
    text = text.strip().removeprefix("FRAME:").strip()
    found = _LOG_IN.search(text)
    if found is not None:
        return f"{text[: found.end()]} not shown"
    text = _CONTENT.sub(r"] (\1 bytes)", text)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _traced(_: proton.Transport, text: str) -> None:
    WIRE.debug("%s", line(text))


# ---- Proton engine ---------------------------------------------------------------------------------------
# proton's protocol engine between the bytes of a socket and the objects of links. It does no I/O.
#
# Everything here runs under one lock, `ProtonEngine.lock`: proton is not thread-safe, and cffi lets other threads
# run during each call. That includes the deletion of proton's Python wrappers, which count references in C: they are
# dropped under the lock too, and none is kept where the garbage collector could find it first.
#
# proton's C functions handle incoming deliveries directly: a wrapper for each one and its event costs six times as
# much as all the rest (benchmarks/README.md). A pointer to a delivery is dead after it is settled, or after its link
# or the connection is freed. The pointers therefore never leave this package, `settle` is only called for deliveries
# of a live link, and a link is freed at the end of a turn of the I/O thread (`DetachQueue.free_ended`).

Handle = Any
"""Pointer to a delivery or a link of proton."""
ACCEPTED, REJECTED, RELEASED = int(lib.PN_ACCEPTED), int(lib.PN_REJECTED), int(lib.PN_RELEASED)
_NULL = ffi.NULL
_DELIVERY = int(lib.PN_DELIVERY)
_BEGUN = int(lib.PN_LOCAL_ACTIVE)
_QUIET = {
    int(number)
    for number in (
        lib.PN_TRANSPORT, lib.PN_CONNECTION_INIT, lib.PN_CONNECTION_BOUND, lib.PN_CONNECTION_LOCAL_OPEN,
        lib.PN_CONNECTION_LOCAL_CLOSE, lib.PN_SESSION_INIT, lib.PN_SESSION_LOCAL_OPEN, lib.PN_SESSION_LOCAL_CLOSE,
        lib.PN_LINK_INIT, lib.PN_LINK_LOCAL_OPEN, lib.PN_LINK_LOCAL_CLOSE, lib.PN_LINK_LOCAL_DETACH,
    )
}  # fmt: skip
WRITE = 1 << 16  # bytes per write


class ProtonEngine:
    """proton's engine for one connection."""

    def __init__(
        self, connection: proton.Connection, transport: proton.Transport, masked: Callable[[str], str] = str
    ) -> None:
        # Removes the credentials from the broker's texts.
        self.masked = masked
        self.lock = threading.RLock()
        self.ended = False  # True: the socket has ended
        self.connection = connection
        self.transport = transport
        self._collector = proton.Collector()
        connection.collect(self._collector)
        trace(transport)
        transport.bind(connection)
        self._t = transport._impl
        self._c = self._collector._impl
        self._out = bytearray(WRITE)
        self._out_at = ffi.from_buffer(self._out)
        self._out_view = memoryview(self._out)
        self._in = bytearray(WRITE)
        self._in_at = ffi.from_buffer(self._in)

    # Bytes.

    def feed(self, data: memoryview) -> None:
        """Process bytes from the socket. Bytes after the end of the protocol are dropped."""
        at, size = ffi.from_buffer(data), len(data)
        done = 0
        while done < size:
            room = lib.pn_transport_capacity(self._t)
            if room <= 0:
                return
            taken = lib.pn_transport_push(self._t, at + done, min(room, size - done))
            if taken <= 0:
                return
            done += taken

    def end_of_input(self) -> None:
        """Process the end of the socket."""
        self.ended = True
        lib.pn_transport_close_tail(self._t)

    def output(self) -> memoryview | None:
        """Return the bytes to write next, or None."""
        size = lib.pn_transport_pending(self._t)
        if size <= 0:
            return None
        size = min(size, WRITE)
        lib.pn_transport_peek(self._t, self._out_at, size)
        return self._out_view[:size]

    def written(self, size: int) -> None:
        """Remove written bytes from the output."""
        lib.pn_transport_pop(self._t, size)

    def tick(self, now: float) -> float:
        """Send and expect heart-beats; return the time of the next call; 0: none. Both times: seconds, steady clock."""
        return float(lib.pn_transport_tick(self._t, int(now * 1000))) / 1000

    @property
    def sessions(self) -> int:
        """Number of sessions that this side has begun and not ended."""
        session, found = lib.pn_session_head(self.connection._impl, _BEGUN), 0
        while session != _NULL:
            session, found = lib.pn_session_next(session, _BEGUN), found + 1
        return found

    @property
    def most_sessions(self) -> int:
        """Number of sessions that the broker allows at the same time."""
        return int(lib.pn_transport_get_channel_max(self._t)) + 1

    # Events.

    def events(self, readable: set[Handle]) -> Iterator[proton.Event]:
        """Yield the events of proton; links with incoming deliveries are added to `readable` instead.

        A delivery that arrived and was settled or released in the same read is both.
        """
        collector = self._c
        while (event := lib.pn_collector_peek(collector)) != _NULL:
            number = lib.pn_event_type(event)
            if number == _DELIVERY:
                link = lib.pn_event_link(event)
                received = lib.pn_link_is_receiver(link)
                if received:
                    # A delivery with an update can have arrived in this read too: a broker releases late ones itself.
                    readable.add(link)
                if received and not lib.pn_delivery_updated(lib.pn_event_delivery(event)):
                    lib.pn_collector_pop(collector)
                    continue
            elif number in _QUIET:
                lib.pn_collector_pop(collector)
                continue
            wrapped = self._collector.peek()
            if wrapped is not None:
                yield wrapped
            lib.pn_collector_pop(collector)

    # Incoming deliveries.

    def take(self, link: Handle, begun: bytearray) -> list[tuple[bytes, Handle]]:
        """Take the complete messages of a receiving link, each with the handle that settles it.

        `begun`: what has arrived of the next one, which is taken too: proton would keep a buffer of up to twice its
        size until it is settled, and a message larger than the session's window would never be complete.
        """
        found: list[tuple[bytes, Handle]] = []
        current, partial, pending = lib.pn_link_current, lib.pn_delivery_partial, lib.pn_delivery_pending
        receive, advance, buffer = lib.pn_link_recv, lib.pn_link_advance, ffi.buffer
        while (handle := current(link)) != _NULL:
            if lib.pn_delivery_aborted(handle):
                advance(link)
                lib.pn_delivery_settle(handle)
                begun.clear()
                continue
            size = pending(handle)
            if size > len(self._in):
                self._in = bytearray(size)
                self._in_at = ffi.from_buffer(self._in)
            size = receive(link, self._in_at, size) if size else 0
            data = buffer(self._in_at, size)[:] if size > 0 else b""
            if partial(handle):
                begun += data
                break
            if begun:
                data = bytes(begun + data)
                begun.clear()
            advance(link)
            found.append((data, handle))
        return found

    def begun(self, link: Handle) -> bool:
        """True if a message of a receiving link has begun to arrive and is not complete."""
        current = lib.pn_link_current(link)
        return bool(current != _NULL and lib.pn_delivery_partial(current))

    def settle(self, handles: Iterable[Handle], outcome: int) -> None:
        """Settle deliveries with one outcome. Deliveries in the order of their arrival share frames."""
        update, settle = lib.pn_delivery_update, lib.pn_delivery_settle
        for handle in handles:
            update(handle, outcome)
            settle(handle)

    def modify(self, handle: Handle, annotations: Mapping[str, object], *, dead: bool) -> None:
        """Settle a delivery as `modified`, with more message annotations.

        The broker redelivers it uncounted, or dead-letters it if it is `dead`.
        """
        delivery = proton.Delivery(handle)
        delivery.local.failed = delivery.local.undeliverable = dead
        delivery.local.annotations = {proton.symbol(name): value for name, value in annotations.items()}
        delivery.update(proton.Delivery.MODIFIED)
        lib.pn_delivery_settle(handle)

    def forget(self, handle: Handle) -> None:
        """Settle a delivery whose outcome both sides know."""
        lib.pn_delivery_settle(handle)

    def within(self, handle: Handle, transaction: bytes) -> None:
        """Accept a delivery in a transaction; it stays unsettled until the transaction ends."""
        delivery = proton.Delivery(handle)
        delivery.local.data = [transaction, proton.Described(proton.ulong(ACCEPTED), [])]
        delivery.update(TRANSACTIONAL)

    def flow(self, link: Handle, credit: int) -> None:
        """Add credit to a receiving link, or withdraw up to as much as it has left.

        Messages that arrived after a withdrawal have made proton's credit negative. That is no debt: new credit is
        counted from 0.
        """
        left = lib.pn_link_credit(link)
        lib.pn_link_flow(link, credit - min(left, 0) if credit > 0 else -min(-credit, max(left, 0)))

    def withdraw(self, link: Handle) -> None:
        """Withdraw all credit, in a frame before any later one.

        proton sends no credit for a link that ends in the same write.
        """
        left = lib.pn_link_credit(link)
        if left > 0:
            lib.pn_link_flow(link, -left)
            lib.pn_transport_pending(self._t)

    def drain(self, link: Handle, credit: int) -> None:
        """Ask for up to `credit` messages, and for an answer when the queue has no more."""
        lib.pn_link_drain(link, credit)

    def broken_off(self, link: Handle) -> bool:
        """True if a drain was answered in the middle of a message, and only that message is outstanding."""
        return self.begun(link) and lib.pn_link_credit(link) <= 1

    def drained(self, link: Handle) -> bool:
        """True if all requested messages have arrived, or the broker has answered that there are no more."""
        return bool(lib.pn_link_credit(link) <= 0)


TRANSACTIONAL = 0x34
