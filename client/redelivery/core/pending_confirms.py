"""Poison acknowledgements and delayed copies that the broker has not confirmed: retried until confirmed."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from redelivery.core.commands import (
    Accept,
    Command,
    Dropped,
    Forward,
    Postponed,
    Refused,
    Reschedule,
    SetAside,
    Stop,
    Unanswered,
)
from redelivery.core.copy_back_off import CopyBackOffs, Place, back_off
from redelivery.core.delivery import EXPIRED, UNKNOWN
from redelivery.core.transitions import enter
from redelivery.errors import BrokerUnavailable, TransportError

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
    from redelivery.errors import RedeliveryError

__all__ = ["ACKNOWLEDGED", "STORED", "PendingConfirms"]

# Seconds without a confirmation after which the log reports it.
CONFIRM_TIMEOUT = 30.0
STORED = 5.0
"""Seconds after its own poison acknowledgement in which a killed broker may redeliver the message: over AMQP, Classic
answers before it has stored a rejection. Not longer: a dead letter that an operator puts back has the same identity
there."""
ACKNOWLEDGED = 60.0
"""Seconds after a confirmed copy in which the acknowledgement of its original may be lost with the connection: a broker
that takes longer to read it misses its heart-beats. Not longer, as above: on RabbitMQ a copy has the same id."""


class PendingConfirms:
    """Poison deliveries until the broker confirms their dead letters.

    Also deliveries that are sent as delayed copies: their records have the due time.
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
        # Those of `pending` that wait for an answer; the others were refused.
        self.in_doubt: set[Delivery] = set()
        self._alarms: list[tuple[float, int, Delivery]] = []
        self._back_offs = CopyBackOffs()
        self._capabilities: Capabilities | None = None
        self.wall_offset = 0.0  # the wall clock minus `now`

    def __len__(self) -> int:
        return len(self.pending)

    @property
    def error(self) -> RedeliveryError | None:
        """Reason why the last copy to a place is not confirmed; None: all places take copies."""
        return self._back_offs.error

    def share(self, history: MessageHistory) -> None:
        """Share the memory of all consumers of the source."""
        self._history = history
        if self._rescheduling is not None:
            self._rescheduling.share(history)
        self._asides.share(history)

    def connected(self, capabilities: Capabilities) -> None:
        """Note the capabilities of the broker."""
        self._capabilities = capabilities
        self._asides.connected(capabilities)

    def begin(self, delivery: Delivery, record: Record, now: float) -> Sequence[Command]:
        """Send a poison acknowledgement, or a delayed copy; set a delivery aside if neither is possible."""
        assert self._capabilities is not None, "a delivery cannot arrive before a connection"
        ways: DeadLetterRoute | BrokerRedelivery = self._dead_letters
        due = record.returns
        if due is not None and self._rescheduling is not None:
            native = self._capabilities.reschedule == "native"
            if due < now and not self._rescheduling.takes(delivery, now + self.wall_offset, native=native):
                # It has expired meanwhile, in an outage or between refusals. The broker would drop the copy.
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
        enter(delivery, "settling")
        place: Place = None
        if isinstance(command, Forward):
            place = command.copy.destination, command.copy.delay is not None
        if (until := self._back_offs.waits_until(place, now)) is not None:
            self._alarm(delivery, record, until)
            return (Postponed(command, until - now),)
        self._back_offs.sent(delivery, place)
        self.in_doubt.add(delivery)
        if record.unheard and record.name is not None and not record.poisoned:
            # It may be at the broker already, unless the broker drops second copies itself.
            if self._capabilities.marks and not self._capabilities.drops_second_copy:
                self._history.sent_again(record.name, (record.returns or now) + ACKNOWLEDGED)
            record.unheard = False
        record.tries += 1
        record.copied = isinstance(command, Forward)
        self._alarm(delivery, record, now + CONFIRM_TIMEOUT)
        return (command,)

    def _gave_back(self, command: Reschedule, record: Record, now: float) -> Sequence[Command]:
        """Note that the broker delays a message; it is settled here."""
        delivery = command.delivery
        record.due, record.returns = record.returns, None
        assert self._rescheduling is not None, "only a rescheduling engine makes the command"
        self._rescheduling.gave_back(command, record, now)
        # An equal message that was accepted is another message.
        self._history.gave_back(delivery)
        self._settle(delivery)
        return (command,)

    def confirmed(self, event: Confirmed, now: float) -> Sequence[Command]:
        """Process the broker's answer: settle the delivery, retry later, or set it aside.

        It is set aside if it can never be copied over this protocol; without room for that, the consumer stops.
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
            # Of copies over a connection of their own no answer is a lost one: the broker may have taken this copy.
            if isinstance(error, TransportError) and not isinstance(error, BrokerUnavailable):
                record.unheard = True
            state = self._back_offs.refused(delivery, error, now)
            delay = back_off(record.tries)
            self._alarm(delivery, record, now + delay)
            return (Refused(delivery, error, delay, again=state.is_reported(now)),)
        self._back_offs.confirmed(delivery)
        # Its first copy was confirmed: this one is a duplicate, which the broker may drop.
        if record.confirmed:
            self._counts.deduplicated += 1
        else:
            if record.poisoned:  # not a delayed copy
                self._counts.poisoned += 1
            record.confirmed = record.unheard = True
        self._settle(delivery)
        if not record.copied:
            self._history.poisoned(delivery, record, now + STORED)
            return ()
        able = self._capabilities
        if able is None or (able.forward if record.poisoned else able.reschedule) == "atomic":
            return ()
        # The copy is confirmed; the original is not acknowledged yet. Its acknowledgement may be lost with the
        # connection, or with a broker that then sets no redelivered flag: it is copied again, not handled again.
        self._history.poisoned(delivery, record, now + ACKNOWLEDGED)
        delivery.let_go()
        return (Accept((delivery,)),)

    def tick(self, now: float) -> Iterator[Unanswered | tuple[Delivery, Record]]:
        """Return the due alarms one by one: an answer that is missing, or a refused delivery to retry.

        The caller retries before it takes the next one; that invalidates a second alarm of the same delivery.

        A missing answer is awaited while the connection stands: a broker that takes nothing for now (out of memory, or
        a full address) answers when it does again, and a second copy would be a duplicate.
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
        """Return when `tick` is due; None: no alarm is set."""
        alarms = self._alarms[0][0] if self._alarms else None, self._asides.next_alarm()
        return min((at for at in alarms if at is not None), default=None)

    def forget(self, delivery: Delivery) -> bool:
        """Remove a delivery that the broker has taken back; return True if it was set aside."""
        self.pending.discard(delivery)
        self.in_doubt.discard(delivery)
        self._back_offs.forget(delivery)
        return self._asides.forget(delivery)

    def interrupted(self, now: float, *, closed: bool) -> Sequence[Command]:
        """Note that the connection is lost, or that its consumer is `closed`; return what the log reports.

        Called before `lost`.
        """
        if closed:
            self._back_offs.closed()
            return ()
        return [
            Refused(
                delivery, state.error, (state.waits_until(now) or now) - now, again=state.is_reported(now)
            )
            for delivery, state in self._back_offs.lost(now)
            if state.error is not None
        ]

    def lost(self) -> list[Delivery]:
        """Remove and return all deliveries: the connection is gone. The verdicts stay in the records."""
        for delivery in self.in_doubt:
            if delivery.record is not None:
                delivery.record.unheard = True
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
