"""How many deliveries of one consumer may run at once: its credit; fewer by its breaker, a pause, or a limit of rate.

The engine compares one number for each dispatch, `most`; the reasons for it are here.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from redelivery.core.commands import BreakerChanged, Stop
from redelivery.core.delivery import Record
from redelivery.errors import BreakerOpen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.breaker import BreakerState, Circuit
    from redelivery.core.commands import Command
    from redelivery.core.delivery import Cause, Delivery
    from redelivery.core.events import Failed
    from redelivery.core.rate import Rate

__all__ = ["DispatchGate"]

# Seconds after which the log names an open breaker again.
REMINDER = 600.0


class DispatchGate:
    """The credit, the breaker, a pause, a limit of rate, and the end of one consumer."""

    __slots__ = (
        "_bucket", "_credit", "_reminded", "alert", "cause", "circuit", "closed", "held_since", "most", "paused",
        "watches", "withholds", "yields",
    )  # fmt: skip

    def __init__(self, credit: int, circuit: Circuit | None, rate: Rate | None = None) -> None:
        self._credit = credit
        self._bucket = None if rate is None else rate.bucket()
        self.circuit = circuit
        self.closed = self.paused = False
        self.most: float = credit
        """How many deliveries may run at once; `admits` may allow one more."""
        self.alert = False
        """Whether a success changes something."""
        self.withholds = False
        """Whether the breaker or a pause keeps messages here, so none should be here."""
        self.watches = rate is not None
        """Whether dispatches must be reported."""
        self.held_since = 0.0
        """Since when, or when what is here was last given back for it."""
        self.yields = False
        """Whether one may be dispatched, and only a crash suspect is there."""
        self.cause: Cause | None = None
        """Of the last failure."""
        self._reminded = 0.0

    @property
    def state(self) -> BreakerState:
        """The breaker's state."""
        return "closed" if self.circuit is None else self.circuit.state

    def close(self) -> None:
        """Dispatch nothing more: the consumer drains, or has stopped."""
        self.closed = True
        self.most = 0
        self.withholds = False

    def pause(self, now: float, *, paused: bool) -> None:
        """Dispatch nothing until the pause ends; or end it."""
        self.paused = paused
        self._update(now)

    @property
    def wanted(self) -> int:
        """How many fresh messages may be here while it withholds: one, for the next probe, or as many as may run."""
        circuit = self.circuit
        if self.paused or circuit is None:
            return 0
        return int(min(max(1, circuit.most), self._credit))

    def holds_until(self, most_delay: float | None) -> float | None:
        """When what is withheld must go back to the broker, which limits how long it may be held; None: never.

        A quarter of what its policies may hold a message for (`Capabilities.most_delay`) is kept for this.
        """
        return self.held_since + most_delay / 4 if self.withholds and most_delay is not None else None

    def admits(self, now: float, running: int) -> bool:
        """Whether one delivery more may run although `most` do: a probe is due, or the time of the rate has come."""
        circuit, bucket = self.circuit, self._bucket
        if self.closed or self.paused or (bucket is not None and not bucket.has(now)):
            return False
        if circuit is None or circuit.state == "closed":
            # Only the rate has kept it out.
            return bucket is not None and running < self._credit
        return circuit.admits(now) or running < circuit.most

    def suspect_waits(self) -> None:
        """Let a crash suspect be the next one that is tried, as nothing else is there."""
        self.yields = self.withholds and not self.paused

    def next_due(self, due: float | None, *, ready: bool, running: int) -> float | None:
        """When a delivery may be dispatched, of which the first is due at `due`; `ready`: one is due already."""
        if self.closed or self.paused:
            return None
        if running < self.most:
            return due
        circuit, token = self.circuit, None if self._bucket is None else self._bucket.next
        opens = -inf if token is None else token
        if circuit is not None and circuit.state != "closed":
            if running >= circuit.most:
                opens = max(opens, circuit.until)
        elif token is None:
            return due
        if ready:
            return opens
        return None if due is None else max(due, opens)

    def dispatched(self, delivery: Delivery, now: float) -> Sequence[Command]:
        """Take a dispatch, while it `watches`."""
        self.yields = False
        circuit = self.circuit
        if self._bucket is not None:
            self._bucket.take(now)
        if circuit is None or circuit.state == "closed":
            self._update(now)
            return ()
        before = circuit.state
        circuit.dispatched(delivery, now)
        self._update(now)
        return self._changed(before, now)

    @property
    def next_probe(self) -> float | None:
        """When the next probe is due; None: the breaker is not open."""
        circuit = self.circuit
        return circuit.until if circuit is not None and circuit.state == "open" else None

    def failed(self, delivery: Delivery, event: Failed, now: float) -> tuple[bool, Sequence[Command]]:
        """Take a failure. Return whether it is spared (not charged), and what the breaker does."""
        circuit = self.circuit
        if circuit is None:
            return False, ()
        record = delivery.record = delivery.record or Record()
        if record.first_failure is not None:
            # What it waits for the breaker is no time in which it was tried.
            record.idle += circuit.kept(max(record.last_failure or -inf, record.failed_at or -inf), now)
        before, failures, messages = circuit.state, circuit.failures + 1, circuit.messages
        if record.failed_at is None:
            messages += 1
        spared = circuit.failed(delivery, record, event.weight, now)
        self.cause = event.cause
        self._update(now)
        if spared and circuit.stops and circuit.over(now):
            self.close()
            stop = Stop(
                BreakerOpen(f"nothing has succeeded for {now - circuit.opened:.0f} s: {event.cause.text}")
            )
            return True, (*self._changed(before, now), stop)
        return spared, self._changed(before, now, failures, messages)

    def succeeded(self, delivery: Delivery, now: float, running: int) -> Sequence[Command]:
        """Take a success, while `alert` says that it changes something."""
        circuit = self.circuit
        if circuit is None or delivery.state != "running":
            return ()
        before = circuit.state
        circuit.succeeded(now, running)
        self._update(now)
        return self._changed(before, now)

    def ended(self, delivery: Delivery) -> None:
        """Take a result that proves nothing, or a dispatch that was not begun."""
        if self.circuit is not None:
            self.circuit.ended(delivery)

    def lost(self, now: float) -> Sequence[Command]:
        """Learn that the connection is lost: a probe that runs on cannot be waited for."""
        if self.circuit is None:
            return ()
        before = self.circuit.state
        self.circuit.lost()
        return self._changed(before, now)

    def _update(self, now: float) -> None:
        circuit = self.circuit
        open_ = circuit is not None and circuit.state != "closed"
        self.alert = circuit is not None and (open_ or circuit.alert)
        if self.closed:
            return
        withholds = self.paused or open_
        if withholds and not self.withholds:
            self.held_since = now
        self.withholds = withholds
        self.watches = withholds or self._bucket is not None
        if self.paused or (self._bucket is not None and not self._bucket.has(now)):
            self.most = 0
        else:
            self.most = self._credit if circuit is None else min(circuit.most, self._credit)

    def _changed(
        self, before: BreakerState, now: float, failures: int = 0, messages: int = 0
    ) -> Sequence[Command]:
        """Return what the log and observers are to know: each change of state, and a reminder."""
        circuit = self.circuit
        assert circuit is not None, "only called with a breaker"
        if before == circuit.state:
            return ()
        if before in ("closed", "ramp") and circuit.state == "open":
            self._reminded = now
        reminds = before == "probing" and now - self._reminded >= REMINDER
        if reminds:
            self._reminded = now
        return (
            BreakerChanged(
                before, circuit.state, self.cause, failures, messages, circuit.until - now, circuit.spared,
                now - circuit.since, charging=circuit.charging, reminds=reminds,
            ),
        )  # fmt: skip
