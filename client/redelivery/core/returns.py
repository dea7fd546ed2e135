"""Return of deliveries to the broker: released or kept here by us, or taken back by the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.commands import Release, TookBack
from redelivery.core.delivery import Record
from redelivery.core.transitions import enter

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Iterator, Mapping, Sequence

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Command
    from redelivery.core.credit import CreditWindow
    from redelivery.core.delivery import Delivery
    from redelivery.core.dispatch_gate import DispatchGate
    from redelivery.core.dispatch_order import Schedule
    from redelivery.core.message_history import MessageHistory
    from redelivery.core.pending_confirms import PendingConfirms
    from redelivery.core.report import Counters

__all__ = ["ReleasedHere", "Returns", "Takeback"]


# ---- Returns ---------------------------------------------------------------------------------------------
# Return of deliveries to the broker: released if the broker can, otherwise kept here until the consumer closes.


class Returns:
    """Gives back the deliveries of one engine."""

    def __init__(
        self,
        schedule: Schedule,
        running: Mapping[Delivery, None],
        suspects: deque[Delivery],
        held: ReleasedHere,
        flow: CreditWindow,
        gate: DispatchGate,
        counts: Counters,
        history: MessageHistory,
    ) -> None:
        self._schedule = schedule
        self._running = running
        self._suspects = suspects
        self._held = held
        self._flow = flow
        self._gate = gate
        self._counts = counts
        self._history = history
        self._capabilities: Capabilities | None = None

    def share(self, history: MessageHistory) -> None:
        """Share the memory of all consumers of the source."""
        self._history = history

    def connected(self, capabilities: Capabilities) -> None:
        """Note the capabilities of the broker."""
        self._capabilities = capabilities
        self._gate.connected(capabilities)

    @property
    def most_delay(self) -> float | None:
        """Seconds that a message may be parked here; None: no limit."""
        return None if self._capabilities is None else self._capabilities.most_delay

    def one(self, delivery: Delivery) -> Sequence[Command]:
        """Release a delivery if the broker can; otherwise keep it until the consumer closes, which gives it back.

        It is also kept once nothing is dispatched any more, if credit cannot be withdrawn: it would return at once.
        """
        able, record = self._capabilities, delivery.record
        waited = record is not None and record.copy is delivery
        if record is not None and waited:
            # The handler that it has waited for keeps the record.
            self._history.let_wait(record)
            record = None
        if able is not None and able.release and (able.flow or not self._gate.closed):
            enter(delivery, "settled")
            self._flow.settled += 1
            record = Record() if delivery.record is None and able.counts and not waited else record
            if record is not None and able.release_counts:
                record.released += 1
            # A release removes neither charge nor delay; one that is lost charges nothing.
            self._history.gave_back(delivery, record)
            self._history.source.released(delivery, record)
            return (Release((delivery,)),)
        self._held.keep(delivery)
        return ()

    def fresh(self, *, late: bool = False) -> list[Command]:
        """Release messages that were never dispatched and may not be now: another process may be able to handle them.

        `late`: they arrived after the credit was withdrawn; release only as many as were on their way then. A broker
        that sends more (Classic 6.1.7, for released messages) would send them again and again.

        Only if a release is not counted and credit can be withdrawn; otherwise they would return at once. A schedule
        that keeps an order releases none: the messages after a parked one must stay behind it.
        """
        able = self._capabilities
        commands: list[Command] = []
        if able is None or not (able.flow and able.release) or able.release_counts:
            return commands
        keep = self._gate.wanted
        if late:
            keep = max(keep, self._schedule.ready() - self._flow.late)
        withdrawn = self._schedule.withdrawn(keep)
        if late:
            self._flow.late -= len(withdrawn)
        for fresh in withdrawn:
            self._counts.released += 1
            commands += self.one(fresh)
        return commands

    def withheld(self, now: float) -> list[Command]:
        """Release every message that the breaker or a pause withholds; the broker redelivers them at once."""
        self._gate.gave_back(now)
        commands: list[Command] = []
        for delivery in self.taken_out():
            commands += self.one(delivery)
        for delivery in self._running:
            self._schedule.occupy(delivery)
        return commands

    def paused(self, now: float, *, paused: bool) -> Sequence[Command]:
        """Begin or end a pause; at its beginning, release messages never dispatched. Handlers continue."""
        self._gate.pause(now, paused=paused)
        return [*self._flow.withdrawn(), *self.fresh()] if paused and not self._gate.closed else ()

    def drained(self) -> Sequence[Command]:
        """Release all messages that are not running: the consumer dispatches no more."""
        self._gate.close()
        held = self.taken_out()
        self._counts.released += len(held)
        commands: list[Command] = [*self._flow.withdrawn()]
        for delivery in held:
            commands += self.one(delivery)
        return commands

    def taken_out(self) -> list[Delivery]:
        """Remove and return the deliveries that are not running, in the broker's order."""
        held = sorted([*self._schedule, *self._suspects], key=lambda delivery: delivery.seq)
        self._schedule.clear()
        self._suspects.clear()
        return held


