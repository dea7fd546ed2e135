"""Simulated broker with one pair's profile: a queue, and unsettled messages; it reads what was written in order."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from tests.simulator.profiles import Message
from tests.simulator.sim_delivery import SimDelivery
from tests.simulator.truth import Violation

from redelivery.core.dead_lettering.routing import COPY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulator.profiles import Profile
    from tests.simulator.truth import Truth

    from redelivery.errors import TransportError

__all__ = ["SimBroker", "expired"]

# Seconds after which even a killed broker has stored what it has carried out.
LATELY = 4.0


def expired(message: Message, now: float) -> bool:
    """Return True if a message has expired."""
    return message.expires is not None and message.expires <= now


class SimBroker:
    """Carries out what it reads. `shift`: at another address, its own ids belong to other messages."""

    def __init__(self, profile: Profile, messages: Sequence[Message], truth: Truth) -> None:
        self.profile = profile
        self.truth = truth
        self.queue: list[Message] = []
        self.numbers = {message.name: number for number, message in enumerate(messages)}
        self.unsettled: dict[int, list[SimDelivery]] = {}
        self.credit: dict[int, int] = {}
        # Without flow: how many may be unsettled, at first and now; no entry means no limit.
        self.windows: dict[int, tuple[int, int]] = {}
        # Written by the library, not read yet.
        self.wire: list[tuple[str, SimDelivery]] = []
        self.answers: list[tuple[SimDelivery, TransportError | None]] = []
        # Deliveries that the library has set aside.
        self.aside: set[SimDelivery] = set()
        # Carried out lately: a killed broker may forget it.
        self.done: list[tuple[Message, float]] = []
        self.shift = 0
        self._many = len(messages)
        # Ids that no message has had yet.
        self._numbers = count(self._many)
        # Delayed copies, and when they are due.
        self.delayed: dict[str, tuple[float, Message]] = {}
        self._copies: set[object] = set()

    def joined(self, consumer: int, window: int | None = None) -> None:
        """Start a consumer."""
        self.unsettled[consumer] = []
        self.credit[consumer] = 0
        if window is not None:
            self.windows[consumer] = window, window

    def widen(self, consumer: int, messages: int) -> None:
        """Carry out `Credit`."""
        self.credit[consumer] += messages
        if consumer in self.windows:
            first, now = self.windows[consumer]
            self.windows[consumer] = first, now + messages

    def may_deliver(self, consumer: int) -> bool:
        """Return True if the consumer has credit, where that flows, or room in its window."""
        if consumer not in self.unsettled:
            return False
        if self.profile.flow:
            return self.credit[consumer] > 0
        return consumer not in self.windows or len(self.unsettled[consumer]) < self.windows[consumer][1]

    def delivery(self, consumer: int, epoch: int, message: Message) -> SimDelivery:
        """Take a message from the queue for a consumer."""
        self.queue.remove(message)
        number = self.numbers[message.name]
        if number < self._many:  # otherwise it is a copy
            number = (number + self.shift) % self._many
        delivery = SimDelivery(consumer, epoch, message, self.profile, number)
        self.unsettled[consumer].append(delivery)
        self.credit[consumer] -= 1
        return delivery

    def write(self, kind: str, delivery: SimDelivery, *, live: bool) -> None:
        """Record what the library writes. Raises Violation."""
        name = delivery.message.name
        if kind != "release" and delivery in self.aside:
            raise Violation(f"aside: {kind} of {name}, which was set aside")
        if not live:
            raise Violation(f"epoch: {kind} of {name} for a connection that is gone")
        if delivery.final is not None:
            raise Violation(f"settled twice: {kind} of {name} after {delivery.final}")
        if self._settles(kind):
            delivery.final = kind
        self.wire.append((kind, delivery))

    def _settles(self, kind: str) -> bool:
        """Return True if the written command settles the delivery; otherwise an accept follows its confirmation."""
        if kind == "delay":
            return self.profile.delays == "atomic"
        return kind != "forward" or self.profile.poison == "atomic"

    def read(self, now: float, step: int, error: TransportError | None = None) -> None:
        """Carry out the oldest written command. Raises Violation."""
        kind, delivery = self.wire.pop(0)
        message, mine = delivery.message, self.unsettled[delivery.consumer]
        if delivery not in mine:
            raise Violation(f"settled twice: the broker knows nothing of {message.name} any more ({kind})")
        if kind == "release":
            mine.remove(delivery)
            self.truth.relaxation.given_back(message.kin)
            self._note_count(delivery)
            # RabbitMQ's mark is for each redelivery; other brokers' are for those after a loss.
            message.mark = message.mark or self.profile.name.startswith("rabbitmq")
            self.queue.insert(0, message)
        elif kind == "accept":
            mine.remove(delivery)
            self.truth.accepted(message, step)
            self.done.append((message, now))
        elif error is not None:
            delivery.final = None
            self.answers.append((delivery, error))
        elif kind == "delay":
            self._hold(delivery, now, step)
            if self._settles(kind):
                mine.remove(delivery)
            self.answers.append((delivery, None))
        else:
            self.truth.died(message, now, expired=expired(message, now))
            if kind == "poison" or self.profile.poison == "atomic":
                mine.remove(delivery)
                self.truth.gone[message.name] = "dead"
                if self.profile.poison != "atomic":
                    # The work of a transaction is stored when its commit is answered.
                    self.done.append((message, now))
            self.answers.append((delivery, None))

    def _hold(self, delivery: SimDelivery, now: float, step: int) -> None:
        """Store a copy that is to be delivered later."""
        told, original = delivery.copy, delivery.message
        assert told is not None
        name = told.headers[COPY]
        if original.copied_as not in (None, name):
            raise Violation(f"copy: {original.name} is copied again as {name}, not as {original.copied_as}")
        if not original.headers and self.truth.size[original.kin] == 1:
            original.copied_as = name
        if self.profile.once and name in self._copies:
            self.truth.copied_before(original)
            return
        self._copies.add(name)
        number = next(self._numbers)
        copy = Message(f"{original.name.partition('~')[0]}~{number}", str(name), original.body)
        copy.headers, copy.expires, copy.kin, copy.sent = told.headers, told.expires_at, original.kin, step
        self.numbers[copy.name] = number
        self.delayed[copy.name] = now + (told.delay or 0.0), copy
        self.truth.copied(original, copy)

    def redriven(self, message: Message, now: float, step: int) -> None:
        """Take a dead letter back under its producer's id; the broker's own id is new."""
        self.truth.redriven(message, now, renumbered=self.profile.strong)
        self.numbers[message.name] = next(self._numbers)
        message.sent, message.count, message.mark = step, 0, False
        self.done = [(each, at) for each, at in self.done if each is not message]
        self.queue.append(message)

    def ripen(self, name: str) -> None:
        """Put a copy on the queue."""
        _, copy = self.delayed.pop(name)
        self.queue.append(copy)

    def put_aside(self, delivery: SimDelivery, now: float) -> None:
        """Set aside a message that the library can neither handle nor copy. Raises Violation if it could."""
        if not delivery.message.torn or self.profile.poison == "native":
            raise Violation(f"aside: {delivery.message.name} could be copied")
        self.aside.add(delivery)
        kin = delivery.message.kin
        there = [each for mine in self.unsettled.values() for each in mine if each in self.aside]
        many = sum(each.message.kin == kin for each in there)
        self.truth.set_aside(delivery.message, many, expired=expired(delivery.message, now))

    def nameless(self, message: Message) -> bool:
        """Return True if later deliveries of it cannot be recognised."""
        return not self.profile.strong and message.key is None

    def lose(self, *, mark: bool) -> None:
        """End the connection: unsettled messages go back to the queue."""
        self.wire.clear()
        self.answers.clear()
        self.truth.lost()
        back = [self._returned(each, mark=mark) for mine in self.unsettled.values() for each in mine]
        back.sort(key=lambda message: message.sent)
        self.queue = back + self.queue if self.profile.front else self.queue + back
        for consumer, mine in self.unsettled.items():
            mine.clear()
            self.credit[consumer] = 0
        self.windows = {consumer: (first, first) for consumer, (first, _) in self.windows.items()}

    def close(self, consumer: int) -> None:
        """End a consumer: its messages go back to the queue."""
        mark = self.profile.marks == "all"
        mine = self.unsettled.pop(consumer)
        for each in mine:
            self.truth.relaxation.given_back(each.message.kin)
        # RabbitMQ 4.3 does not count the end of a link.
        counted = not self.profile.quorum
        self.queue = [self._returned(each, mark=mark, counted=counted) for each in mine] + self.queue
        for each, error in self.answers:
            if each.consumer == consumer and error is None:
                self.truth.unanswered(each.message)
        self.answers = [(each, error) for each, error in self.answers if each.consumer != consumer]
        del self.credit[consumer]

    def _returned(self, delivery: SimDelivery, *, mark: bool, counted: bool = True) -> Message:
        message = delivery.message
        self.truth.returned(message)
        self._note_count(delivery)
        message.mark = message.mark or mark
        message.count += self.profile.counts and counted
        return message

    def _note_count(self, delivery: SimDelivery) -> None:
        """Note the count with which a message without an id goes back: it may be known by its bytes."""
        message, kept = delivery.message, self.truth.kept
        if delivery.record is not None and self.nameless(message):
            kept[message.kin] = max(kept[message.kin], delivery.record.count)

    def would_forget(self, now: float) -> Message | None:
        """Return the message that a broker killed now would forget to have settled; or None."""
        return (
            self.done[-1][0]
            if self.profile.forgets and self.done and self.done[-1][1] > now - LATELY
            else None
        )

    def killed(self) -> Message:
        """Forget the last settlement; its message is on the queue again."""
        message, _ = self.done.pop()
        self.truth.restored(message)
        message.mark = self.profile.remarks
        self.queue.insert(0, message)
        return message
