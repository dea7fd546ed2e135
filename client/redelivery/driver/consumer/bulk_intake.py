"""Deliveries that bypass the engine: they are taken and accepted in lists.

For a consumer that stores messages and decides about them elsewhere. What an engine would do something about goes to
the engine as ever: messages that have expired, or whose body did not arrive whole.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from math import inf
from typing import TYPE_CHECKING

from redelivery.core.dead_lettering.routing import arrived_whole
from redelivery.core.events import Arrived, ConnectionLost, TakenBack
from redelivery.core.transitions import enter_all
from redelivery.errors import another

if TYPE_CHECKING:
    from collections.abc import Container, Hashable, Sequence

    from redelivery.clock import Clock
    from redelivery.core.delivery import Delivery
    from redelivery.core.events import Connected, Event
    from redelivery.errors import RedeliveryError

__all__ = ["BulkIntake"]

# Bytes of bodies that may be ready before reading pauses.
MOST_READY = 64 << 20
# Bytes that a delivery takes beside its body: its header block, and its object.
BESIDE = 1024
# Seconds of a pause at most: heart-beats and receipts wait for it, too (`redelivery.adapter.Sink`).
PAUSE = 0.02
# Seconds between two reads from which on more is read at once. With a read for each 2 kB, cutting STOMP frames of 1 kB
# costs four times as much as with a read for each 64 kB (7 and 1.8 µs), and each read takes the interpreter lock.
GATHER = 0.004
# Messages of a read that is large enough.
LARGE = 200
# The epoch of what the broker has taken back: of no connection.
TAKEN_BACK = -2


class BulkIntake:
    """The deliveries of one consumer, until they are taken. All methods may be called from any thread.

    Give it to the consumer as `ConsumerHooks(bulk=…)`, and accept what it returns by `ConsumerPort.accept_bulk`. What
    it leaves to the engine is taken as usual (`ConsumerPort.take_many`); only then is what has expired dead-lettered.
    """

    def __init__(
        self, clock: Clock, *, empty_is_whole: bool = False, most_ready_bytes: int = MOST_READY
    ) -> None:
        """Make an intake for one consumer.

        Args:
            clock: waits are by it, and it says what has expired.
            empty_is_whole: an empty body counts as whole where the protocol does not show it; default as
                `redelivery.emptyBody`.
            most_ready_bytes: above it the adapter's thread pauses for 20 ms after each read. Default 64 MiB.
        """
        self._clock = clock
        self._empty_is_whole = empty_is_whole
        self._most_ready_bytes = most_ready_bytes
        self._lock = threading.Lock()
        self._arrival = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        # Lists as they came, and the bytes of their bodies.
        self._lots: deque[tuple[list[Delivery], int]] = deque()
        self._count = self._bytes = 0
        self._waiting = 0
        self._epoch, self._since, self._connected = -1, -inf, False
        self._flow = self._unsettleable = self._gathers = False
        # When the reading thread was here, in real time.
        self._read = -inf
        self._over = self._woken = False
        self._error: RedeliveryError | None = None

    # What the owner of the consumer asks.

    @property
    def epoch(self) -> int:
        """Number of the connection, or of the last one; -1 before the first."""
        return self._epoch

    @property
    def connected(self) -> bool:
        """True if that connection stands, as far as the consumer knows."""
        return self._connected

    @property
    def since(self) -> float:
        """When that connection began, by the clock's `monotonic`."""
        return self._since

    def ready(self) -> int:
        """Return how many deliveries wait to be taken."""
        return self._count

    def take(self, most: int, most_bytes: int, timeout: float) -> list[Delivery]:
        """Take deliveries in the order of their arrival, after waiting up to `timeout` seconds for the first one.

        All are of one connection. They stay unacknowledged until `ConsumerPort.accept_bulk`; a broker that takes
        back what no handler has, at the end of a consumer, leaves them out.

        Args:
            most: number of deliveries at most.
            most_bytes: the list ends with the delivery whose body reaches so many bytes of bodies.
            timeout: seconds of the clock; 0: do not wait.

        Returns:
            The deliveries; none after `timeout`, or when the consumer has ended.

        Raises:
            RedeliveryError: what stopped the consumer.
        """
        clock = self._clock
        deadline = clock.monotonic() + timeout
        with self._lock:
            while not self._lots or self._over:
                if self._error is not None:
                    raise another(self._error)
                left = deadline - clock.monotonic()
                if self._over or left <= 0 or self._woken:
                    self._woken = False
                    return []
                self._waiting += 1
                try:
                    clock.wait(self._arrival, left)
                finally:
                    self._waiting -= 1
            taken = self._cut(most, most_bytes)
            # The end of an AMQP link releases what is not running.
            enter_all(taken, "running")
            self._room.notify_all()
        return taken

    def wake(self) -> None:
        """Have a `take` that waits return at once, with nothing."""
        with self._lock:
            if self._waiting:
                self._woken = True
                self._clock.notify(self._arrival, self._waiting)

    def _cut(self, most: int, most_bytes: int) -> list[Delivery]:
        """Take lists as a whole where they fit, and the beginning of one that does not."""
        taken: list[Delivery] = []
        lots, size = self._lots, 0
        while lots and len(taken) < most and size < most_bytes:
            lot, held = lots[0]
            if len(lot) <= most - len(taken) and held <= most_bytes - size:
                lots.popleft()
                taken += lot
                size += held
                continue
            end, begun = 0, size
            while end < len(lot) and len(taken) + end < most and size < most_bytes:
                size += len(lot[end].body)
                end += 1
            taken += lot[:end]
            if end < len(lot):
                lots[0] = lot[end:], held - (size - begun)
            else:
                lots.popleft()
        self._count -= len(taken)
        self._bytes -= size
        return taken

    # What the dispatcher reports.

    def connect(self, event: Connected) -> None:
        """Begin a connection. Deliveries of the one before cannot be accepted any longer."""
        with self._lock:
            self._forget()
            able = event.capabilities
            self._flow, self._unsettleable, self._gathers = able.flow, able.unsettleable, able.batch
            self._since = self._clock.monotonic() if event.since is None else event.since
            self._epoch, self._connected = event.epoch, True

    def end(self, error: RedeliveryError | None) -> None:
        """End with the consumer: nothing more is handed out. The broker takes back what was not taken."""
        with self._lock:
            self._over, self._error = True, error
            self._room.notify_all()
            self._clock.notify(self._arrival, self._waiting)

    def intercept(self, event: Event, convicted: Container[Hashable]) -> Event | None:
        """Take what bypasses the engine; return what is left for it.

        Args:
            event: any event of the consumer.
            convicted: proofs of messages over which the broker has closed connections. A list with one of them goes
                to the engine, which is stopped over it.
        """
        if isinstance(event, Arrived):
            return self._arrived(event, convicted)
        if isinstance(event, ConnectionLost):
            with self._lock:
                if event.epoch == self._epoch:
                    self._connected = False
                    self._forget()
        return event

    def take_back(self, event: TakenBack) -> tuple[TakenBack | None, int]:
        """Take out what the broker has taken back; return what is the engine's, and the credit that is free again."""
        with self._lock:
            # The engine numbers its own.
            gone = {
                each
                for each in event.deliveries
                if each.epoch == self._epoch and not each.seq and each.state in ("ready", "running")
            }
            lots = [[each for each in lot if each not in gone] for lot, _ in self._lots]
            self._forget()
            for lot in lots:
                self._keep(lot)
            for delivery in gone:
                # It is accepted no more, and its credit is not granted for a second time.
                delivery.epoch = TAKEN_BACK
            free = len(gone) if self._flow else 0
        own = [each for each in event.deliveries if each not in gone]
        return (TakenBack(event.consumer, own) if own else None), free

    def accept(self, deliveries: Sequence[Delivery]) -> tuple[list[Delivery], int]:
        """Return those that can be accepted now, which counts as done, and the credit that is to be granted."""
        with self._lock:
            if not self._connected:
                return [], 0
            epoch = self._epoch
            own = [each for each in deliveries if each.epoch == epoch and each.state == "running"]
            enter_all(own, "settled")
        return own, len(own) if self._flow else 0

    def _arrived(self, event: Arrived, convicted: Container[Hashable]) -> Event | None:
        deliveries = event.deliveries
        if convicted and any(each.proof in convicted for each in deliveries):
            return event
        now = self._clock.time()
        plain = [each for each in deliveries if each.plain(now)]
        others: list[Delivery] = []
        if len(plain) < len(deliveries):
            plain = []
            for each in deliveries:
                (plain if self._bypasses(each, now) else others).append(each)
        if plain and not self._take_in(plain):
            return event
        if self._gathers:
            self._gather(len(deliveries))
        return Arrived(event.consumer, others) if others else None

    def _gather(self, messages: int) -> None:
        """Let more arrive before the next read, where one read follows the other: on the reading thread."""
        now = time.monotonic()
        if now - self._read < GATHER and messages < LARGE:
            time.sleep(GATHER)
            now = time.monotonic()
        self._read = now

    def _bypasses(self, delivery: Delivery, now: float) -> bool:
        """Look at a delivery of which a quick look may not show that it is plain."""
        if delivery.plain(now):
            return True
        expires = delivery.expires_at
        if expires is not None and expires <= now:
            return False
        whole = arrived_whole(delivery, empty_is_whole=self._empty_is_whole)
        # What the broker cannot settle is sorted out by the engine.
        return whole and (not self._unsettleable or delivery.settleable)

    def _take_in(self, plain: list[Delivery]) -> bool:
        """Keep deliveries until they are taken; False: they are of another connection, or the consumer has ended."""
        with self._lock:
            if not self._connected or self._over or plain[0].epoch != self._epoch:
                return False
            self._keep(plain)
            if self._waiting:
                self._clock.notify(self._arrival, 1)
            if self._bytes + self._count * BESIDE > self._most_ready_bytes:
                # Real time: it is about the wire, not about a schedule.
                self._room.wait(PAUSE)
        return True

    def _keep(self, lot: list[Delivery]) -> None:
        if lot:
            size = sum([len(each.body) for each in lot])
            self._lots.append((lot, size))
            self._count += len(lot)
            self._bytes += size

    def _forget(self) -> None:
        self._lots.clear()
        self._count = self._bytes = 0
        self._room.notify_all()
