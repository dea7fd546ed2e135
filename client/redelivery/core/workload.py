"""Workload of one consumer in numbers, and when it needs a dispatch: its driver asks before it waits."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redelivery.core.breaker import BreakerState
    from redelivery.core.consumer_state import ConsumerState
    from redelivery.core.delivery import Cause, Record
    from redelivery.core.pending_confirms import PendingConfirms
    from redelivery.errors import RedeliveryError

__all__ = ["Workload"]


class Workload:
    """Reads the numbers of one engine. It changes nothing."""

    __slots__ = ("_confirms", "_state")

    def __init__(self, state: ConsumerState, confirms: PendingConfirms) -> None:
        self._state, self._confirms = state, confirms

    @property
    def parked(self) -> int:
        """Number of deliveries parked here: for a redelivery, an unconfirmed dead letter, or until the end."""
        return self._state.parked

    @property
    def waiting(self) -> int:
        """Number of deliveries that will still be handled or settled here: all parked ones except those released here.

        It includes those that wait for the breaker or the rate limit; during a pause, only unconfirmed dead letters.
        """
        if self._state.gate.paused:
            return len(self._state.settling)
        held_back = self._state.schedule.ready() - self._dispatchable() if self._state.gate.watches else 0
        return self._state.schedule.parked + len(self._state.settling) + len(self._state.suspects) + held_back

    @property
    def unconfirmed(self) -> int:
        """Number of poison acknowledgements that the broker has not confirmed."""
        return len(self._state.settling)

    @property
    def unconfirmed_because(self) -> RedeliveryError | None:
        """Reason of the last refusal of a dead letter or a delayed copy; None: one was confirmed after it."""
        return self._confirms.error

    @property
    def credit(self) -> int:
        """Number of deliveries that may be here unsettled now; parked ones are not counted."""
        return self._state.flow.credit

    @property
    def in_doubt(self) -> int:
        """Number of unconfirmed ones that the broker has still to answer; it refused the others, which are retried."""
        return len(self._state.in_doubt)

    @property
    def running(self) -> int:
        """Number of deliveries that the application has."""
        return len(self._state.running)

    @property
    def changes(self) -> bool:
        """True if results change how many deliveries may be dispatched, or when."""
        return self._state.gate.watches or self._state.gate.alert

    @property
    def has_breaker(self) -> bool:
        """True if failures may be spared."""
        return self._state.gate.circuit is not None

    def open_for(self, now: float) -> float | None:
        """Return the seconds since the breaker opened, or since the last success; None: it is not open."""
        circuit = self._state.gate.circuit
        held = circuit is not None and circuit.state in ("open", "probing")
        return max(0.0, now - circuit.opened) if circuit is not None and held else None

    def is_down(self, now: float) -> bool:
        """True if the breaker has seen a named failure lately. An opening without one ends by itself."""
        circuit = self._state.gate.circuit
        return circuit is not None and circuit.is_down(now)

    @property
    def open_because(self) -> Cause | None:
        """Cause of the last failure that the breaker has seen; None without one."""
        return self._state.gate.cause

    def oldest(self, now: float) -> float:
        """Return the seconds since the first failure of the message parked the longest; 0 without one.

        Needs no lock: it reads a copy.
        """
        records = [each.record for each in self._state.schedule.parked_now()]
        first = [_first_failure(record) for record in records if record is not None]
        return max((now - at for at in first if at is not None and at > -inf), default=0.0)

    @property
    def longest_held(self) -> float:
        """Seconds for which a delivery has been parked since it arrived, at most."""
        records = [each.record for each in self._state.schedule.parked_now()]
        return max((record.held for record in records if record is not None), default=0.0)

    @property
    def breaker_state(self) -> BreakerState:
        """State of the breaker; `closed` without one."""
        return self._state.gate.state

    @property
    def paused(self) -> bool:
        """True if the application has paused the consumer."""
        return self._state.gate.paused

    @property
    def suspects(self) -> int:
        """Number of crash suspects that may begin an exclusive run now. Without a ledger there are none."""
        gate = self._state.gate
        if gate.closed or gate.paused:
            return 0
        # While the breaker is not closed, they are tried when nothing else is there; in blocking order, before others.
        may = gate.yields or gate.slots(len(self._state.running)) > 0
        first = may and (self._state.in_order or not self._state.schedule)
        return len(self._state.suspects) if not gate.withholds or first else 0

    def next_due(self) -> float | None:
        """Return when a `Wanted` will be answered with a delivery that is parked now; None: never."""
        state, gate = self._state, self._state.gate
        if state.in_order and state.suspects:
            # Nothing passes a suspect. Once the breaker admits one, it requests its turn, which wakes its consumer.
            asked = not gate.withholds or gate.yields
            return None if asked else gate.next_due(None, ready=True, running=len(state.running))
        due = state.released.next_due(state.schedule.next_due())
        # No fresh message is dispatched while too many are parked; and a requested suspect already waits for its turn.
        ready = self.fresh
        # As in `_admits`: while others are parked, a suspect is requested when the first of them is due.
        alone = gate.withholds and state.suspects and not (gate.yields or state.schedule)
        return gate.next_due(due, ready=ready or bool(alone), running=len(state.running))

    def ready(self) -> int:
        """Return how many deliveries could be dispatched at once."""
        if self._state.gate.closed or self._state.gate.paused:
            return 0
        return self._dispatchable() or self._state.released.ready(full=self.full)

    def _dispatchable(self) -> int:
        """Return how many of those ready may be dispatched now."""
        ready, gate = self._state.schedule.ready(), self._state.gate
        if not gate.watches:
            return ready
        # What a round has left is for messages that were not tried, which need room to be parked.
        left = gate.left if gate.left and self.fresh else 0
        return min(ready, max(gate.slots(len(self._state.running)), left))

    @property
    def fresh(self) -> bool:
        """True if a fresh message is here, and there is room to park it."""
        return self._state.schedule.ready() > 0 and (not self.full or bool(self._state.released.kept))

    @property
    def working(self) -> int:
        """Number of deliveries ready or running, without those that were released here before.

        Nor are those counted that wait for the redelivery of a parked one, since so many are parked.
        """
        waits = self._state.schedule.parked > 0 and self.full and not self._state.released.kept
        idle = self._state.gate.closed or self._state.gate.paused or waits
        return (0 if idle else self._dispatchable()) + len(self._state.running) - self._state.released.again()

    @property
    def room(self) -> int:
        """Number of deliveries that may still be parked."""
        return self._state.room

    @property
    def full(self) -> bool:
        """True if so many are parked that no fresh message is dispatched."""
        return self.room < 1

    def awaited(self, settlements: int) -> bool:
        """Return True if so many settlements must be written before the broker sends more than one message."""
        return len(self._state.running) + settlements + 1 >= self._state.flow.credit

    @property
    def exhausted(self) -> bool:
        """True if the application has its whole credit unsettled: nothing more arrives until it settles."""
        return len(self._state.running) >= self._state.credit


def _first_failure(record: Record) -> float | None:
    if record.first_failure is not None or record.failed_at is None:
        return record.first_failure
    return record.failed_at[1]
