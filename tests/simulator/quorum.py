"""Quorum queue of RabbitMQ 4.3: it delays messages, and takes back those that stay unsettled for too long.

A message released with a due time stays in the queue, uncounted, with its notes. The broker counts the messages that a
lost connection leaves unsettled. It gives a message that it took back to any consumer at once, uncounted. The consumer
that had it gets no more until all of these are settled with an outcome, which has no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulator.broker import SimBroker, expired
from tests.simulator.sim_delivery import QUEUE

from redelivery.core.broker_redelivery import BASE, EARLY
from redelivery.core.dead_lettering.routing import COPY, DEFERRALS, DUE
from redelivery.core.message_history import PATIENCE

if TYPE_CHECKING:
    from tests.simulator.profiles import Message, Profile
    from tests.simulator.sim_delivery import SimDelivery
    from tests.simulator.truth import Truth

    from redelivery.errors import TransportError

__all__ = ["QuorumBroker", "all_noted", "noted_count", "noted_due"]

# Seconds: a due time is noted in whole milliseconds.
ROUNDED = 0.0006


def noted_count(message: Message) -> int:
    """Return how often a message was attempted, by its notes and by the broker's count since."""
    if BASE not in message.notes:
        return message.count
    return int(message.notes["redeliveryCount"]) + max(0, message.count - int(message.notes[BASE]))


def noted_due(message: Message) -> float | None:
    """Return the due time noted on a message, or None."""
    return int(message.notes[DUE]) / 1000 if DUE in message.notes else None


def all_noted(message: Message, truth: Truth, seconds: float) -> bool:
    """Return True if all facts about a message are noted on it; its due time within so many seconds."""
    due = noted_due(message)
    if due is None or truth.judged[message.kin] or truth.was_settled(message):
        return False
    near = abs(due - truth.not_before.get(message.name, due)) < seconds
    return near and noted_count(message) >= truth.failed[message.kin]


