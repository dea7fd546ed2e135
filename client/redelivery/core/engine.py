"""The engine, one per consumer: events in, commands out. It alone decides what happens to a message.

Rules of this file. The engine waits for nothing, reads no clock, and draws no random number: `now` and the random
source are arguments. It names no broker, and no ledger (`ledger_engine` does). A result that the application reports
for a delivery of an older epoch never yields a command for that delivery: its connection is gone.
"""

from __future__ import annotations

from math import ceil, inf
from typing import TYPE_CHECKING, assert_never

from redelivery.core.accepts_in_doubt import RecentAccepts
from redelivery.core.breaker import Circuit
from redelivery.core.broker_redelivery import EARLY
from redelivery.core.cause import HELD
from redelivery.core.charge import charge
from redelivery.core.commands import (
    Accept,
    AcceptUnseen,
    Command,
    Dispatch,
    Hold,
    LossesCounted,
    Stop,
    Unanswered,
)
from redelivery.core.consumer_state import ConsumerState
from redelivery.core.credit import PARKING_NOTHING, CreditWindow
from redelivery.core.dead_lettering.routing import COPY
from redelivery.core.delivery import EXPIRED, Cause, Delivery, Record
from redelivery.core.dispatch_gate import MOST_RETURNS, SHARE, DispatchGate
from redelivery.core.events import (
    Alone,
    Arrived,
    Committed,
    Confirmed,
    Connected,
    ConnectionLost,
    Continued,
    Deferred,
    Discarded,
    Drained,
    Event,
    Failed,
    Inherited,
    Known,
    Paused,
    Poisoned,
    QueueFound,
    Released,
    Resumed,
    Succeeded,
    TakenBack,
    Tick,
    Wanted,
)  # fmt: skip
from redelivery.core.message_history import ACCEPTED, DOUBLE, HANDLED, LOOK, RECALL
from redelivery.core.pending_confirms import PendingConfirms, SetAsides
from redelivery.core.policy.policy_guard import LONGEST, PolicyGuard, exceeded, seed
from redelivery.core.returns import drained, paused, release, release_fresh, release_withheld, taken_back
from redelivery.core.transitions import enter
from redelivery.core.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from redelivery.core.breaker import Breaker
    from redelivery.core.broker_redelivery import BrokerRedelivery
    from redelivery.core.credit import CreditPace
    from redelivery.core.dead_lettering.redrive import DeadLetterRoute
    from redelivery.core.dispatch_gate import Rate
    from redelivery.core.dispatch_order import Ordering
    from redelivery.core.policy.policy_map import RedeliveryPolicyMap
    from redelivery.core.policy.redelivery_policy import Policy
    from redelivery.core.report import Held

__all__ = ["NOTHING", "Engine"]

NOTHING: Sequence[Command] = ()


