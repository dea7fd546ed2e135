"""Intake of deliveries that bypass the engine: they are taken and accepted in lists.

For a consumer that stores messages and decides about them elsewhere. The engine still gets messages that it would
dead-letter: those that have expired, or whose body did not arrive whole.
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
# Bytes of a delivery in memory without its body: its header block, and its object.
BESIDE = 1024
# Seconds of a pause at most: it delays heart-beats and receipts, too (`redelivery.adapter.Sink`).
PAUSE = 0.02
# Seconds. If less time has passed since the last read, the reading thread sleeps so long, to read more at once. Cutting
# STOMP frames of 1 kB costs four times as much with reads of 2 kB as with reads of 64 kB (7 and 1.8 µs), and each read
# takes the interpreter lock.
GATHER = 0.004
# Messages of one read that are enough: no sleep after it.
LARGE = 200
# Epoch of deliveries that the broker has taken back: it is of no connection.
TAKEN_BACK = -2


class BulkIntake:
    """Deliveries of one consumer until they are taken. Any thread may call the methods.

    Give it to the consumer as `ConsumerHooks(bulk=…)`, and accept its deliveries by `ConsumerPort.accept_bulk`. Call
    `ConsumerPort.take_many` as well: it takes the engine's deliveries, and dead-letters expired messages.
    """

    def __init__(
        self, clock: Clock, *, empty_is_whole: bool = False, most_ready_bytes: int = MOST_READY
    ) -> None:
        """Make an intake for one consumer.

        Args:
            clock: Clock for waits and expiry.
            empty_is_whole: True: an empty body counts as whole if the protocol does not show that it is. Default
                False, as `redelivery.emptyBody`.
            most_ready_bytes: Bytes of ready messages above which the adapter's thread pauses for 20 ms after each read.
                Default 64 MiB.
        """
        self._clock = clock
        self._empty_is_whole = empty_is_whole
        self._most_ready_bytes = most_ready_bytes
        self._lock = threading.Lock()
        self._arrival = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        # Lists as they arrived, each with the bytes of its bodies.
        self._lots: deque[tuple[list[Delivery], int]] = deque()
        self._count = self._bytes = 0
        self._waiting = 0
        self._epoch, self._since, self._connected = -1, -inf, False
        self._flow = self._unsettleable = self._gathers = False
        # Real time of the last read.
        self._read = -inf
        self._over = self._woken = False
        self._error: RedeliveryError | None = None

    # Called by the owner of the consumer.

    @property
    def epoch(self) -> int:
        """Epoch of the current connection, or of the last one; -1 before the first."""
        return self._epoch

    @property
    def connected(self) -> bool:
        """True if that connection is up, as far as the consumer knows."""
        return self._connected

    @property
    def since(self) -> float:
        """Time at which that connection began, by the clock's `monotonic`."""
        return self._since

    def ready(self) -> int:
        """Return the number of deliveries that can be taken."""
        return self._count

    def take(self, most: int, most_bytes: int, timeout: float) -> list[Delivery]:
        """Take deliveries in the order of their arrival, after waiting up to `timeout` seconds for the first one.

        All are of one connection. They stay unacknowledged until `ConsumerPort.accept_bulk`. They count as running:
        the end of the consumer does not release them.

        Args:
            most: Number of deliveries at most.
            most_bytes: Bytes of bodies; the list ends with the delivery whose body reaches them.
            timeout: Seconds of the clock; 0: do not wait.

        Returns:
            The deliveries; none after `timeout`, or when the consumer has ended.

        Raises:
            RedeliveryError: The error that stopped the consumer.
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
            # The end of an AMQP link releases deliveries that are not running.
            enter_all(taken, "running")
            self._room.notify_all()
        return taken

    def wake(self) -> None:
        """Make a waiting `take` return at once, with an empty list."""
        with self._lock:
            if self._waiting:
                self._woken = True
                self._clock.notify(self._arrival, self._waiting)

    def _cut(self, most: int, most_bytes: int) -> list[Delivery]:
        """Take whole lists while they fit, and the beginning of the first one that does not."""
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

    # Called by the dispatcher.

    def connect(self, event: Connected) -> None:
        """Begin a connection. Deliveries of the last connection cannot be accepted any longer."""
        with self._lock:
            self._forget()
            able = event.capabilities
            self._flow, self._unsettleable, self._gathers = able.flow, able.unsettleable, able.batch
            self._since = self._clock.monotonic() if event.since is None else event.since
            self._epoch, self._connected = event.epoch, True

    def end(self, error: RedeliveryError | None) -> None:
        """End with the consumer: `take` returns nothing more. The broker takes back the other deliveries."""
        with self._lock:
            self._over, self._error = True, error
            self._room.notify_all()
            self._clock.notify(self._arrival, self._waiting)

    def intercept(self, event: Event, convicted: Container[Hashable]) -> Event | None:
        """Take the deliveries that bypass the engine; return the rest of the event for the engine, or None.

        Args:
            event: Any event of the consumer.
            convicted: Proofs of messages over which the broker has closed connections. A list with one of them goes
                to the engine, and the consumer is stopped.
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
        """Remove deliveries that the broker has taken back; return the engine's part, and the credit to grant again."""
        with self._lock:
            # Deliveries with a number are the engine's.
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
                # So that the delivery is not accepted later, and its credit is not granted twice.
                delivery.epoch = TAKEN_BACK
            free = len(gone) if self._flow else 0
        own = [each for each in event.deliveries if each not in gone]
        return (TakenBack(event.consumer, own) if own else None), free

    def accept(self, deliveries: Sequence[Delivery]) -> tuple[list[Delivery], int]:
        """Mark deliveries of the current connection as settled; return them, and the credit to grant."""
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
        """Sleep on the reading thread if reads follow each other fast, so that the next one gets more."""
        now = time.monotonic()
        if now - self._read < GATHER and messages < LARGE:
            time.sleep(GATHER)
            now = time.monotonic()
        self._read = now

    def _bypasses(self, delivery: Delivery, now: float) -> bool:
        """Return True if a delivery bypasses the engine; the slow check, after `plain` was False for some of a list."""
        if delivery.plain(now):
            return True
        if delivery.has_expired(now):
            return False
        whole = arrived_whole(delivery, empty_is_whole=self._empty_is_whole)
        # The engine handles deliveries that the broker cannot settle.
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
                # Real time: the pause delays the reading of a socket, not a schedule.
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