class QuorumBroker(SimBroker):
    """Broker with one quorum queue. `skew`: seconds that its clock is ahead. `hasty`: it may deliver too early."""

    def __init__(
        self,
        profile: Profile,
        messages: list[Message],
        truth: Truth,
        *,
        skew: float = 0.0,
        hasty: bool = False,
    ) -> None:
        super().__init__(profile, messages, truth)
        self._skew = skew
        self._slack = ROUNDED + (EARLY if hasty else min(EARLY, max(0.0, skew)))
        # Taken back, and not settled yet.
        self.taken: dict[int, list[SimDelivery]] = {}
        # Not read by the library yet; and settled by it, while its engines do not know yet.
        self.notices: list[tuple[int, list[SimDelivery]]] = []
        self.settled: list[tuple[int, list[SimDelivery]]] = []
        # When settlements of messages to be delayed were given in vain.
        self._in_vain: dict[str, float] = {}
        # Accepted in vain after the take-back.
        self.vain: list[SimDelivery] = []
        # Time of the last take-back.
        self._now = 0.0

    def may_deliver(self, consumer: int) -> bool:
        return not self.taken.get(consumer) and super().may_deliver(consumer)

    # Delayed messages.

    def wait(self, message: Message, notes: dict[str, str | int], due: float) -> None:
        """Delay a message until it is due by the broker's clock, and keep its notes."""
        message.notes = {**message.notes, **notes}
        message.mark = True
        self.delayed[message.name] = due - self._skew, message

    def failed_elsewhere(self, message: Message, now: float, delay: float) -> None:
        """Release a message after a failure in another process, as this one does."""
        count, due = noted_count(message) + 1, now + delay
        notes: dict[str, str | int] = {
            "redeliveryCount": str(count),
            "redeliveryCause": "elsewhere",
            COPY: f"@{QUEUE}",
            DUE: round(due * 1000),
            DEFERRALS: 0,
            BASE: message.count,
        }
        self.wait(message, notes, due)

    def redriven(self, message: Message, now: float, step: int) -> None:
        message.notes = {}
        super().redriven(message, now, step)

    # Messages taken back.

    def take_back(self, consumer: int, name: str | None, now: float) -> None:
        """Take back one delivery, or all: other consumers get the messages at once. Their copies are read before."""
        mine = self.unsettled[consumer]
        gone = [each for each in mine if name in (None, each.message.name)]
        self.unsettled[consumer] = [each for each in mine if each not in gone]
        self._now = now
        for _, delivery in [found for found in self.wire if found[0] == "forward" and found[1] in gone]:
            self._copied(delivery, now)
        self.wire = [found for found in self.wire if found[0] != "forward" or found[1] not in gone]
        for delivery in gone:
            message = delivery.message
            message.mark = True
            self.truth.returned(message)
        self.queue = [each.message for each in gone] + self.queue
        self.taken.setdefault(consumer, []).extend(gone)
        self.notices.append((consumer, gone))

    def has_told(self, message: Message) -> bool:
        """Return True if this process knows of the take-back of a message, if any; before, only others may get it."""
        untold = [*self.notices, *self.settled]
        return all(each.message is not message for _, gone in untold for each in gone)

    def settle_taken(self) -> None:
        """Make the library read a consumer's take-backs, and settle those that it has not settled itself."""
        consumer, gone = self.notices.pop(0)
        own = [delivery for delivery in gone if delivery.final is None]
        for delivery in gone:
            if delivery.final is not None:
                self._crossed(delivery, delivery.final)
            if delivery.final == "reschedule":
                # It counts as delayed, and after a while as read.
                self.truth.waits(delivery.message, EARLY + ROUNDED)
                self._in_vain[delivery.message.name] = self._now
        for delivery in own:
            delivery.final = "outcome"
            self.wire.append(("outcome", delivery))
        self.settled.append((consumer, own))

    def write(self, kind: str, delivery: SimDelivery, *, live: bool) -> None:
        taken = [each for _, gone in (*self.notices, *self.settled) for each in gone]
        if live and delivery in taken and kind == "forward":
            self._copied(delivery, self._now)
            return
        if live and delivery in taken and delivery.final == "outcome":
            # It is settled already; the engine learns that a message to be delayed is not.
            if kind == "accept":
                self._crossed(delivery, kind)
            elif kind == "reschedule":
                self.truth.waits(delivery.message, self._slack)
            return
        super().write(kind, delivery, live=live)

    # Reading.

    def read(self, now: float, step: int, error: TransportError | None = None) -> None:
        kind, delivery = self.wire[0]
        if delivery in self.taken.get(delivery.consumer, ()):
            # Without an effect, but settled.
            self.wire.pop(0)
            self.taken[delivery.consumer].remove(delivery)
        elif kind == "reschedule":
            self._read_reschedule(now)
        else:
            super().read(now, step, error)

    def _read_reschedule(self, now: float) -> None:
        _, delivery = self.wire.pop(0)
        self.unsettled[delivery.consumer].remove(delivery)
        self.truth.relaxation.given_back(delivery.message.kin)
        command = delivery.given
        assert command is not None
        # The engine's own wall clock.
        self.wait(delivery.message, dict(command.notes), command.due)
        if command.due > now:
            self.truth.waits(delivery.message, self._slack)

    def is_past(self, message: Message, now: float) -> bool:
        """Return True if a message arrives so late that its last settlement, which was not read, counts as read."""
        return now >= self._in_vain.pop(message.name, now) + PATIENCE

    def _crossed(self, delivery: SimDelivery, final: str) -> None:
        if final == "accept":
            self.vain.append(delivery)
        self.truth.crossed(delivery.message, final)
        self.truth.believe(delivery.message, noted_count(delivery.message))

    def _copied(self, delivery: SimDelivery, now: float) -> None:
        """Store the dead letter of a message that was taken back: the message itself is on the queue, too."""
        # Another process may have settled it before.
        if self.truth.gone.get(delivery.message.name) != "accepted":
            self.truth.died(delivery.message, now, expired=expired(delivery.message, now))
            self.truth.returned(delivery.message)
        self.answers.append((delivery, None))

    # The end.

    def lose(self, *, mark: bool) -> None:
        self.taken.clear()
        self.notices.clear()
        self.settled.clear()
        self.vain.clear()
        super().lose(mark=mark)

    def close(self, consumer: int) -> None:
        self.taken.pop(consumer, None)
        for other, gone in (*self.notices, *self.settled):
            # No consumer can learn any more which settlements had no effect.
            for delivery in gone if other == consumer else ():
                self._crossed(delivery, "closed")
        self.notices = [(other, gone) for other, gone in self.notices if other != consumer]
        self.settled = [(other, own) for other, own in self.settled if other != consumer]
        super().close(consumer)