# ---- Taken back ------------------------------------------------------------------------------------------
# Deliveries that the broker takes back on a connection that still stands, because they were not settled in time.
#
# RabbitMQ 4.3 does so after a consumer's timeout: the message goes to any consumer at once. As after the loss of a
# connection, later results for the delivery are stale, and the record of the message is kept.

# An epoch that no connection has, and not the one that the engine has between two of them.
NONE = -2


class Takeback:
    """Invalidates taken-back deliveries of one engine."""

    def __init__(
        self,
        schedule: Schedule,
        running: Mapping[Delivery, None],
        suspects: deque[Delivery],
        held: ReleasedHere,
        confirms: PendingConfirms,
        flow: CreditWindow,
    ) -> None:
        self._schedule = schedule
        self._running = running
        self._suspects = suspects
        self._held = held
        self._confirms = confirms
        self._flow = flow

    def take(
        self, deliveries: Sequence[Delivery], epoch: int, history: MessageHistory, able: Capabilities | None
    ) -> Sequence[Command]:
        """Invalidate those that are not settled; return the command for the log.

        Those settled meanwhile were settled in vain: a message that was to be delayed is recognised when it arrives.
        """
        mine = [each for each in deliveries if each.epoch == epoch]
        for delivery in mine:
            if delivery.state == "settled" and delivery.record is not None:
                history.not_rescheduled(delivery.record)
        gone = [each for each in mine if each.state not in ("settled", "lost")]
        if not gone:
            return ()
        running = [each for each in gone if each in self._running]
        unsettled = [each for each in gone if each not in self._running]
        for delivery in gone:
            delivery.record = delivery.record or Record()
        self._forget(set(unsettled))
        # They count as settled: their credit is free.
        self._flow.settled += len(running)
        history.taken_back(unsettled, running)
        for delivery in running:
            # Makes its result stale.
            delivery.epoch = NONE
        return (TookBack(len(gone), len(running), None if able is None else able.max_hold),)

    def _forget(self, gone: set[Delivery]) -> None:
        for delivery in gone:
            if not self._confirms.forget(delivery):
                # One that was set aside has been counted before.
                self._flow.settled += 1
            self._held.forget(delivery)
            if delivery in self._suspects:
                self._suspects.remove(delivery)
        self._rebuild(gone)

    def _rebuild(self, gone: set[Delivery]) -> None:
        """Remove them from the schedule, in which all others keep their order."""
        # Those with a due time first: they may be the heads of their groups.
        heads = {id(delivery) for delivery in self._schedule.parked_now()}
        left = [delivery for delivery in self._schedule if delivery not in gone]
        left.sort(key=lambda delivery: (id(delivery) not in heads, delivery.seq))
        self._schedule.clear()
        for delivery in (*self._running, *self._suspects):
            self._schedule.occupy(delivery)
        for delivery in left:
            due = None if delivery.record is None else delivery.record.due
            if delivery.state == "parked":
                self._schedule.park(delivery, 0.0 if due is None else due)
            else:
                self._schedule.add(delivery)