class Engine:
    """Decides for one consumer: dispatch, park until a due time, accept, dead-letter.

    `credit`: bound of the messages that the application has unsettled at once. `max_parked`: bound of the parked ones;
    above it no fresh message is dispatched. `pace`: how much of `credit` the broker may use; None: all of it.
    `transacted`: the policy's pre-dispatch check applies. `random`: source of jitter; None: none. `rescheduling`: the
    broker delays redeliveries; None: parked here. `breaker`: None: all failures are charged. `rate`: None: no limit.
    """

    def __init__(
        self,
        consumer: int,
        *,
        policies: RedeliveryPolicyMap,
        dead_letters: DeadLetterRoute,
        credit: int = 1000,
        max_parked: int = 1000,
        ordering: Ordering = "non_blocking",
        maximum_deferrals: int = 100,
        transacted: bool = False,
        random: Random | None = None,
        rescheduling: BrokerRedelivery | None = None,
        breaker: Breaker | None = None,
        rate: Rate | None = None,
        pace: CreditPace | None = None,
    ) -> None:
        flow = CreditWindow(consumer, credit, max_parked, pace)
        strict = ordering == "blocking"
        circuit = None if breaker is None else Circuit(breaker, max_parked, blocking=strict, random=random)
        gate = DispatchGate(credit, circuit, rate, asks_above=flow.asks_above)
        self.state = state = ConsumerState(consumer, ordering, credit, max_parked, flow, gate)
        self._seq = 0
        self._recent = RecentAccepts(RECALL + credit + max_parked)
        self.dead_letters, self._rescheduling = dead_letters, rescheduling
        self._asides = SetAsides(state, dead_letters.maximum_set_aside)
        self._confirms = PendingConfirms(state, dead_letters, self._asides, rescheduling)
        self._policies = PolicyGuard(policies, random)
        self._transacted, self._maximum_deferrals = transacted, maximum_deferrals
        self._grouped = ordering == "per_group"
        self.load = Workload(state, self._confirms)

    def attempts(self) -> list[Delivery]:
        """Return the deliveries that the application has, of this connection or of an earlier one."""
        return list(self.state.running)

    @property
    def reschedules(self) -> bool:
        """True if the broker is to delay redeliveries."""
        return self._rescheduling is not None

    def keep_no_history(self) -> None:
        """Disable the memory over connections; the caller recognises messages itself."""
        self.state.history.stop()

    def _returns_at(self) -> float | None:
        """Return when withheld messages must be released; None: no time."""
        state = self.state
        most = state.most_delay if state.gate.withholds else None
        return None if most is None else state.gate.holds_until(most, self.load.longest_held)

    def next_alarm(self) -> float | None:
        """Return when the next `Tick` is needed: for poison acknowledgements, or messages set aside or withheld."""
        alarms = self._confirms.next_alarm(), self._returns_at()
        return min((at for at in alarms if at is not None), default=None)

    @property
    def arrived(self) -> int:
        """Number of deliveries that have arrived so far."""
        return self._seq

    def feed(self, event: Event, now: float) -> Sequence[Command]:  # noqa: C901, PLR0912 - it is the table of events
        """Process one event at the time `now` (seconds of any steady clock); return the commands, in order."""
        state = self.state
        match event:
            case Succeeded():
                alert = state.gate.alert
                commands = (self._noted_success if alert else self._succeeded)(event.delivery, now)
            case Wanted():
                commands = self._wanted(now)
            case Known() | Alone() | Resumed():
                raise AssertionError("only a LedgerEngine takes this event")
            case Arrived():
                commands = self._arrived(event.deliveries, now)
            case Failed():
                commands = self._failed(event, now)
            case Poisoned() | Discarded() | Deferred():
                commands = self._decided(event, now)
            case Committed():
                commands = self._committed(event.delivery)
            case Released():
                commands = self._released(event.delivery)
            case Confirmed():
                commands = self._unless_stopped(event.delivery, self._confirmed(event, now))
            case Tick():
                commands = self._ticked(now)
            case Connected() | ConnectionLost() | QueueFound() | TakenBack():
                commands = self._link_changed(event, now)
            case Paused() | Continued():
                commands = paused(self.state, now, paused=isinstance(event, Paused))
            case Drained():
                commands = drained(self.state)
            case Inherited():
                state.history.inherit(event.records)
                commands = NOTHING
            case _:
                assert_never(event)
        flow = state.flow
        if flow.active or flow.settled >= flow.due_at or (flow.grows and type(event) not in PARKING_NOTHING):
            return self._with_credit(commands, now)
        return commands

    def _with_credit(self, commands: Sequence[Command], now: float) -> Sequence[Command]:
        """Return the commands, followed by the credit that is to be granted now."""
        state = self.state
        flow = state.flow
        if state.gate.closed or not (flow.active or flow.grows):
            return commands
        if state.gate.withholds and flow.by_command:
            # Untried messages that cannot be tried for want of room are better left to others.
            credit = flow.limited(state.schedule.ready(), min(state.gate.wanted, max(1, self.load.room)))
        else:
            due = flow.settled >= flow.due_at or now >= flow.due_by
            if due and not state.gate.withholds and flow.look(now, state.schedule.ready()):
                state.gate.ask_above(flow.asks_above)
            credit = flow.due(0 if state.parks_nothing else self.load.parked)
        return commands if credit is None else [*commands, credit]

    # Arrival and dispatch.

    def _arrived(self, deliveries: Sequence[Delivery], now: float) -> Sequence[Command]:
        state = self.state
        epoch, seq, add = state.epoch, self._seq, state.schedule.add
        known = not state.history.empty or self._rescheduling is not None
        nameless = not state.history.source.empty
        counted = state.capabilities is not None and state.capabilities.counts
        commands: list[Command] = []
        if self._asides.sorts and not state.gate.closed:
            deliveries, found = self._asides.sorted_out(deliveries, now)
            for aside, record in found:
                # The first delivery above the maximum has closed the gate.
                kept = self._asides.take(aside, record, now) if not state.gate.closed else ()
                commands += self._unless_stopped(aside.delivery, kept or release(state, aside.delivery))
        for delivery in deliveries:
            if delivery.epoch != epoch:
                # Of a connection that is gone: the broker redelivers the message.
                continue
            seq += 1
            delivery.seq = seq
            # A message that may have been delivered before is looked up; only then is its identity read.
            looks = known or (nameless and delivery.redelivered) or (counted and delivery.broker_count)
            if state.gate.closed or looks:
                commands += self._admit(delivery, now)
            else:
                add(delivery)
        flow = state.flow
        flow.arrived += seq - self._seq
        if flow.sized and seq > self._seq and flow.weigh(deliveries, len(state.running)):
            state.gate.ask_above(flow.asks_above)
        self._seq = seq
        if state.gate.withholds:
            # Messages that were on their way when the credit was withdrawn.
            commands += release_fresh(state, late=True)
        return self._policies.with_faults(commands)

    def _admit(self, delivery: Delivery, now: float) -> Sequence[Command]:
        """Admit a delivery whose message may be known."""
        state = self.state
        history, age = state.history, now - state.since
        record = history.known(delivery, age) or history.source.known(delivery, now)
        if state.gate.closed:
            state.counts.released += 1
            if record is not None and record.runner is not None:
                history.let_wait(record)
            else:
                delivery.record = record
            return release(state, delivery)
        if record is None:
            if (why := self._seen(delivery, age, now)) is not None:
                return self._accept_unseen(delivery, why, now)
            record = delivery.record = self._seeded(delivery, now)
            if record is None or record.due is None or record.due <= now + EARLY:
                state.schedule.add(delivery)
                return NOTHING
            return self._park(delivery, record, record.due, now)
        delivery.record = record
        record.held = 0.0
        if record.copy is not delivery:
            return self._readmit(delivery, record, now)
        if record.runner == state.consumer:
            enter(delivery, "waiting")
        else:
            # Another consumer's handler has the message. It may end at any time, and does not notify this engine.
            enter(delivery, "parked")
            state.schedule.park(delivery, now + LOOK)
        return NOTHING

    def _seen(self, delivery: Delivery, age: float, now: float) -> str | None:
        """Return why a message without a record is accepted without being handled; None: it is handled."""
        state = self.state
        marks = state.capabilities is None or state.capabilities.marks
        if state.history.accepted_before(delivery, age, marks=marks):
            return ACCEPTED
        return DOUBLE if self._is_double(delivery, now) else None

    def _is_double(self, delivery: Delivery, now: float) -> bool:
        """Return True for a second delayed copy of one delivery. One that was delivered before is never such a copy."""
        if self._rescheduling is None or delivery.redelivered:
            return False
        name = delivery.noted.get(COPY)
        return isinstance(name, str) and self.state.history.is_double(name, now)

    def _readmit(self, delivery: Delivery, record: Record, now: float) -> Sequence[Command]:
        """Admit a delivery of a remembered message: its handling continues where it was."""
        if record.poisoned or record.returns is not None or self._by_broker(delivery, record, now):
            return self._poison(delivery, record, now)
        if record.due is None:
            self.state.schedule.add(delivery)
            return NOTHING
        return self._park(delivery, record, record.due, now)

    def _looked(self, delivery: Delivery, record: Record, now: float) -> Sequence[Command] | None:
        """Check if another consumer's handler has ended; None: the delivery may be dispatched."""
        state = self.state
        if not state.history.looked(delivery):
            state.schedule.park(delivery, now + LOOK)
            return NOTHING
        # From now on the record is this delivery's own.
        record = delivery.record or record
        if record.succeeded:
            state.schedule.settled(delivery)
            return self._accept_unseen(delivery, HANDLED, now)
        if record.due is None and not record.poisoned and record.returns is None:
            return None
        return self._readmit(delivery, record, now)

    def _admits(self, now: float) -> bool:
        """Return True if one may be dispatched above `most`: a probe is due, and no crash suspect is first."""
        state = self.state
        gate = state.gate
        if len(state.running) >= gate.most:
            state.flow.held(len(state.running))
            gate.ask_above(state.flow.asks_above)
            if not gate.admits(now, len(state.running)):
                return False
            if gate.tries:
                # A try is of a fresh message if there is one: the parked ones have failed before.
                state.schedule.favour_fresh()
                if gate.only_fresh(now) and not self.load.fresh:
                    return False
        if state.suspects and (state.in_order or (gate.withholds and not state.schedule)):
            gate.suspect_waits()
            return False
        return True

    def _wanted(self, now: float) -> Sequence[Command]:
        state = self.state
        gate = state.gate
        if (len(state.running) >= gate.most or state.suspects) and not self._admits(now):
            return NOTHING
        # A fresh message may fail, and must then be parked: it needs room.
        fresh = state.parks_nothing or state.released.room(state.schedule, self.load.room, now)
        delivery = state.schedule.next(now, fresh=fresh)
        while delivery is not None and (record := delivery.record) is not None and record.copy is delivery:
            commands = self._looked(delivery, record, now)
            if commands is None:
                break
            if commands:
                return commands
            delivery = state.schedule.next(now, fresh=fresh)
        if delivery is None:
            state.flow.waits += fresh
            return NOTHING
        if (self._transacted or delivery.expires_at is not None) and (
            instead := self._instead(delivery, now)
        ) is not None:
            return instead
        enter(delivery, "running")
        delivery.outcome = None
        state.running[delivery] = None
        begun = self._begin(delivery)
        if gate.watches:
            begun = [*begun, *gate.dispatched(delivery, now)]
        return self._policies.with_faults(begun) if self._transacted else begun

    def _instead(self, delivery: Delivery, now: float) -> Sequence[Command] | None:
        """Return what is done instead of a dispatch that is due; None: it may be dispatched.

        For each path on which an engine dispatches. What never comes to an engine (Spark's bulk intake) is neither
        expired nor transacted.
        """
        if delivery.has_expired(now + self.state.wall_offset):
            return self._expired(delivery, now)
        if self._transacted and (over := exceeded(delivery, self._policies)) is not None:
            return self._poison(delivery, over, now)
        return None

    def _noted_success(self, delivery: Delivery, now: float) -> Sequence[Command]:
        """Process a success that changes the breaker."""
        changed = self.state.gate.succeeded(delivery, now, self.state.running)
        return [*self._succeeded(delivery, now), *changed]

    def _succeeded(self, delivery: Delivery, now: float, *, discarded: bool = False) -> Sequence[Command]:
        state = self.state
        if delivery.state != "running":
            return NOTHING
        delivery.outcome = "discarded" if discarded else "accepted"
        if delivery.epoch != state.epoch:
            if not discarded:
                state.history.source.succeeded_late()
            if (live := self._finish(delivery, succeeded=True)) is None:
                return NOTHING
            state.schedule.settled(live)
            return self._accept_unseen(live, HANDLED, now)
        # The same as `_finish`, inlined: it runs for each message.
        state.running.pop(delivery, None)
        if self._grouped:
            state.schedule.settled(delivery)
        if discarded:
            state.counts.discarded += 1
        else:
            state.counts.accepted += 1
        return self._accept(delivery, now)

    def _committed(self, delivery: Delivery) -> Sequence[Command]:
        """Settle a delivery that a commit has accepted; if its handle is stale, a second delivery is accepted too."""
        # Not in doubt: as if it had been accepted long ago.
        commands = self._succeeded(delivery, -inf)
        return commands if delivery.outcome == "stale" else NOTHING

    def _failed(self, event: Failed, now: float) -> Sequence[Command]:
        state = self.state
        delivery = event.delivery
        if delivery.state != "running":
            return NOTHING
        policy = self._policies.policy_for(delivery.destination) if event.policy is None else event.policy
        withheld, tries = NOTHING, state.gate.tries
        spared, changed = state.gate.failed(delivery, event, now)
        held = (self._spared if spared else self._charged)(delivery, event.cause, policy, now)
        if state.gate.tries and not tries:
            # The breaker has opened. What is here for its rounds of tries stays.
            withheld = [*state.flow.withdrawn(), *release_fresh(state)]
        commands = [*held, *changed, *withheld, *(NOTHING if spared else self._emptied(now))]
        return self._policies.with_faults(commands)

    def _charged(self, delivery: Delivery, cause: Cause, policy: Policy, now: float) -> Sequence[Command]:
        record = charge(delivery, cause, now)
        if (delay := self._policies.next_delay(policy, record, now)) is None:
            record.exhausted = True
            return self._condemn(delivery, record, now)
        return self._hold(delivery, record, delay, now, "redelivered")

    def _spared(self, delivery: Delivery, cause: Cause, policy: Policy, now: float) -> Sequence[Command]:
        """Park a failed delivery, uncharged: until the next round of tries, or for a delay if none is planned."""
        state = self.state
        record, until = delivery.record or Record(), state.gate.next_probe
        record.cause = cause
        if until is None:
            delay = max(self._policies.delay(policy, record.count + 1), state.gate.spared_for(record))
        else:
            delay = max(until - now, state.gate.spared_for(record))
        return self._hold(delivery, record, delay, now, "spared")

    def _decided(self, event: Discarded | Poisoned | Deferred, now: float) -> Sequence[Command]:
        """Process a decision of the handler: the message is neither handled nor failed."""
        delivery = event.delivery
        changed = self.state.gate.decided(delivery, now, waits=isinstance(event, Deferred))
        match event:
            case Discarded():
                commands = self._succeeded(delivery, now, discarded=True)
            case Poisoned():
                commands = self._poisoned(delivery, event.cause, now)
            case Deferred():
                commands = self._deferred(event, now)
            case _:
                assert_never(event)
        return [*commands, *changed, *self._emptied(now)]

    def _emptied(self, now: float) -> Sequence[Command]:
        """Close a breaker that keeps nothing: each message that was tried has come to an end.

        Those that the history knows have not: a connection was lost, or they were released, and they will come back.
        """
        state = self.state
        if not state.gate.tries or state.running or state.suspects or state.schedule.parked:
            return NOTHING
        if not (state.history.empty and state.history.source.empty):
            return NOTHING
        return state.gate.emptied(now)

    def _poisoned(self, delivery: Delivery, cause: Cause, now: float) -> Sequence[Command]:
        if delivery.state != "running":
            return NOTHING
        return self._condemn(delivery, charge(delivery, cause, now), now)

    def _deferred(self, event: Deferred, now: float) -> Sequence[Command]:
        delivery = event.delivery
        if delivery.state != "running":
            return NOTHING
        record = delivery.record = delivery.record or Record()
        if event.counted:
            record.deferrals += 1
        if record.deferrals > self._maximum_deferrals:
            return self._failed(Failed(delivery, event.cause, weight="own"), now)
        most = None if self._rescheduling is not None else self.state.most_delay
        delay = min(event.delay, LONGEST if most is None else most)
        return self._hold(delivery, record, delay, now, "deferred")

    def _released(self, delivery: Delivery) -> Sequence[Command]:
        state = self.state
        if delivery.state != "running":
            return NOTHING
        delivery.outcome = "released"
        if (live := self._finish(delivery)) is None:
            return NOTHING
        # A stale one has been counted already.
        if live is delivery:
            state.counts.released += 1
        state.schedule.settled(live)
        if live.record is not None:
            live.record.due = None
        return release(state, live)

    def _seeded(self, delivery: Delivery, now: float) -> Record | None:
        """Return a record that starts from the broker's count, as far as it is reliable; None with a ledger."""
        count = self._seed_count(delivery)
        if not count and self._rescheduling is None:
            return None
        policy = self._policies.policy_for(delivery.destination)
        limit = self._policies.limit(policy)
        seeded = Record(seed(count, delivery, policy, limit, transacted=self._transacted)) if count else None
        ways = self._rescheduling
        if ways is None:
            return seeded
        return ways.seeded(self.state, delivery, count, seeded, self._policies, policy, now)

    def _expired(self, delivery: Delivery, now: float) -> Sequence[Command]:
        record = delivery.record = delivery.record or Record()
        record.cause = EXPIRED
        return self._poison(delivery, record, now)

    def _finish(self, delivery: Delivery, *, succeeded: bool = False) -> Delivery | None:
        """End a dispatch. Return the delivery that its result applies to: itself, a second one, or None (stale).

        For a lost delivery this must be the last step: then another consumer may get its record.
        """
        state = self.state
        state.gate.ended(delivery)
        if delivery.epoch == state.epoch:
            state.running.pop(delivery, None)
            return delivery
        # First: when no handler runs, the counters are taken for final.
        state.counts.stale += 1
        state.running.pop(delivery, None)
        enter(delivery, "lost")
        delivery.outcome = "stale"
        copy = state.history.ended(delivery, succeeded=succeeded)
        if copy is None:
            state.schedule.settled(delivery)
        return copy

    def _accept(self, delivery: Delivery, now: float) -> Sequence[Command]:
        enter(delivery, "settled")
        self._recent.add(delivery, now)
        self.state.flow.settled += 1
        return (Accept((delivery,)),)

    def _accept_unseen(self, delivery: Delivery, why: str, now: float) -> Sequence[Command]:
        self.state.counts.deduplicated += 1
        return (*self._accept(delivery, now), AcceptUnseen(delivery, why))

    def _hold(
        self,
        delivery: Delivery,
        record: Record,
        delay: float,
        now: float,
        why: Held,
    ) -> Sequence[Command]:
        state = self.state
        if why != "spared" and self._is_held_too_often(record, delay):
            record.cause = record.cause or HELD
            return self._condemn(delivery, record, now)
        delivery.outcome = why
        record.due = now + delay
        record.deferred, record.spared = why != "redelivered", why == "spared"
        live = self._finish(delivery)
        if live is None:
            return NOTHING
        if self._rescheduling is not None:
            if self._by_broker(live, record, now):
                if live is delivery:  # a stale one is counted already
                    state.counts.held(why)
                return self._poison(live, record, now)
            delay = min(delay, state.most_delay or delay)
            record.due = now + delay
        record.held += delay
        able = state.capabilities
        too_long = not state.gate.closed and able is not None and able.held_too_long(record.held)
        if live is delivery:  # a stale one is counted already
            state.counts.held(why)
        if state.gate.closed or too_long:
            state.schedule.settled(live)
            return release(state, live)
        enter(live, "parked")
        state.schedule.park(live, record.due)
        return (Hold(live, record.due, delay, record.count, record.cause, record.deferred),)

    def _is_held_too_often(self, record: Record, delay: float) -> bool:
        """Count a release for the time limit of the broker; True if it counts them, and may drop the message soon.

        A message may need so many for its own delays, and as many again while the breaker withholds it: one count is of
        both, with those that this delay needs.
        """
        able, gate = self.state.capabilities, self.state.gate
        if able is None or not able.release_counts or self._rescheduling is not None or gate.closed:
            return False
        needed = int(able.held_too_long(record.held + delay))
        record.releases += needed
        if gate.withholds and able.most_delay is not None:
            needed += ceil(delay * SHARE / able.most_delay)
        return record.releases > MOST_RETURNS or (needed > 0 and record.released + needed > 2 * MOST_RETURNS)

    def _park(self, delivery: Delivery, record: Record, due: float, now: float) -> Sequence[Command]:
        """Park a delivery that arrived before it is due, until `due`."""
        enter(delivery, "parked")
        self.state.schedule.park(delivery, due)
        if (left := due - now) <= 0:
            return NOTHING
        record.held = left
        return (Hold(delivery, due, left, record.count, record.cause, record.deferred),)

    def _by_broker(self, delivery: Delivery, record: Record, now: float) -> bool:
        """Return True if the broker is to delay the message until it is due; `record.returns` is then set."""
        ways = self._rescheduling
        if ways is None or record.spared:
            # A spared message may be tried at any time: a copy for each try would load the broker in an outage.
            return False
        return ways.holds(self.state, delivery, record, now)

    def _condemn(self, delivery: Delivery, record: Record, now: float) -> Sequence[Command]:
        record.poisoned = True
        delivery.outcome = "poisoned"
        live = self._finish(delivery)
        return NOTHING if live is None else self._poison(live, record, now)

    def _poison(self, delivery: Delivery, record: Record, now: float) -> Sequence[Command]:
        self.state.schedule.settled(delivery)
        return self._begin_poison_ack(delivery, record, now)

    def _begin_poison_ack(self, delivery: Delivery, record: Record, now: float) -> Sequence[Command]:
        return self._unless_stopped(delivery, self._confirms.begin(delivery, record, now))

    def _unless_stopped(self, delivery: Delivery, commands: Sequence[Command]) -> Sequence[Command]:
        if any(isinstance(command, Stop) for command in commands):
            # Kept until the consumer closes; then the broker takes it back.
            self.state.gate.close()
            self.state.released.keep(delivery)
        return commands

    def _ticked(self, now: float) -> Sequence[Command]:
        """Retry refused poison acknowledgements that are due; handle messages set aside or withheld."""
        commands = self._asides.tick(now)
        if (until := self._returns_at()) is not None and until <= now:
            commands += release_withheld(self.state, now)
        for due in self._confirms.tick(now):
            commands += (due,) if isinstance(due, Unanswered) else self._begin_poison_ack(*due, now)
        return commands

    # The connection, and the end.

    def _link_changed(
        self, event: Connected | ConnectionLost | QueueFound | TakenBack, now: float
    ) -> Sequence[Command]:
        match event:
            case Connected():
                return self._connected(event, now)
            case ConnectionLost():
                return self._connection_lost(event, now)
            case QueueFound():
                self.state.learn(event.capabilities)
                return NOTHING
            case TakenBack():
                self._confirms.taken_back(event.deliveries)
                return taken_back(self.state, event.deliveries)
            case _:
                assert_never(event)

    def _connected(self, event: Connected, now: float) -> Sequence[Command]:
        state = self.state
        state.epoch = event.epoch
        state.since = now if event.since is None else event.since
        state.history.connected(event.address, event.epoch)
        able = event.capabilities
        state.flow.restart(active=able.flow, grows=able.grows, few=able.window_in_bytes)
        # The credit starts small again, and the application may need more before it settles the first.
        state.gate.ask_above(state.flow.asks_above)
        state.learn(able)
        return NOTHING

    def _connection_lost(self, event: ConnectionLost, now: float) -> Sequence[Command]:
        state = self.state
        if event.epoch != state.epoch:
            return NOTHING
        # No epoch: results that arrive before the next connection are stale.
        state.epoch = -1
        changed = [*self._confirms.interrupted(now, closed=event.closed), *state.gate.lost(now)]
        state.flow.restart(active=False)
        self._confirms.lost()
        unsettled = list(state.unsettled())
        if event.closed:
            state.history.source.closed(state.counts, unsettled)
        # A broker that counts, counts prefetched messages too. With a record, they are not charged for that delivery.
        able = state.capabilities
        counted = unsettled if able is not None and (able.counts or able.loss_limit is not None) else ()
        for delivery in (*counted, *state.running):
            delivery.record = delivery.record or Record()
        # A closing consumer leaves the broker running: it will have processed the acknowledgements it received.
        lost_at = inf if event.closed else now
        accepted, running, age = self._recent.taken(now), list(state.running), now - state.since
        state.history.connection_lost(state.consumer, accepted, unsettled, running, lost_at, event.epoch, age)
        if not event.closed:
            changed += self._count_losses((*unsettled, *running))
        state.clear()
        stop = event.stop
        if stop is None or event.consumer not in (None, state.consumer):
            return changed
        state.gate.close()
        return (*changed, stop)

    def _count_losses(self, held: Sequence[Delivery]) -> Sequence[Command]:
        """Report the messages that were held at half of the losses that the broker allows."""
        limit = None if self.state.capabilities is None else self.state.capabilities.loss_limit
        if limit is None:
            return NOTHING
        half = max(1, limit // 2)
        many = len([each for each in held if each.record is not None and each.record.losses == half])
        return (LossesCounted(many, half, limit),) if many else NOTHING

    # Decisions that a ledger changes (`LedgerEngine`).

    def _begin(self, delivery: Delivery) -> Sequence[Command]:
        """Return the commands that start an attempt."""
        return (Dispatch(delivery),)

    def _seed_count(self, delivery: Delivery) -> int | None:
        """Return the broker's count to start from; None without one."""
        return delivery.broker_count

    def _confirmed(self, event: Confirmed, now: float) -> Sequence[Command]:
        """Process the answer to a poison acknowledgement."""
        return self._confirms.confirmed(event, now)
