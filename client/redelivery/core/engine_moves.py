"""The deliveries of one consumer, and the moves that a delivery can make.

`Engine` decides which move to make; this is where each is carried through, with its count, its record and the
command that follows. A move for a delivery of an older epoch falls to the copy that waits for it, or to none.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING

from redelivery.core.commands import Accept, Command, Hold, Release, Stop
from redelivery.core.credit import Flow
from redelivery.core.delivery import Cause, Delivery, Record
from redelivery.core.message_history import RECALL, Recall
from redelivery.core.pending_confirms import Poisoning
from redelivery.core.report import Counts
from redelivery.core.schedule import schedule_for

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from redelivery.core.broker_redelivery import Rescheduling
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.dead_lettering.redrive import Ways
    from redelivery.core.events import Connected, ConnectionLost
    from redelivery.core.schedule import Ordering

__all__ = ["Moves"]

NOTHING: Sequence[Command] = ()


class Moves:
    """What one consumer holds, and the moves between: finish, accept, charge, hold, condemn, give back."""

    def __init__(
        self,
        consumer: int,
        *,
        dead_letters: Ways,
        credit: int,
        max_parked: int,
        ordering: Ordering,
        rescheduling: Rescheduling | None = None,
    ) -> None:
        self.counts = Counts()
        self.epoch = -1  # no connection yet
        self._since = 0.0  # when this connection began
        self._consumer = consumer
        self._schedule = schedule_for(ordering)
        self._running: set[Delivery] = set()
        self._held: set[Delivery] = set()
        self._suspects: deque[Delivery] = deque()  # with a ledger: those that wait for a turn alone
        self._recall = Recall(RECALL + credit + max_parked)
        self._flow = Flow(consumer, credit, max_parked)
        self._rescheduling = rescheduling
        self._poisoning = Poisoning(dead_letters, self._recall, self.counts, self._flow, rescheduling)
        self._capabilities: Capabilities | None = None
        self._closed = False  # draining or stopped: nothing is dispatched

    @property
    def parked(self) -> int:
        """How many deliveries are held here for a redelivery, a dead letter in doubt, or until the end."""
        return self._schedule.parked + len(self._poisoning) + len(self._held) + len(self._suspects)

    @property
    def waiting(self) -> int:
        """How many deliveries something will still be done with here: all that are parked, but those held for good."""
        return self._schedule.parked + len(self._poisoning) + len(self._suspects)

    @property
    def unconfirmed(self) -> int:
        """How many poison acknowledgements the broker has not confirmed."""
        return len(self._poisoning)

    @property
    def in_doubt(self) -> int:
        """How many of them the broker has yet to answer; the others were refused, and are tried again later."""
        return len(self._poisoning.in_doubt)

    @property
    def running(self) -> int:
        """How many deliveries the application has."""
        return len(self._running)

    @property
    def wall_offset(self) -> float:
        """The wall clock minus `now`. The driver keeps it right: the wall clock may be set at any time."""
        return self._poisoning.wall_offset

    @wall_offset.setter
    def wall_offset(self, seconds: float) -> None:
        self._poisoning.wall_offset = seconds

    def leave(self, *, closed: bool) -> dict[Hashable, Record]:
        """Give out what is known of messages that nobody here has; keep nothing back if the consumer is `closed`."""
        return self._recall.leave(closed=closed)

    def _finish(self, delivery: Delivery) -> Delivery | None:
        """End a dispatch. Return the delivery that its result applies to: itself, its copy, or none (stale)."""
        if delivery.epoch == self.epoch:
            self._running.discard(delivery)
            return delivery
        self.counts.stale += 1  # first: where nothing runs, the counts are taken for final
        self._running.discard(delivery)
        delivery.state = "lost"
        delivery.outcome = "stale"
        record = delivery.record
        if record is None:
            return None
        record.running = False
        copy, record.copy = record.copy, None
        if copy is None:
            self._schedule.settled(delivery)
        else:
            self._recall.records.pop(delivery.key, None)
        return copy

    def _accept(self, delivery: Delivery) -> Sequence[Command]:
        delivery.state = "settled"
        delivery.let_go()
        self._recall.accept(delivery)
        self._flow.settled += 1
        return (Accept((delivery,)),)

    def _charge(self, delivery: Delivery, cause: Cause, now: float) -> Record:
        record = delivery.record = delivery.record or Record()
        record.count += 1
        record.cause = cause
        record.last_failure = now
        if record.first_failure is None:
            record.first_failure = now
        return record

    def _hold(
        self, delivery: Delivery, record: Record, delay: float, now: float, *, deferred: bool
    ) -> Sequence[Command]:
        delivery.outcome = "deferred" if deferred else "redelivered"
        record.due = now + delay
        record.deferred = deferred
        live = self._finish(delivery)
        if live is None:
            return NOTHING
        if self._rescheduling is not None:
            if self._by_broker(live, record, now):
                self.counts.deferred += deferred and live is delivery
                self.counts.redelivered += not deferred and live is delivery
                self._schedule.settled(live)
                return self._begin_poisoning(live, record, now)
            delay = min(delay, self._most() or delay)
            record.due = now + delay
        record.held += delay
        too_long = not self._closed and self._too_long(record)
        if too_long and live.key is None:
            # Given back, it would come again at once, and nobody would know it: neither its delay nor its count.
            record.poisoned = True
            delivery.outcome = "poisoned" if live is delivery else delivery.outcome
            live.record = record
            return self._poison(live, record, now)
        if live is delivery:  # else it has been counted as stale
            if deferred:
                self.counts.deferred += 1
            else:
                self.counts.redelivered += 1
        if self._closed:
            return self._give_back(live)
        live.record = record
        if too_long:
            self._schedule.settled(live)
            return self._give_back(live, record.due)
        live.state = "parked"
        self._schedule.park(live, record.due)
        return (Hold(live, record.due, delay, record.count, record.cause, deferred),)

    def _park(self, delivery: Delivery, record: Record, due: float, now: float) -> Sequence[Command]:
        """Hold a delivery that comes again, or too early, until `due`."""
        delivery.state = "parked"
        self._schedule.park(delivery, due)
        left = due - now
        if left <= 0:
            return NOTHING
        record.held = left
        return (Hold(delivery, due, left, record.count, record.cause, record.deferred),)

    def _by_broker(self, delivery: Delivery, record: Record, now: float) -> bool:
        """Whether the broker is to hold the message until it is due, as a copy: then the record says so."""
        rescheduling, able, due = self._rescheduling, self._capabilities, record.due
        if rescheduling is None or able is None or due is None or due <= now:
            return False
        if able.longest_delay is not None:
            due = min(due, now + able.longest_delay)
        if not rescheduling.takes(delivery, due + self.wall_offset):
            return False
        delivery.record = record
        record.returns = due
        return True

    def _most(self) -> float | None:
        """Return how many seconds a message may wait here, or None."""
        return None if self._capabilities is None else self._capabilities.most_delay

    def _condemn(self, delivery: Delivery, record: Record, now: float) -> Sequence[Command]:
        record.poisoned = True
        delivery.outcome = "poisoned"
        live = self._finish(delivery)
        if live is None:
            return NOTHING
        live.record = record
        return self._poison(live, record, now)

    def _poison(self, delivery: Delivery, record: Record, now: float) -> Sequence[Command]:
        self._schedule.settled(delivery)
        return self._begin_poisoning(delivery, record, now)

    def _begin_poisoning(self, delivery: Delivery, record: Record, now: float) -> Sequence[Command]:
        commands = self._poisoning.begin(delivery, record, now)
        if commands and isinstance(commands[-1], Stop):
            self._closed = True
            delivery.state = "held"  # until the consumer closes, which gives it back
            self._held.add(delivery)
        return commands

    def _too_long(self, record: Record) -> bool:
        """Whether the broker would take the message back in the middle of its delay: then it is given back before.

        It comes again at once, and waits for the rest: for the broker that is another delivery. A policy's own delays
        are fewer (the driver sees to that); deferrals may come on top of them.
        """
        able = self._capabilities
        return (
            able is not None
            and able.most_delay is not None
            and able.release
            and record.held > able.most_delay
        )

    def _give_back(self, delivery: Delivery, due: float | None = None) -> Sequence[Command]:
        """Release where the broker can; elsewhere hold until the consumer closes, which gives it back.

        So too once nothing is dispatched any more, where credit cannot be taken back: it would come again at once.
        `due`: until when it must wait here if it comes again.
        """
        able = self._capabilities
        if able is not None and able.release and (able.flow or not self._closed):
            delivery.state = "settled"
            self._flow.settled += 1
            if delivery.record is not None and delivery.key is not None:
                delivery.record.due = due
                self._recall.remember(delivery.key, delivery.record)  # a release must not wash off the charge
            return (Release((delivery,)),)
        delivery.state = "held"
        self._held.add(delivery)
        return NOTHING

    # The connection, and the end.

    def _connected(self, event: Connected, now: float) -> Sequence[Command]:
        self.epoch = event.epoch
        self._since = now
        self._capabilities = event.capabilities
        self._poisoning.connected(event.capabilities)
        self._flow.restart(active=event.capabilities.flow)
        return NOTHING

    def _connection_lost(self, event: ConnectionLost, now: float) -> Sequence[Command]:
        if event.epoch != self.epoch:
            return NOTHING
        self.epoch = -1  # no epoch: results that come before the next connection are stale
        self._flow.restart(active=False)
        unsettled = [*self._schedule, *self._suspects, *self._held, *self._poisoning.lost()]
        if self._capabilities is not None and self._capabilities.counts:
            for delivery in unsettled:
                # The broker counts the loss even for what nobody saw; remembered, the message is not charged for it.
                delivery.record = delivery.record or Record()
        # A consumer that closes leaves a broker that lives, and will have stored what it has confirmed.
        lost_at = inf if event.closed else now
        self._recall.connection_lost(unsettled, self._running, lost_at)
        self._schedule.clear()
        self._suspects.clear()
        for delivery in self._running:
            self._schedule.occupy(delivery)
        self._held.clear()
        stop = event.stop
        if stop is None or event.consumer not in (None, self._consumer):
            return NOTHING
        self._closed = True
        return (stop,)

    def _drained(self) -> Sequence[Command]:
        self._closed = True
        held = [*self._schedule, *self._suspects]
        self._schedule.clear()
        self._suspects.clear()
        self.counts.released += len(held)
        commands: list[Command] = [self._flow.withdrawn()] if self._flow.active else []
        for delivery in held:
            commands += self._give_back(delivery)
        return commands
