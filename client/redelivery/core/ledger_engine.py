"""Engine with a ledger: an attempt is looked up before it begins, marked while it runs, and cleared when it ends."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from redelivery.core.commands import Accept, Bury, Clear, Command, Dispatch, Hold, LookUp, Mark
from redelivery.core.delivery import Cause, Delivery, Record
from redelivery.core.engine import NOTHING, Engine
from redelivery.core.events import (
    Alone,
    Committed,
    Confirmed,
    Deferred,
    Discarded,
    Known,
    Released,
    Result,
    Resumed,
    Succeeded,
    Wanted,
)
from redelivery.core.ledger_entry import Buried, Entry, fingerprint
from redelivery.core.returns import release
from redelivery.core.transitions import enter

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from redelivery.core.events import Event

__all__ = ["PATIENCE", "LedgerEngine", "SuspectIsolation"]


# ---- Ledger engine ---------------------------------------------------------------------------------------

DYING = 2.0
"""Seconds for which a message waits while another process has it open. A process that dies closes its connection before
its death shows: the broker may have redelivered the message by then. One that lives has lost its connection."""
AGAIN = 0.1
"""Seconds between two looks at that process."""


class LedgerEngine(Engine):
    """`Engine` that decides by the ledger's counts."""

    def feed(self, event: Event, now: float) -> Sequence[Command]:
        """Process one event as `Engine.feed` does; a result also yields commands for the ledger, which come first."""
        if event.__class__ is Wanted:
            return Engine.feed(self, event, now)
        if isinstance(event, Known):
            commands = self._policies.with_faults(self._known(event.delivery, event.entry, now))
            if event.delivery.state != "running":
                self.state.gate.ended(event.delivery)
            return self._with_credit(commands, now)
        if isinstance(event, Alone | Resumed):
            commands = self._alone(now) if isinstance(event, Alone) else self._resumed(event.delivery)
            return self._with_credit(commands, now)
        if not isinstance(event, Result) or event.delivery.state != "running":
            return Engine.feed(self, event, now)
        record = event.delivery.record
        before = 0 if record is None else record.count
        return self._counted(event, Engine.feed(self, event, now), before)

    def _begin(self, delivery: Delivery) -> Sequence[Command]:
        return (LookUp(delivery),)

    def _seed_count(self, delivery: Delivery) -> int | None:  # noqa: ARG002 - the ledger counts instead
        return None

    def _expired(self, delivery: Delivery, now: float) -> Sequence[Command]:
        return self._forgotten(delivery, super()._expired(delivery, now))

    def _forgotten(self, delivery: Delivery, commands: Sequence[Command]) -> Sequence[Command]:
        """Add the command that removes a dropped message's ledger entry; a confirmed dead letter removes its own."""
        dropped = any(isinstance(command, Accept) for command in commands)
        return [*commands, Bury(delivery, fingerprint(delivery), None)] if dropped else commands

    def _known(self, delivery: Delivery, entry: Entry | None, now: float) -> Sequence[Command]:
        """Handle the ledger's reply: dispatch, park for the rest of the delay, dead-letter, or queue exclusively."""
        state = self.state
        if state.gate.closed or delivery.epoch != state.epoch:
            return self._unbegun(delivery, now)
        if entry is None:
            return self._begun(delivery)
        # After a failure in another process, or after its crash, this process has not waited for the delay yet.
        fresh = delivery.record is None or delivery.record.count < entry.count
        record = self._entered(delivery, entry)
        policy = self._policies.policy_for(delivery.destination)
        if entry.poisoned or self._policies.used_up(policy, record):
            return self._forgotten(delivery, self._condemn(delivery, record, now))
        left = self._left(entry, record, delivery, now) if fresh else 0.0
        if left > 0:
            return self._postponed(delivery, record, now, left)
        dying = self._dying(entry, record, now)
        if not dying and not entry.suspect:
            return self._begun(delivery)
        state.running.pop(delivery, None)
        enter(delivery, "parked")
        if dying:
            state.schedule.park(delivery, now + AGAIN)
        else:
            state.suspects.append(delivery)
        return NOTHING

    @staticmethod
    def _dying(entry: Entry, record: Record, now: float) -> bool:
        """Return True while another process that has the message open may be about to be seen dead."""
        if not entry.elsewhere:
            record.elsewhere = None
            return False
        if record.elsewhere is None:
            record.elsewhere = now
        return now < record.elsewhere + DYING

    def _left(self, entry: Entry, record: Record, delivery: Delivery, now: float) -> float:
        """Return the rest of the delay, in seconds, after a failure in another process."""
        if not record.count or entry.last is None:
            return 0.0
        policy = self._policies.policy_for(delivery.destination)
        delay = self._policies.delay(policy, record.count)
        return min(entry.last + delay - now - self.state.wall_offset, delay)

    def _begun(self, delivery: Delivery) -> Sequence[Command]:
        record = delivery.record
        return Mark(delivery, 0 if record is None else record.count), Dispatch(delivery)

    def _alone(self, now: float) -> Sequence[Command]:
        """Start the exclusive run of a crash suspect: nothing else runs in this process."""
        state = self.state
        gate = state.gate
        if not state.suspects or (gate.watches and not gate.admits(now, len(state.running))):
            return NOTHING
        delivery = state.suspects.popleft()
        if (instead := self._instead(delivery, now)) is not None:
            return instead
        enter(delivery, "running")
        delivery.outcome = None
        state.running[delivery] = None
        begun = self._begun(delivery)
        return [*begun, *gate.dispatched(delivery, now)] if gate.watches else begun

    def _resumed(self, delivery: Delivery) -> Sequence[Command]:
        """Add a delivery that runs already, without regard to the credit."""
        state = self.state
        if state.gate.closed or delivery.epoch != state.epoch:
            return NOTHING
        state.history.forget(delivery)
        self._seq += 1
        delivery.seq = self._seq
        enter(delivery, "running")
        delivery.outcome = None
        state.running[delivery] = None
        return NOTHING

    def _entered(self, delivery: Delivery, entry: Entry) -> Record:
        """Merge the ledger entry into the record; the record never knows less than was written."""
        record = delivery.record = delivery.record or Record()
        if entry.cause is not None and (record.cause is None or entry.count > record.count):
            record.cause = Cause(entry.cause)
        record.count = max(record.count, entry.count)
        if record.first_failure is None and entry.first is not None:
            record.first_failure = entry.first - self.state.wall_offset
        if record.last_failure is None and entry.last is not None:
            record.last_failure = entry.last - self.state.wall_offset
        return record

    def _postponed(self, delivery: Delivery, record: Record, now: float, left: float) -> Sequence[Command]:
        """Park for the rest of the delay after a failure in another process."""
        self.state.running.pop(delivery, None)
        record.due = now + left
        if self._by_broker(delivery, record, now):
            return self._begin_poison_ack(delivery, record, now)
        enter(delivery, "parked")
        record.held = left
        self.state.schedule.park(delivery, record.due)
        return (Hold(delivery, record.due, left, record.count, record.cause),)

    def _unbegun(self, delivery: Delivery, now: float) -> Sequence[Command]:
        """Undo a dispatch that does not begin: its connection is gone, or the consumer dispatches no more."""
        state = self.state
        live = self._finish(delivery)
        if live is not delivery:
            state.counts.stale -= 1  # it is no handler's result
        if live is None:
            return NOTHING
        if state.gate.closed:
            state.counts.released += 1
            state.schedule.settled(live)
            return release(state, live)
        enter(live, "parked")
        state.schedule.park(live, now)
        return NOTHING

    def _counted(self, event: Result, commands: Sequence[Command], before: int) -> Sequence[Command]:
        """Return the commands, preceded by the one for the ledger about the ended attempt.

        `before`: failures charged before this result.
        """
        delivery = event.delivery
        record = delivery.record
        if isinstance(event, Released):
            return [Clear(delivery, None, keep=True), *commands]
        done = isinstance(event, Succeeded | Committed | Discarded)
        late = delivery.outcome == "stale"
        if record is None or not record.count:
            # Deferred after the connection was lost: the message may have failed elsewhere since.
            return [Clear(delivery, None, keep=late and not done), *commands]
        # Poison of which no dead letter is kept.
        dropped = delivery.outcome == "discarded"
        if done or dropped:
            return [Clear(delivery, None), *commands]
        uncharged = isinstance(event, Deferred) or record.spared
        failed = record.count > before or not uncharged
        return [Clear(delivery, self._entry(record), failed=failed, late=late), *commands]

    def _entry(self, record: Record) -> Entry:
        first, last = record.first_failure, record.last_failure
        # The dead-letter destination of an exception is not written: after a crash the handler runs, and raises, again.
        elsewhere = record.poisoned and record.cause is not None and record.cause.place is not None
        return Entry(
            count=record.count - elsewhere,
            cause=None if record.cause is None else record.cause.text,
            first=None if first is None else first + self.state.wall_offset,
            last=None if last is None else last + self.state.wall_offset,
            poisoned=record.poisoned and not elsewhere,
        )

    def _confirmed(self, event: Confirmed, now: float) -> Sequence[Command]:
        """Process the answer to a poison acknowledgement; a confirmed dead letter is removed from the ledger."""
        delivery = event.delivery
        record = delivery.record
        if delivery.state != "settling" or record is None or event.error is not None:
            return self._confirms.confirmed(event, now)
        key = fingerprint(delivery)  # before the body is dropped
        buried = None
        if not record.copied:
            cause = "unknown" if record.cause is None else record.cause.text
            at = now + self.state.wall_offset
            entry = self._entry(record)
            buried = Buried(
                delivery.destination, delivery.message_id, cause, record.count, at, entry.first, entry.last
            )
        commands = self._confirms.confirmed(event, now)
        return [*commands, Bury(delivery, key, buried, early=record.poisoned and bool(commands))]


