"""Deliveries that the broker takes back on a connection that still stands, because they were not settled in time.

RabbitMQ 4.3 does so after a consumer's timeout: the message goes to any consumer at once. As after the loss of a
connection, later results for the delivery are stale, and the record of the message is kept.
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

# An epoch that no connection has, and not the one that the engine has between two of them.
NONE = -2


class Takeback:
    """Invalidates taken-back deliveries of one engine."""

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
        """Invalidate those that are not settled; return the command for the log.

        Those settled meanwhile were settled in vain: a message that was to be delayed is recognised when it arrives.
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
        # They count as settled: their credit is free.
        self._flow.settled += len(running)
        history.taken_back(unsettled, running)
        for delivery in running:
            # Makes its result stale.
            delivery.epoch = NONE
        return (TookBack(len(gone), len(running), None if able is None else able.max_hold),)

    def _forget(self, gone: set[Delivery]) -> None:
        for delivery in gone:
            if not self._confirms.forget(delivery):
                # One that was set aside has been counted before.
                self._flow.settled += 1
            self._held.forget(delivery)
            if delivery in self._suspects:
                self._suspects.remove(delivery)
        self._rebuild(gone)

    def _rebuild(self, gone: set[Delivery]) -> None:
        """Remove them from the schedule, in which all others keep their order."""
        # Those with a due time first: they may be the heads of their groups.
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
