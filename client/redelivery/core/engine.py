"""The engine: one per consumer. Events in, commands out; it alone decides what happens to a message.

Rules of this file. It waits for nothing, reads no clock, draws no random number: `now` and the random source are
arguments. It names no broker. Whatever the application reports for a delivery of an older epoch yields no command
for that delivery, ever: its handle belongs to a connection that is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from redelivery.core.broker_redelivery import EARLY
from redelivery.core.commands import Command, Dispatch, LookUp
from redelivery.core.delivery import Cause, Delivery, Record
from redelivery.core.engine_attempts import Attempts
from redelivery.core.engine_moves import NOTHING
from redelivery.core.events import (
    Alone,
    Arrived,
    Committed,
    Confirmed,
    Connected,
    ConnectionLost,
    Deferred,
    Discarded,
    Drained,
    Event,
    Failed,
    Inherited,
    Known,
    Poisoned,
    Released,
    Resumed,
    Succeeded,
    Tick,
    Wanted,
)
from redelivery.core.policy.pre_dispatch import exceeded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from redelivery.core.broker_redelivery import Rescheduling
    from redelivery.core.dead_lettering.redrive import Ways
    from redelivery.core.policy.policy_map import RedeliveryPolicyMap
    from redelivery.core.policy.redelivery_policy import Policy
    from redelivery.core.schedule import Ordering

__all__ = ["Engine"]


class Engine(Attempts):
    """Decides for one consumer: dispatch, hold, redeliver at t, accept, poison.

    `credit` bounds what the application has unsettled at once, `max_parked` what waits for a redelivery; past it
    no fresh message is dispatched. `transacted`: the policy's pre-dispatch check applies. `random` drives collision
    avoidance; None means no jitter. `rescheduling`: the broker holds what waits; None: it is held here.
    """

    def __init__(
        self,
        consumer: int,
        *,
        policies: RedeliveryPolicyMap,
        dead_letters: Ways,
        credit: int = 1000,
        max_parked: int = 1000,
        ordering: Ordering = "non_blocking",
        maximum_deferrals: int = 100,
        transacted: bool = False,
        random: Random | None = None,
        rescheduling: Rescheduling | None = None,
    ) -> None:
        super().__init__(
            consumer, policies=policies, dead_letters=dead_letters, credit=credit, max_parked=max_parked,
            ordering=ordering, transacted=transacted, random=random, rescheduling=rescheduling,
        )  # fmt: skip
        self._credit = credit
        self._max_parked = max_parked
        self._maximum_deferrals = maximum_deferrals

    def recall_nothing(self) -> None:
        """Know no message again over the next connection: whoever takes them knows more of each than its key."""
        self._recall.stop()

    def next_due(self) -> float | None:
        """When a `Wanted` will be answered with a delivery that is parked now; None if none is."""
        return None if self._closed else self._schedule.next_due()

    def next_alarm(self) -> float | None:
        """When a `Tick` is needed: a poison acknowledgement is to be tried again, or has taken too long."""
        return self._poisoning.next_alarm()

    def ready(self) -> int:
        """How many deliveries could be dispatched at once."""
        return 0 if self._closed else self._schedule.ready()

    @property
    def full(self) -> bool:
        """Whether so much is parked that nothing fresh is dispatched."""
        return not self._has_room()

    @property
    def arrived(self) -> int:
        """How many deliveries have arrived so far."""
        return self._seq

    @property
    def exhausted(self) -> bool:
        """Whether the application holds its whole credit unsettled: nothing more comes until it settles."""
        return len(self._running) >= self._credit

    def feed(self, event: Event, now: float) -> Sequence[Command]:  # noqa: C901, PLR0912 - it is the table of events
        """Take one event at the time `now` (seconds of any steady clock) and return what is to be done, in order."""
        match event:
            case Succeeded():
                commands = self._succeeded(event.delivery)
            case Wanted():
                commands = self._wanted(now)
            case Known():
                commands = self._known(event.delivery, event.entry, now)
            case Alone():
                commands = self._alone(now)
            case Resumed():
                commands = self._resumed(event.delivery)
            case Arrived():
                commands = self._arrived(event.deliveries, now)
            case Failed():
                commands = self._failed(event.delivery, event.cause, event.policy, now)
            case Poisoned():
                commands = self._poisoned(event.delivery, event.cause, now)
            case Discarded():
                commands = self._succeeded(event.delivery, discarded=True)
            case Committed():
                # The broker knows, but not of a copy that it has sent again.
                commands = self._succeeded(event.delivery)[event.delivery.outcome != "stale" :]
            case Deferred():
                commands = self._deferred(event, now)
            case Released():
                commands = self._released(event.delivery)
            case Confirmed():
                commands = self._confirmed(event, now)
            case Tick():
                commands = self._poisoning.tick(now)
            case Connected():
                commands = self._connected(event, now)
            case ConnectionLost():
                commands = self._connection_lost(event, now)
            case Drained():
                commands = self._drained()
            case Inherited():
                self._recall.inherit(event.records)
                commands = NOTHING
            case _:
                assert_never(event)
        if self._flow.active and not self._closed:
            credit = self._flow.due(self.parked)
            if credit is not None:
                return [*commands, credit]
        return commands

    # Arrival and dispatch.

    def _arrived(self, deliveries: Sequence[Delivery], now: float) -> Sequence[Command]:
        epoch, seq, add = self.epoch, self._seq, self._schedule.add
        known = not self._recall.empty or self._rescheduling is not None
        counted = self._capabilities is not None and self._capabilities.counts
        commands: list[Command] = []
        for delivery in deliveries:
            if delivery.epoch != epoch:
                continue  # from a connection that is gone: the broker sends it again
            seq += 1
            delivery.seq = seq
            # Only what came before can be more than a fresh message: of that alone the identity is read.
            if self._closed or known or (counted and delivery.broker_count):
                commands += self._admit(delivery, now)
            else:
                add(delivery)
        self._flow.arrived += seq - self._seq
        self._seq = seq
        return commands

    def _admit(self, delivery: Delivery, now: float) -> Sequence[Command]:
        """Take in a delivery that may be more than a fresh message."""
        key = delivery.key
        record = self._recall.known(key, now - self._since)
        if self._closed:
            self.counts.released += 1
            if record is not None and not record.running:
                delivery.record = record
            return self._give_back(delivery)
        if record is None:
            if self._recall.accepted_before(delivery):
                self.counts.deduplicated += 1
                return self._accept(delivery)
            record = delivery.record = self._seeded(delivery, now)
            if record is None or record.due is None or record.due <= now + EARLY:
                self._schedule.add(delivery)
                return NOTHING
            return self._park(delivery, record, record.due, now)
        return self._readmit(delivery, record, now)

    def _readmit(self, delivery: Delivery, record: Record, now: float) -> Sequence[Command]:
        """Take in a message that is remembered: it goes on where it was."""
        delivery.record = record
        record.held = 0.0
        if record.running:
            delivery.state = "waiting"
            record.copy = delivery
            return NOTHING
        self._recall.forget(delivery.key)
        if record.poisoned or record.returns is not None or self._by_broker(delivery, record, now):
            return self._begin_poisoning(delivery, record, now)
        if record.due is None:
            self._schedule.add(delivery)
            return NOTHING
        return self._park(delivery, record, record.due, now)

    def _has_room(self) -> bool:
        """Whether a fresh message may be dispatched, which may fail and have to be held."""
        if not (self._schedule.parked or self._held or self._poisoning.pending or self._suspects):
            return True  # the common case, without counting
        return self.parked < self._max_parked

    def _wanted(self, now: float) -> Sequence[Command]:
        if self._closed or len(self._running) >= self._credit or (self._suspects and self._in_order):
            return NOTHING
        delivery = self._schedule.next(now, fresh=self._has_room())
        if delivery is None:
            return NOTHING
        expires = delivery.expires_at
        if expires is not None and expires <= now + self.wall_offset:
            return self._expired(delivery, now)
        if self._transacted and (over := exceeded(delivery, self._policies)) is not None:
            return self._poison(delivery, over, now)
        delivery.state = "running"
        delivery.outcome = None
        self._running.add(delivery)
        return (LookUp(delivery),) if self._ledger else (Dispatch(delivery),)

    def _succeeded(self, delivery: Delivery, *, discarded: bool = False) -> Sequence[Command]:
        if delivery.state != "running":
            return NOTHING
        delivery.outcome = "discarded" if discarded else "accepted"
        live = self._finish(delivery)
        if live is None:
            self._recall.forget(delivery.key)
            self._recall.accepted((delivery.key,))
            return NOTHING
        if live is not delivery:
            self.counts.deduplicated += 1
        elif discarded:
            self.counts.discarded += 1
        else:
            self.counts.accepted += 1
        self._schedule.settled(live)
        return self._accept(live)

    def _failed(
        self, delivery: Delivery, cause: Cause, policy: Policy | None, now: float
    ) -> Sequence[Command]:
        if delivery.state != "running":
            return NOTHING
        record = self._charge(delivery, cause, now)
        policy = policy or self._policies.policy_for(delivery.destination)
        if 0 <= policy.maximum_redeliveries < record.count:
            record.exhausted = True
            return self._condemn(delivery, record, now)
        delay = policy.redelivery_delay_ms(record.count, self._random) / 1000
        return self._hold(delivery, record, delay, now, deferred=False)

    def _poisoned(self, delivery: Delivery, cause: Cause, now: float) -> Sequence[Command]:
        if delivery.state != "running":
            return NOTHING
        return self._condemn(delivery, self._charge(delivery, cause, now), now)

    def _deferred(self, event: Deferred, now: float) -> Sequence[Command]:
        delivery = event.delivery
        if delivery.state != "running":
            return NOTHING
        record = delivery.record = delivery.record or Record()
        record.deferrals += event.counted
        if record.deferrals > self._maximum_deferrals:
            return self._failed(delivery, event.cause, None, now)
        most = None if self._rescheduling is not None else self._most()
        return self._hold(delivery, record, min(event.delay, most or event.delay), now, deferred=True)

    def _released(self, delivery: Delivery) -> Sequence[Command]:
        if delivery.state != "running":
            return NOTHING
        delivery.outcome = "released"
        live = self._finish(delivery)
        if live is None:
            return NOTHING
        self.counts.released += live is delivery  # else it has been counted as stale
        self._schedule.settled(live)
        return self._give_back(live)
