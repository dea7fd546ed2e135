"""What the broker takes back although its connection stands, because it was not settled in time.

RabbitMQ 4.3 does so with a consumer's timeout: the message goes to any consumer at once. What this consumer still does
about the delivery counts for nothing, as after the loss of a connection; what is known of the message is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.commands import TookBack
from redelivery.core.delivery import Record

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Mapping, Sequence

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Command
    from redelivery.core.credit import CreditWindow
    from redelivery.core.delivery import Delivery
    from redelivery.core.dispatch_order import Schedule
    from redelivery.core.message_history import MessageHistory
    from redelivery.core.pending_confirms import PendingConfirms
    from redelivery.core.released_here import ReleasedHere

__all__ = ["Takeback"]

# The epoch of no connection, and not what the engine has between two of them.
NONE = -2


class Takeback:
    """Lets go of deliveries of one engine."""

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
        """Let go of those that are not settled; return what the log is to say.

        Those that were settled meanwhile were settled in vain: what was to wait is known when it comes.
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
        # As if they were settled: their credit is free.
        self._flow.settled += len(running)
        history.taken_back(unsettled, running)
        for delivery in running:
            # Its result is stale from now on.
            delivery.epoch = NONE
        return (TookBack(len(gone), len(running), None if able is None else able.max_hold),)

    def _forget(self, gone: set[Delivery]) -> None:
        for delivery in gone:
            if not self._confirms.forget(delivery):
                # What is set aside has been counted before.
                self._flow.settled += 1
            self._held.forget(delivery)
            if delivery in self._suspects:
                self._suspects.remove(delivery)
        self._rebuild(gone)

    def _rebuild(self, gone: set[Delivery]) -> None:
        """Take them out of the schedule, in which all others keep their order."""
        # First those with a due time, which may be the heads of their groups.
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
