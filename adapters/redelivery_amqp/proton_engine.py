"""proton's protocol engine between the bytes of a socket and the objects of links. It does no I/O.

Everything here runs under one lock, `ProtonEngine.lock`: proton is not thread-safe, and cffi lets other threads run
during each call. That includes the deletion of proton's Python wrappers, which count references in C: they are dropped
under the lock too, and none is kept where the garbage collector could find it first.

proton's C functions handle incoming deliveries directly: a wrapper for each one and its event costs six times as much
as all the rest (benchmarks/README.md). A pointer to a delivery is dead after it is settled, or after its link or the
connection is freed. The pointers therefore never leave this package, `settle` is only called for deliveries of a live
link, and a link is freed at the end of a turn of the I/O thread (`DetachQueue.free_ended`).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import proton
from cproton_ffi import ffi, lib

from redelivery_amqp.frame_log import trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = ["ACCEPTED", "REJECTED", "RELEASED", "Handle", "ProtonEngine"]

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
