"""What a quorum queue of RabbitMQ 4.3 does besides: it holds messages back, and takes back what is held for too long.

What is given back with a due time waits in the queue, uncounted, and keeps its notes; the broker counts what a lost
connection leaves unsettled. What it takes back it gives to any consumer at once, uncounted. The consumer that had it
gets nothing more until all of that is settled with an outcome, and what it says of it changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulator.broker import SimBroker, expired
from tests.simulator.sim_delivery import QUEUE

from redelivery.core.broker_redelivery import BASE, EARLY
from redelivery.core.dead_lettering.routing import COPY, DEFERRALS, DUE
from redelivery.core.rescheduled import PATIENCE

if TYPE_CHECKING:
    from tests.simulator.profiles import Message, Profile
    from tests.simulator.sim_delivery import SimDelivery
    from tests.simulator.truth import Truth

    from redelivery.errors import TransportError

__all__ = ["QuorumBroker", "all_noted", "noted_count", "noted_due"]

# Seconds: a due time is noted in whole milliseconds.
ROUNDED = 0.0006


def noted_count(message: Message) -> int:
    """Return how often a message was attempted, by its notes and by what the broker has counted since."""
    if BASE not in message.notes:
        return message.count
    return int(message.notes["redeliveryCount"]) + max(0, message.count - int(message.notes[BASE]))


def noted_due(message: Message) -> float | None:
    """Return the due time that is noted on a message, or None."""
    return int(message.notes[DUE]) / 1000 if DUE in message.notes else None


def all_noted(message: Message, truth: Truth, seconds: float) -> bool:
    """Whether all that is to be known of a message is noted on it; its due time within so many seconds."""
    due = noted_due(message)
    if due is None or truth.judged[message.kin] or truth.was_settled(message):
        return False
    near = abs(due - truth.not_before.get(message.name, due)) < seconds
    return near and noted_count(message) >= truth.failed[message.kin]


class QuorumBroker(SimBroker):
    """`skew`: seconds that its clock is ahead. `hasty`: somebody may have it deliver before the time."""

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
        # What was taken back, and is not settled yet.
        self.taken: dict[int, list[SimDelivery]] = {}
        # What the library is still to read of that; and what it has settled, of which its engines are still to learn.
        self.notices: list[tuple[int, list[SimDelivery]]] = []
        self.settled: list[tuple[int, list[SimDelivery]]] = []
        # When settlements were given that had no effect, of what was to wait.
        self._in_vain: dict[str, float] = {}
        # Accepted in vain, since it was taken back.
        self.vain: list[SimDelivery] = []
        # When it took back what was the last.
        self._now = 0.0

    def may_deliver(self, consumer: int) -> bool:
        return not self.taken.get(consumer) and super().may_deliver(consumer)

    # What waits.

    def wait(self, message: Message, notes: dict[str, str | int], due: float) -> None:
        """Hold a message back until it is due by the broker's clock, and keep what is noted on it."""
        message.notes = {**message.notes, **notes}
        message.mark = True
        self.delayed[message.name] = due - self._skew, message

    def failed_elsewhere(self, message: Message, now: float, delay: float) -> None:
        """Another process gives a message back after a failure, as this one does."""
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

    # What is taken back.

    def take_back(self, consumer: int, name: str | None, now: float) -> None:
        """Take back one delivery, or all: other consumers get the messages at once. Copies of them are read before."""
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
        """Whether this process has learned that a message was taken back, if it was; before, others only may get it."""
        untold = [*self.notices, *self.settled]
        return all(each.message is not message for _, gone in untold for each in gone)

    def settle_taken(self) -> None:
        """Let the library read what was taken back of a consumer, and settle what it has not settled itself."""
        consumer, gone = self.notices.pop(0)
        own = [delivery for delivery in gone if delivery.final is None]
        for delivery in gone:
            if delivery.final is not None:
                self._crossed(delivery, delivery.final)
            if delivery.final == "reschedule":
                # It is taken for one that was held back, and after a while for one that was read.
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
            # It is settled already; the engine learns that what was to wait does not.
            if kind == "accept":
                self._crossed(delivery, kind)
            elif kind == "reschedule":
                self.truth.waits(delivery.message, self._slack)
            return
        super().write(kind, delivery, live=live)

    # What is read.

    def read(self, now: float, step: int, error: TransportError | None = None) -> None:
        kind, delivery = self.wire[0]
        if delivery in self.taken.get(delivery.consumer, ()):
            # Without an effect; but it is settled.
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
        # What the engine is told of the wall clock is its own.
        self.wait(delivery.message, dict(command.notes), command.due)
        if command.due > now:
            self.truth.waits(delivery.message, self._slack)

    def is_past(self, message: Message, now: float) -> bool:
        """Whether a message comes so late that the library takes its last settlement for read, which was not."""
        return now >= self._in_vain.pop(message.name, now) + PATIENCE

    def _crossed(self, delivery: SimDelivery, final: str) -> None:
        if final == "accept":
            self.vain.append(delivery)
        self.truth.crossed(delivery.message, final)
        self.truth.believe(delivery.message, noted_count(delivery.message))

    def _copied(self, delivery: SimDelivery, now: float) -> None:
        """Store the dead letter of what was taken back: the message itself is there, too."""
        # Another process may have been done with it before.
        if self.truth.gone.get(delivery.message.name) != "accepted":
            self.truth.died(delivery.message, now, expired=expired(delivery.message, now))
            self.truth.returned(delivery.message)
        self.answers.append((delivery, None))

    # How it ends.

    def lose(self, *, mark: bool) -> None:
        self.taken.clear()
        self.notices.clear()
        self.settled.clear()
        self.vain.clear()
        super().lose(mark=mark)

    def close(self, consumer: int) -> None:
        self.taken.pop(consumer, None)
        for other, gone in (*self.notices, *self.settled):
            # Nobody learns any more what was settled in vain.
            for delivery in gone if other == consumer else ():
                self._crossed(delivery, "closed")
        self.notices = [(other, gone) for other, gone in self.notices if other != consumer]
        self.settled = [(other, own) for other, own in self.settled if other != consumer]
        super().close(consumer)
