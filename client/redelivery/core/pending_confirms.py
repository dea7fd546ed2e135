"""Poison acknowledgements and delayed copies on their way: tried until confirmed, never assumed."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from redelivery.core.commands import Accept, Command, Dropped, Forward, Reschedule, SetAside, Stop, Unanswered
from redelivery.core.delivery import EXPIRED, UNKNOWN
from redelivery.core.transitions import enter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from redelivery.core.broker_redelivery import BrokerRedelivery
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.credit import CreditWindow
    from redelivery.core.dead_lettering.redrive import DeadLetterRoute
    from redelivery.core.delivery import Delivery, Record
    from redelivery.core.events import Confirmed
    from redelivery.core.message_history import MessageHistory
    from redelivery.core.report import Counters
    from redelivery.core.set_aside import SetAsides

__all__ = ["ACKNOWLEDGED", "STORED", "PendingConfirms"]

# Seconds a broker may take to confirm before that is said in the log.
CONFIRM_TIMEOUT = 30.0
STORED = 5.0
"""Seconds after its own poison acknowledgement within which a broker that is killed may send the message again: Classic
answers over AMQP before it has written a rejection down. Not longer: a dead letter that a person puts back has the same
identity there."""
ACKNOWLEDGED = 60.0
"""Seconds after a confirmed copy within which the acknowledgement of its original may be lost with the connection: a
broker that takes longer to read it misses its heart-beats. Not longer, as above: on RabbitMQ a copy has the same id."""
# Seconds between tries: doubled from the first to the last.
FIRST_RETRY, LAST_RETRY = 1.0, 30.0


class PendingConfirms:
    """Deliveries that are poison, until the broker confirms that their dead letter is safe.

    So too those that leave as delayed copies: their records say when they return.
    """

    def __init__(
        self,
        dead_letters: DeadLetterRoute,
        history: MessageHistory,
        counts: Counters,
        flow: CreditWindow,
        asides: SetAsides,
        rescheduling: BrokerRedelivery | None = None,
    ) -> None:
        self._dead_letters = dead_letters
        self._rescheduling = rescheduling
        self._history = history
        if rescheduling is not None:
            rescheduling.share(history)
        self._counts = counts
        self._flow = flow
        self._asides = asides
        self.pending: set[Delivery] = set()  # not confirmed yet
        # Of them, those whose answer is on its way.
        self.in_doubt: set[Delivery] = set()
        self._alarms: list[tuple[float, int, Delivery]] = []
        self._capabilities: Capabilities | None = None
        self.wall_offset = 0.0  # the wall clock minus `now`

    def __len__(self) -> int:
        return len(self.pending)

    def share(self, history: MessageHistory) -> None:
        """Keep verdicts with what other consumers of the source know."""
        self._history = history
        if self._rescheduling is not None:
            self._rescheduling.share(history)
        self._asides.share(history)

    def connected(self, capabilities: Capabilities) -> None:
        """Learn what the broker can do."""
        self._capabilities = capabilities
        self._asides.connected(capabilities)

    def begin(self, delivery: Delivery, record: Record, now: float) -> Sequence[Command]:
        """Try a poison acknowledgement, or a delayed copy; set aside what can leave by neither."""
        assert self._capabilities is not None, "a delivery cannot arrive before a connection"
        ways: DeadLetterRoute | BrokerRedelivery = self._dead_letters
        due = record.returns
        if due is not None and self._rescheduling is not None:
            native = self._capabilities.reschedule == "native"
            if due < now and not self._rescheduling.takes(delivery, now + self.wall_offset, native=native):
                # It has expired meanwhile, in an outage or between refusals: the broker would drop the copy.
                record.returns, record.cause = None, EXPIRED
            else:
                ways = self._rescheduling
        if ways is self._dead_letters:
            record.poisoned = True
        self.in_doubt.discard(delivery)
        command = ways.command(delivery, record, self._capabilities, self.wall_offset, now)
        if isinstance(command, Accept):
            self._counts.discarded += 1
            delivery.outcome = "discarded"
            self._settle(delivery)
            return (command, Dropped(delivery, record.cause or UNKNOWN))
        if isinstance(command, Reschedule):
            return self._gave_back(command, record, now)
        if isinstance(command, Stop | SetAside):
            self.pending.discard(delivery)
            return (command,) if isinstance(command, Stop) else self._asides.take(command, record, now)
        self.pending.add(delivery)
        self.in_doubt.add(delivery)
        enter(delivery, "settling")
        record.tries += 1
        record.copied = isinstance(command, Forward)
        self._alarm(delivery, record, now + CONFIRM_TIMEOUT)
        return (command,)

    def _gave_back(self, command: Reschedule, record: Record, now: float) -> Sequence[Command]:
        """Learn that the broker holds a message back, and go on without it."""
        delivery = command.delivery
        record.due, record.returns = record.returns, None
        assert self._rescheduling is not None, "nobody else makes the command"
        self._rescheduling.gave_back(command, record, now)
        # An equal message that was accepted is another one.
        self._history.gave_back(delivery)
        self._settle(delivery)
        return (command,)

    def confirmed(self, event: Confirmed, now: float) -> Sequence[Command]:
        """Take the broker's answer: done with, tried again later, or set aside.

        Set aside is what can never be copied over this protocol; without room for it, that is the consumer's end.
        """
        delivery, error = event.delivery, event.error
        record = delivery.record
        if delivery.state != "settling" or record is None:
            return ()
        self.in_doubt.discard(delivery)
        if error is not None and event.final:
            self.pending.discard(delivery)
            return self._asides.take(SetAside(delivery, error), record, now)
        if error is not None:
            delay = min(FIRST_RETRY * 2 ** min(record.tries - 1, 10), LAST_RETRY)
            self._alarm(delivery, record, now + delay)
            return ()
        # Its first copy was: this one is dropped by the broker, or is one too many.
        if record.confirmed:
            self._counts.deduplicated += 1
        else:
            if record.poisoned:  # else it was a delayed copy
                self._counts.poisoned += 1
            record.confirmed = True
        self._settle(delivery)
        if not record.copied:
            self._history.poisoned(delivery, record, now + STORED)
            return ()
        able = self._capabilities
        if able is None or (able.forward if record.poisoned else able.reschedule) == "atomic":
            return ()
        # The copy is safe; the original is not acknowledged yet. Should its acknowledgement be lost with the connection
        # (or with the broker, which then does not mark what it sends again), it is copied again, not handled again.
        self._history.poisoned(delivery, record, now + ACKNOWLEDGED)
        delivery.let_go()
        return (Accept((delivery,)),)

    def tick(self, now: float) -> Iterator[Unanswered | tuple[Delivery, Record]]:
        """Go through what is due: what is to be said of a missing answer, and what was refused and is tried again.

        The caller tries again before it takes the next one, which makes a second alarm of the same delivery void.

        What has no answer is waited for as long as the connection stands: a broker that takes nothing more for now (it
        is out of memory, or an address is full) answers when it does again, and a second copy would be one too many.
        """
        alarms = self._alarms
        while alarms and alarms[0][0] <= now:
            at, _, delivery = heappop(alarms)
            record = delivery.record
            if record is None or delivery.state != "settling" or record.due != at:
                continue
            if delivery in self.in_doubt:
                yield Unanswered(delivery, CONFIRM_TIMEOUT)
            else:
                yield delivery, record

    def next_alarm(self) -> float | None:
        """When `tick` has something to do."""
        alarms = self._alarms[0][0] if self._alarms else None, self._asides.next_alarm()
        return min((at for at in alarms if at is not None), default=None)

    def forget(self, delivery: Delivery) -> bool:
        """Give up the handle of one, which the broker has taken back; return whether it was set aside."""
        self.pending.discard(delivery)
        self.in_doubt.discard(delivery)
        return self._asides.forget(delivery)

    def lost(self) -> list[Delivery]:
        """Give up the handles: the connection is gone. The verdicts stay with the records."""
        pending = [*self.pending, *self._asides.lost()]
        self.pending.clear()
        self.in_doubt.clear()
        self._alarms.clear()
        return pending

    def _alarm(self, delivery: Delivery, record: Record, at: float) -> None:
        record.due = at
        heappush(self._alarms, (at, delivery.seq, delivery))

    def _settle(self, delivery: Delivery) -> None:
        enter(delivery, "settled")
        self.pending.discard(delivery)
        self._flow.settled += 1
