"""Return of deliveries to the broker: released if the broker can, otherwise kept here until the consumer closes."""

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
        """Share the memory of all consumers of the source."""
        self._history = history

    def connected(self, capabilities: Capabilities) -> None:
        """Note the capabilities of the broker."""
        self._capabilities = capabilities

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
        able = self._capabilities
        self._gate.gave_back(now, counted=able is not None and able.release_counts)
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
