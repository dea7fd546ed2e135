"""How deliveries go back to the broker: released where it can be, else held here until the consumer closes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.commands import Release
from redelivery.core.delivery import Record
from redelivery.core.transitions import enter

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Mapping, Sequence

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Command
    from redelivery.core.credit import CreditWindow
    from redelivery.core.delivery import Delivery
    from redelivery.core.dispatch_gate import DispatchGate
    from redelivery.core.dispatch_order import Schedule
    from redelivery.core.message_history import MessageHistory
    from redelivery.core.released_here import ReleasedHere
    from redelivery.core.report import Counters

__all__ = ["Returns"]


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
        """Keep records with what other consumers of the source know."""
        self._history = history

    def connected(self, capabilities: Capabilities) -> None:
        """Learn what the broker can do."""
        self._capabilities = capabilities

    @property
    def most_delay(self) -> float | None:
        """Seconds that a message may wait here, or None."""
        return None if self._capabilities is None else self._capabilities.most_delay

    def one(self, delivery: Delivery) -> Sequence[Command]:
        """Release a delivery where the broker can; elsewhere hold it until the consumer closes, which gives it back.

        So too once nothing is dispatched any more, where credit cannot be taken back: it would come again at once.
        """
        able, record = self._capabilities, delivery.record
        waited = record is not None and record.copy is delivery
        if record is not None and waited:
            # It is known to the handler that it has waited for.
            self._history.let_wait(record)
            record = None
        if able is not None and able.release and (able.flow or not self._gate.closed):
            enter(delivery, "settled")
            self._flow.settled += 1
            record = Record() if delivery.record is None and able.counts and not waited else record
            # A release washes off neither the charge nor the delay; one that is lost charges nothing.
            self._history.gave_back(delivery, record)
            return (Release((delivery,)),)
        self._held.keep(delivery)
        return ()

    def fresh(self, *, late: bool = False) -> list[Command]:
        """Release what was never dispatched and may not be now: another process may be able to handle it.

        `late`: it has come after the credit was withdrawn, so no more of it than was on its way then. A broker that
        sends more all the same (Classic 6.1.7, for what is released to it) would send it again and again.

        Only where a release is not counted and credit can be withdrawn, or it would come back at once. A schedule that
        keeps an order takes nothing out: what follows a parked message must stay behind it.
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
        """Release all that waits for the breaker or for the end of a pause: the broker delivers it again at once."""
        able = self._capabilities
        self._gate.gave_back(now, counted=able is not None and able.release_counts)
        commands: list[Command] = []
        for delivery in self.taken_out():
            commands += self.one(delivery)
        for delivery in self._running:
            self._schedule.occupy(delivery)
        return commands

    def paused(self, now: float, *, paused: bool) -> Sequence[Command]:
        """Give back what was never dispatched, at the beginning of a pause. Handlers go on, and are settled."""
        self._gate.pause(now, paused=paused)
        return [*self._flow.withdrawn(), *self.fresh()] if paused and not self._gate.closed else ()

    def drained(self) -> Sequence[Command]:
        """Give back all that waits: nothing more is to be dispatched."""
        self._gate.close()
        held = self.taken_out()
        self._counts.released += len(held)
        commands: list[Command] = [*self._flow.withdrawn()]
        for delivery in held:
            commands += self.one(delivery)
        return commands

    def taken_out(self) -> list[Delivery]:
        """Take out all that waits, in the order in which it came, which is the broker's."""
        held = sorted([*self._schedule, *self._suspects], key=lambda delivery: delivery.seq)
        self._schedule.clear()
        self._suspects.clear()
        return held
