"""How many deliveries of one consumer may run at once: its credit; fewer while its breaker is open, or it is paused.

The engine compares one number for each dispatch, `most`; the reasons for it are here.
"""

from __future__ import annotations

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

__all__ = ["DispatchGate"]

# Seconds after which the log names an open breaker again.
REMINDER = 600.0


class DispatchGate:
    """The credit, the breaker, a pause, and the end of one consumer."""

    __slots__ = (
        "_cause", "_credit", "_reminded", "alert", "circuit", "closed", "held_since", "most", "paused", "withholds",
        "yields",
    )  # fmt: skip

    def __init__(self, credit: int, circuit: Circuit | None) -> None:
        self._credit = credit
        self.circuit = circuit
        self.closed = self.paused = False
        self.most: float = credit
        """How many deliveries may run at once; `admits` may allow one more."""
        self.alert = False
        """Whether a success changes something."""
        self.withholds = False
        """Whether less than the credit is in use on purpose."""
        self.held_since = 0.0
        """Since when, or when what is here was last given back for it."""
        self.yields = False
        """Whether one may be dispatched, and only a crash suspect is there."""
        self._cause: Cause | None = None
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
        return 0 if self.paused else max(1, int(self.most))

    def holds_until(self, most_delay: float | None) -> float | None:
        """When what is withheld must go back to the broker, which limits how long it may be held; None: never.

        A quarter of what its policies may hold a message for (`Capabilities.most_delay`) is kept for this.
        """
        return self.held_since + most_delay / 4 if self.withholds and most_delay is not None else None

    def admits(self, now: float) -> bool:
        """Whether one delivery more may run although `most` do."""
        circuit = self.circuit
        return not (self.closed or self.paused) and circuit is not None and circuit.admits(now)

    def suspect_waits(self) -> None:
        """Let a crash suspect be the next one that is tried, as nothing else is there."""
        self.yields = self.withholds and not self.paused

    def next_due(self, due: float | None, *, ready: bool, running: int) -> float | None:
        """When a delivery may be dispatched, of which the first is due at `due`; `ready`: one is due already."""
        if self.closed or self.paused:
            return None
        circuit = self.circuit
        if running < self.most or circuit is None or circuit.state == "closed":
            return due
        if ready:
            return circuit.until
        return None if due is None else max(due, circuit.until)

    def dispatched(self, delivery: Delivery, now: float) -> Sequence[Command]:
        """Take a dispatch, while it withholds."""
        self.yields = False
        circuit = self.circuit
        if circuit is None or circuit.state == "closed":
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
        before, failures, messages = circuit.state, circuit.failures + 1, circuit.messages
        if record.failed_at is None:
            messages += 1
        spared = circuit.failed(delivery, record, event.weight, now)
        self._cause = event.cause
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

    def lost(self) -> None:
        """Learn that the connection is lost: a probe that runs on cannot be waited for."""
        if self.circuit is not None:
            self.circuit.lost()

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
        self.most = 0 if self.paused else self._credit if circuit is None else min(circuit.most, self._credit)

    def _changed(
        self, before: BreakerState, now: float, failures: int = 0, messages: int = 0
    ) -> Sequence[Command]:
        """Return what the log and observers are to know: each change of state, and a reminder."""
        circuit = self.circuit
        assert circuit is not None, "only called with a breaker"
        again = before == "open" == circuit.state or (before, circuit.state) == ("probing", "open")
        if before == circuit.state and not again:
            return ()
        if not again and circuit.state == "open":
            self._reminded = now
        reminds = again and now - self._reminded >= REMINDER
        if reminds:
            self._reminded = now
        return (
            BreakerChanged(
                before, circuit.state, self._cause, failures, messages, circuit.until - now, circuit.spared,
                now - circuit.since, charging=circuit.charging, reminds=reminds,
            ),
        )  # fmt: skip