# ---- Released here ---------------------------------------------------------------------------------------
# Released deliveries of a broker that takes nothing back before the consumer closes.
#
# They are kept here, unacknowledged, and count as parked. If that leaves no room for a fresh message that is ready,
# the first released one makes room: it is dispatched again when there is room and nothing else is ready. If nothing
# is ready, one is dispatched again each second, because the broker may send no more while they are unsettled. A
# consumer that releases its messages thus neither stands still nor handles them in a tight loop.

# Seconds until one is dispatched again although no fresh message needs its room.
PAUSE = 1.0


class ReleasedHere:
    """Deliveries in order of their release. The length counts those that count as parked."""

    __slots__ = ("_again", "_many", "_next_turn", "coming", "kept")

    def __init__(self) -> None:
        # Public, because `bool(self)` would be a method call for each message.
        self.kept: dict[Delivery, None] = {}
        # Those that made room: they use credit, but no room for parked messages.
        self.coming: dict[Delivery, None] = {}
        # Those dispatched again, some of which are settled by now; and the size at which the settled ones are removed.
        self._again: set[Delivery] = set()
        self._many = 4
        # While nothing can be dispatched: when the next one is dispatched again.
        self._next_turn: float | None = None

    def __len__(self) -> int:
        return len(self.kept)

    def __bool__(self) -> bool:
        return bool(self.kept or self.coming)

    def __iter__(self) -> Iterator[Delivery]:
        yield from self.kept
        yield from self.coming

    def ready(self, *, full: bool) -> int:
        """Return how many may be dispatched again if nothing else is ready."""
        return 0 if full else len(self.coming)

    def again(self) -> int:
        """Return how many running deliveries were released here before. Called without a lock."""
        return len(self._at_work())

    def _at_work(self) -> set[Delivery]:
        return {each for each in list(self._again) if each.state == "running"}

    def next_due(self, due: float | None) -> float | None:
        """Return when the next one is dispatched again, or `due` if that is earlier."""
        turn = self._next_turn
        return due if turn is None else turn if due is None else min(due, turn)

    def keep(self, delivery: Delivery) -> None:
        """Add a delivery."""
        enter(delivery, "held")
        self.kept[delivery] = None

    def room(self, schedule: Schedule, room: int, now: float) -> bool:
        """Return True if a fresh message may be dispatched; `room` more may be parked. Below 1, others make room."""
        while room < 1:
            if not self._make_way(now, needed=schedule.ready() > 0):
                return False
            room += 1
        self._next_turn = None
        while room and self.coming and not schedule.ready():
            delivery = next(iter(self.coming))
            del self.coming[delivery]
            self._come_again(delivery)
            schedule.add(delivery)
            # It may have to wait behind its group.
            room -= 1
        return True

    def _make_way(self, now: float, *, needed: bool) -> bool:
        """Stop counting the first one as parked: at once if `needed`, otherwise in time. False if none does so."""
        if not self.kept:
            self._next_turn = None
            return False
        if not needed:
            if self._next_turn is None:
                self._next_turn = now + PAUSE
            if now < self._next_turn:
                return False
        self._next_turn = None
        delivery = next(iter(self.kept))
        del self.kept[delivery]
        self.coming[delivery] = None
        return True

    def _come_again(self, delivery: Delivery) -> None:
        enter(delivery, "ready")
        if len(self._again) >= self._many:
            self._again = self._at_work()
            self._many = 2 * len(self._again) + 4
        self._again.add(delivery)

    def forget(self, delivery: Delivery) -> None:
        """Remove a delivery that the broker has taken back."""
        self.kept.pop(delivery, None)
        self.coming.pop(delivery, None)

    def clear(self) -> None:
        """Remove all."""
        self._again.clear()
        self.kept.clear()
        self.coming.clear()
        self._next_turn = None
