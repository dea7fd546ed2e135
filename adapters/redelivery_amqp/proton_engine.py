"""proton's protocol engine, between the bytes of a socket and the objects of links. It does no I/O.

Everything here runs under one lock, `ProtonEngine.lock`: proton is not thread-safe, and cffi lets other threads run
inside each call. That includes the end of proton's Python wrappers, which count references in C: they are dropped
under the lock too, and none is kept in a place where the garbage collector could find it first.

A delivery that comes in is handled by proton's C functions directly: wrapping each one and its event costs six times as
much as all the rest (benchmarks/README.md). A pointer to a delivery is dead once it is settled or the connection is
freed, so it never leaves this package, and `settle` is only called for deliveries of a wire that is alive.
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
"""A pointer to proton's delivery."""
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
WRITE = 1 << 16  # bytes looked at in one go


class ProtonEngine:
    """One connection as proton sees it."""

    def __init__(
        self, connection: proton.Connection, transport: proton.Transport, masked: Callable[[str], str] = str
    ) -> None:
        # Takes the credentials out of the broker's words.
        self.masked = masked
        self.lock = threading.RLock()
        self.ended = False  # the socket
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
        """Take what the socket gave. What comes after the end of the protocol is dropped."""
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
        """The socket has ended."""
        self.ended = True
        lib.pn_transport_close_tail(self._t)

    def output(self) -> memoryview | None:
        """Return what is to be written next, or None."""
        size = lib.pn_transport_pending(self._t)
        if size <= 0:
            return None
        size = min(size, WRITE)
        lib.pn_transport_peek(self._t, self._out_at, size)
        return self._out_view[:size]

    def written(self, size: int) -> None:
        """So many bytes of the output are on their way."""
        lib.pn_transport_pop(self._t, size)

    def tick(self, now: float) -> float:
        """Send and expect heart-beats; return when to look again (0: no need). `now` in seconds of a steady clock."""
        return float(lib.pn_transport_tick(self._t, int(now * 1000))) / 1000

    @property
    def sessions(self) -> int:
        """How many sessions this side has begun and not ended."""
        session, found = lib.pn_session_head(self.connection._impl, _BEGUN), 0
        while session != _NULL:
            session, found = lib.pn_session_next(session, _BEGUN), found + 1
        return found

    @property
    def most_sessions(self) -> int:
        """How many sessions the broker takes at once."""
        return int(lib.pn_transport_get_channel_max(self._t)) + 1

    # Events.

    def events(self, readable: set[Handle]) -> Iterator[proton.Event]:
        """Go through what happened; links with deliveries that came in are put into `readable` instead.

        What has come and was settled, or released, in one read is both.
        """
        collector = self._c
        while (event := lib.pn_collector_peek(collector)) != _NULL:
            number = lib.pn_event_type(event)
            if number == _DELIVERY:
                link = lib.pn_event_link(event)
                received = lib.pn_link_is_receiver(link)
                if received:
                    # What is updated may have come with this very read: a broker takes back what we are late for.
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

    # Deliveries that come in.

    def take(self, link: Handle) -> list[tuple[bytes, Handle]]:
        """Take each whole message of a receiving link, with the handle by which it is settled."""
        found: list[tuple[bytes, Handle]] = []
        current, partial, pending = lib.pn_link_current, lib.pn_delivery_partial, lib.pn_delivery_pending
        receive, advance, buffer = lib.pn_link_recv, lib.pn_link_advance, ffi.buffer
        while (handle := current(link)) != _NULL:
            if lib.pn_delivery_aborted(handle):
                advance(link)
                lib.pn_delivery_settle(handle)
                continue
            if partial(handle):
                break
            size = pending(handle)
            if size > len(self._in):
                self._in = bytearray(size)
                self._in_at = ffi.from_buffer(self._in)
            size = receive(link, self._in_at, size) if size else 0
            data = buffer(self._in_at, size)[:] if size > 0 else b""
            advance(link)
            found.append((data, handle))
        return found

    def begun(self, link: Handle) -> bool:
        """Whether a message of a receiving link has begun to come, and not ended."""
        current = lib.pn_link_current(link)
        return bool(current != _NULL and lib.pn_delivery_partial(current))

    def settle(self, handles: Iterable[Handle], outcome: int) -> None:
        """Settle deliveries with one outcome. In the order of their arrival they share frames."""
        update, settle = lib.pn_delivery_update, lib.pn_delivery_settle
        for handle in handles:
            update(handle, outcome)
            settle(handle)

    def modify(self, handle: Handle, annotations: Mapping[str, object], *, dead: bool) -> None:
        """Settle a delivery that is to come again, uncounted, or is `dead`, with more message annotations."""
        delivery = proton.Delivery(handle)
        delivery.local.failed = delivery.local.undeliverable = dead
        delivery.local.annotations = {proton.symbol(name): value for name, value in annotations.items()}
        delivery.update(proton.Delivery.MODIFIED)
        lib.pn_delivery_settle(handle)

    def forget(self, handle: Handle) -> None:
        """Settle a delivery whose outcome is known on both sides."""
        lib.pn_delivery_settle(handle)

    def within(self, handle: Handle, transaction: bytes) -> None:
        """Accept a delivery as a part of a transaction; it stays unsettled until that ends."""
        delivery = proton.Delivery(handle)
        delivery.local.data = [transaction, proton.Described(proton.ulong(ACCEPTED), [])]
        delivery.update(TRANSACTIONAL)

    def flow(self, link: Handle, credit: int) -> None:
        """Give a receiving link so much credit more, or take so much back as it has left.

        What came after credit was taken back has made proton's credit negative. That is no debt: a grant comes on top.
        """
        left = lib.pn_link_credit(link)
        lib.pn_link_flow(link, credit - min(left, 0) if credit > 0 else -min(-credit, max(left, 0)))

    def withdraw(self, link: Handle) -> None:
        """Take all credit back, before anything else that is told to the broker from now on.

        Of a link that ends in the same write proton would say nothing more about credit.
        """
        left = lib.pn_link_credit(link)
        if left > 0:
            lib.pn_link_flow(link, -left)
            lib.pn_transport_pending(self._t)

    def drain(self, link: Handle, credit: int) -> None:
        """Ask for so many messages, and to be told when there are no more."""
        lib.pn_link_drain(link, credit)

    def broken_off(self, link: Handle) -> bool:
        """Whether a drain was answered in the middle of a message: of what was asked for that one alone is left."""
        return self.begun(link) and lib.pn_link_credit(link) <= 1

    def drained(self, link: Handle) -> bool:
        """Whether all that was asked for has come, or will not come."""
        return bool(lib.pn_link_credit(link) <= 0)


TRANSACTIONAL = 0x34