# ---- Suspect isolation -----------------------------------------------------------------------------------
# Exclusive runs: a crash suspect runs alone in its process, and nothing waits for that for ever.

PATIENCE = 10.0
"""Seconds for which no handler is started, to let a suspect run alone. If a handler still runs then, others are started
for as long before it is tried again: one handler that never ends must not stop the process."""


class SuspectIsolation:
    """Counts the running handlers of a process; gives turns for exclusive runs. Not thread-safe: its driver locks it.

    `who`: the consumer that has a suspect. `leave` and `withdraw` return True if waiting consumers must be woken.
    """

    def __init__(self) -> None:
        self.inside = 0
        self._claims: deque[Hashable] = deque()
        # Since when the first of `_claims` waits.
        self._since = 0.0
        self._alone: Hashable | None = None

    def enter(self, now: float) -> bool:
        """Start a handler, unless one runs exclusively or waits to; return True if it may run."""
        if self._alone is not None or (self._claims and self._closed(now)):
            return False
        self.inside += 1
        return True

    def leave(self) -> bool:
        """End what `enter` started; return True if a consumer waits for an exclusive run."""
        self.inside -= 1
        return self.inside == 0 and bool(self._claims)

    def claim(self, who: Hashable, now: float) -> None:
        """Request an exclusive run for a consumer."""
        if who not in self._claims and who != self._alone:
            if not self._claims:
                self._since = now
            self._claims.append(who)

    def turn(self, who: Hashable) -> bool:
        """Start the exclusive run of a consumer, if it is its turn; return True if so."""
        if self.inside or self._alone is not None or not self._claims or self._claims[0] != who:
            return False
        self._claims.popleft()
        self._alone = who
        return True

    def end_turn(self, now: float) -> None:
        """End an exclusive run; the caller wakes the waiting consumers."""
        self._alone = None
        self._since = now

    def withdraw(self, who: Hashable) -> bool:
        """Withdraw a consumer's request; return True if there was one."""
        if who not in self._claims:
            return False
        self._claims.remove(who)
        return True

    def until(self, now: float) -> float | None:
        """Return the seconds after which `enter` may answer differently without any event; None: it cannot."""
        if not self._claims or self._alone is not None:
            return None
        return PATIENCE - (now - self._since) % PATIENCE

    def _closed(self, now: float) -> bool:
        return int((now - self._since) // PATIENCE) % 2 == 0
