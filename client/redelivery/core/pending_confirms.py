"""Poison acknowledgements and copies until the broker confirms them; back-off of their places; what is set aside."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING

from redelivery.core.commands import (
    Accept,
    Command,
    Dropped,
    Forward,
    Postponed,
    Refused,
    Release,
    Reschedule,
    SetAside,
    StillAside,
    Stop,
    Unanswered,
)
from redelivery.core.delivery import EXPIRED, UNKNOWN, Record
from redelivery.core.shown_values import move_command, printable_id
from redelivery.core.transitions import enter
from redelivery.errors import AdapterError, BrokerUnavailable, TransportError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from redelivery.core.broker_redelivery import BrokerRedelivery
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.consumer_state import ConsumerState
    from redelivery.core.dead_lettering.redrive import DeadLetterRoute
    from redelivery.core.delivery import Delivery
    from redelivery.core.events import Confirmed
    from redelivery.errors import RedeliveryError

__all__ = ["ACKNOWLEDGED", "REMINDER", "STORED", "CopyBackOffs", "PendingConfirms", "SetAsides", "back_off"]


# ---- Copy back off ---------------------------------------------------------------------------------------
# Back-off of dead letters and delayed copies that the broker refuses, also over lost connections.
#
# Artemis closes a STOMP connection when it refuses a copy, and RabbitMQ when its queue is full. The broker
# redelivers the poison message over the next connection; sent again at once, its copy would end each connection, and
# no other message would be handled. For that reason a connection that was lost after a copy, with none confirmed,
# delays the next copies to the same place: one place may be down (the queue of the dead letters, on a node of a
# cluster) while another is well. Over STOMP RabbitMQ has a queue for each delay, and each is a place of its own. All
# of one source are one place more, for lost connections only: where each is down (no right to declare them), the first
# copy to each of them ends a connection.

Place = tuple[str, bool, int] | None
"""Where copies go: a destination, whether they are delayed there, and in which delay queue (its milliseconds; 0: there
is none). None: the broker's own place of dead letters."""

# Seconds between tries: doubled from the first to the last.
FIRST, LAST = 1.0, 30.0
# Lost connections in a row after which copies wait. The first may have been lost for any reason.
LOSSES = 2
# Seconds between reports of refusals: a full queue refuses each copy of each poison message.
REPORT = 60.0


def back_off(refusals: int) -> float:
    """Return the seconds until the next try after this number of refusals in a row."""
    return min(FIRST * 2.0 ** min(refusals - 1, 10), LAST)


class CopyBackOffs:
    """Refusals and losses of one consumer's copies, by place; kept over all its connections."""

    def __init__(self) -> None:
        self._places: dict[Place, CopyBackOff] = {}
        # Place of each copy that has no answer.
        self._unanswered: dict[Delivery, Place] = {}
        # Why the last copy is not confirmed, by place; of all delay queues of a source together.
        self._errors: dict[Place, RedeliveryError] = {}

    def of(self, place: Place) -> CopyBackOff:
        """Return those of one place."""
        found = self._places.get(place)
        if found is None:
            found = self._places[place] = CopyBackOff()
        return found

    @property
    def error(self) -> RedeliveryError | None:
        """Why the last copy to a place is not confirmed; None: all places have confirmed theirs."""
        return next(iter(self._errors.values()), None)

    def waits_until(self, place: Place, now: float) -> float | None:
        """Return when a copy may be sent to a place; None: now.

        A place that has refused the last one gets one copy at a time: each refusal may cost a connection.
        """
        latest: float | None = None
        for each in _levels(place):
            state = self._places.get(each)
            if state is None:
                continue
            until = state.waits_until(now)
            if until is None and state.error is not None and self._awaited(each):
                until = now + FIRST
            if until is not None:
                latest = until if latest is None else max(latest, until)
        return latest

    def _awaited(self, place: Place) -> bool:
        """Return True if a copy to a place has no answer."""
        return any(place in _levels(each) for each in self._unanswered.values())

    def sent(self, delivery: Delivery, place: Place) -> None:
        """Note that a copy of this delivery, or its poison acknowledgement, is sent."""
        self._unanswered[delivery] = place
        for each in _levels(place):
            self.of(each).sent()

    def confirmed(self, delivery: Delivery) -> None:
        """Note that the broker has confirmed a copy."""
        # A place that takes copies needs no memory: there are as many as origins of redriven messages.
        for each in _levels(self._unanswered.pop(delivery, None)):
            self._places.pop(each, None)
            self._errors.pop(each, None)

    def refused(self, delivery: Delivery, error: RedeliveryError, now: float) -> CopyBackOff:
        """Note that the broker has refused a copy; return the state of its place."""
        place = self._unanswered.pop(delivery, None)
        state = self.of(place)
        state.refused(error, now)
        # Not a refusal by the other delay queues: their copies go on.
        self._errors[_levels(place)[0]] = error
        return state

    def forget(self, delivery: Delivery) -> None:
        """Forget a delivery that the broker has taken back."""
        self._unanswered.pop(delivery, None)

    def lost(self, now: float) -> list[tuple[Delivery, CopyBackOff]]:
        """Note a lost connection; return one unanswered delivery for each place whose next copies wait."""
        first: dict[Place, Delivery] = {}
        for delivery, place in self._unanswered.items():
            for each in _levels(place):
                first.setdefault(each, delivery)
        self._unanswered.clear()
        # A delivery may be the first of its delay queue and of all of them: the log reports it once.
        waiting: dict[Delivery, CopyBackOff] = {}
        for place, state in self._places.items():
            losses = state.lost(now)
            until = state.waits_until(now)
            if until is not None and place in first:
                error = TransportError(f"{losses} connections in a row were lost before it was confirmed")
                state.error = state.error or error
                self._errors.setdefault(_levels(place)[0], state.error)
                other = waiting.get(first[place])
                if other is None or (other.waits_until(now) or now) < until:
                    waiting[first[place]] = state
        return list(waiting.items())

    def closed(self) -> None:
        """Note that the connection ends without being lost."""
        self._unanswered.clear()
        for state in self._places.values():
            state.closed()


def _levels(place: Place) -> tuple[Place, ...]:
    """Return a place; before a delay queue, all delay queues of its source."""
    return ((*place[:2], 0), place) if place is not None and place[2] else (place,)


class CopyBackOff:
    """Refusals and losses of the copies to one place. Times are of any steady clock, in seconds."""

    __slots__ = ("_losses", "_refusals", "_refused", "_reported", "_sent", "_until", "error")

    def __init__(self) -> None:
        # True if a copy was sent over this connection, and none was confirmed after it.
        self._sent = self._refused = False
        self._losses = self._refusals = 0
        self._until = self._reported = -inf
        # Why the last copy is not confirmed; None: the last answer was a confirmation.
        self.error: RedeliveryError | None = None

    def waits_until(self, now: float) -> float | None:
        """Return when copies may be sent again; None: now."""
        return self._until if now < self._until else None

    def sent(self) -> None:
        """Note that a copy is sent."""
        self._sent = True

    def refused(self, error: RedeliveryError, now: float) -> None:
        """Note that the broker has refused one: if it closes the connection now, that is the reason."""
        self._refused, self.error = True, error
        # Many that were sent together are refused together: that is one try.
        if now >= self._until:
            self._refusals += 1
            self._until = now + back_off(self._refusals)

    def lost(self, now: float) -> int:
        """Note a lost connection; return how many in a row were lost after a copy, 0 if copies need not wait."""
        if not self._sent:
            return 0
        self._losses = max(self._losses + 1, LOSSES if self._refused else 1)
        self._sent = self._refused = False
        if self._losses < LOSSES:
            return 0
        self._until = now + back_off(self._losses - LOSSES + 1)
        return self._losses

    def closed(self) -> None:
        """Note that the connection ends without being lost."""
        self._sent = self._refused = False

    def is_reported(self, now: float) -> bool:
        """Return True if a refusal was reported a short time ago; otherwise note that one is reported now."""
        if now < self._reported + REPORT:
            return True
        self._reported = now
        return False


# ---- Pending confirms ------------------------------------------------------------------------------------
# Poison acknowledgements and delayed copies that the broker has not confirmed: retried until confirmed.

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
        state: ConsumerState,
        dead_letters: DeadLetterRoute,
        asides: SetAsides,
        rescheduling: BrokerRedelivery | None = None,
    ) -> None:
        self._state, self._asides = state, asides
        self._dead_letters, self._rescheduling = dead_letters, rescheduling
        self._alarms: list[tuple[float, int, Delivery]] = []
        self._back_offs = CopyBackOffs()

    @property
    def error(self) -> RedeliveryError | None:
        """Reason why the last copy to a place is not confirmed; None: all places take copies."""
        return self._back_offs.error

    def begin(self, delivery: Delivery, record: Record, now: float) -> Sequence[Command]:
        """Send a poison acknowledgement, or a delayed copy; set a delivery aside if neither is possible."""
        state, able = self._state, self._state.capabilities
        assert able is not None, "a delivery cannot arrive before a connection"
        ways: DeadLetterRoute | BrokerRedelivery = self._dead_letters
        due = record.returns
        if due is not None and self._rescheduling is not None:
            native = able.reschedule == "native"
            if due < now and not self._rescheduling.takes(delivery, now + state.wall_offset, native=native):
                # It has expired meanwhile, in an outage or between refusals. The broker would drop the copy.
                record.returns, record.cause = None, EXPIRED
            else:
                ways = self._rescheduling
        if ways is self._dead_letters:
            record.poisoned = True
        state.in_doubt.discard(delivery)
        command = ways.command(delivery, record, able, state.wall_offset, now)
        if isinstance(command, Accept):
            state.counts.discarded += 1
            delivery.outcome = "discarded"
            self._settle(delivery)
            return (command, Dropped(delivery, record.cause or UNKNOWN))
        if isinstance(command, Reschedule):
            return self._gave_back(command, record, now)
        if isinstance(command, Stop | SetAside):
            state.settling.discard(delivery)
            return (command,) if isinstance(command, Stop) else self._asides.take(command, record, now)
        state.settling.add(delivery)
        enter(delivery, "settling")
        place = _copy_place(command, able) if isinstance(command, Forward) else None
        if (until := self._back_offs.waits_until(place, now)) is not None:
            self._alarm(delivery, record, until)
            return (Postponed(command, until - now),)
        self._back_offs.sent(delivery, place)
        state.in_doubt.add(delivery)
        if record.unheard and record.name is not None and not record.poisoned:
            # It may be at the broker already, unless the broker drops second copies itself.
            if able.marks and not able.drops_second_copy:
                state.history.sent_again(record.name, (record.returns or now) + ACKNOWLEDGED)
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
        self._rescheduling.gave_back(self._state.history, command, record, now)
        # An equal message that was accepted is another message.
        self._state.history.gave_back(delivery)
        self._settle(delivery)
        return (command,)

    def confirmed(self, event: Confirmed, now: float) -> Sequence[Command]:
        """Process the broker's answer: settle the delivery, retry later, or set it aside.

        It is set aside if it can never be copied over this protocol; without room for that, the consumer stops.
        """
        delivery, error, state = event.delivery, event.error, self._state
        record = delivery.record
        if delivery.state != "settling" or record is None:
            return ()
        state.in_doubt.discard(delivery)
        if error is not None and event.final:
            state.settling.discard(delivery)
            return self._asides.take(SetAside(delivery, error), record, now)
        if error is not None:
            # Of copies over a connection of their own no answer is a lost one: the broker may have taken this copy.
            if isinstance(error, TransportError) and not isinstance(error, BrokerUnavailable):
                record.unheard = True
            place = self._back_offs.refused(delivery, error, now)
            delay = back_off(record.tries)
            self._alarm(delivery, record, now + delay)
            return (Refused(delivery, error, delay, again=place.is_reported(now)),)
        self._back_offs.confirmed(delivery)
        # Its first copy was confirmed: this one is a duplicate, which the broker may drop.
        if record.confirmed:
            state.counts.deduplicated += 1
        else:
            if record.poisoned:  # not a delayed copy
                state.counts.poisoned += 1
            record.confirmed = record.unheard = True
        self._settle(delivery)
        if not record.copied:
            state.history.poisoned(delivery, record, now + STORED)
            return ()
        able = state.capabilities
        if able is None or (able.forward if record.poisoned else able.reschedule) == "atomic":
            return ()
        # The copy is confirmed; the original is not acknowledged yet. Its acknowledgement may be lost with the
        # connection, or with a broker that then sets no redelivered flag: it is copied again, not handled again.
        state.history.poisoned(delivery, record, now + ACKNOWLEDGED)
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
            if delivery in self._state.in_doubt:
                yield Unanswered(delivery, CONFIRM_TIMEOUT)
            else:
                yield delivery, record

    def next_alarm(self) -> float | None:
        """Return when `tick` is due; None: no alarm is set."""
        alarms = self._alarms[0][0] if self._alarms else None, self._asides.next_alarm()
        return min((at for at in alarms if at is not None), default=None)

    def taken_back(self, deliveries: Sequence[Delivery]) -> None:
        """Forget the places of copies whose originals the broker takes back unsettled."""
        for delivery in deliveries:
            if delivery.state != "settled":
                self._back_offs.forget(delivery)

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

    def lost(self) -> None:
        """Forget all alarms: the connection is gone. The verdicts stay in the records."""
        for delivery in self._state.in_doubt:
            if delivery.record is not None:
                delivery.record.unheard = True
        self._asides.lost()
        self._alarms.clear()

    def _alarm(self, delivery: Delivery, record: Record, at: float) -> None:
        record.due = at
        heappush(self._alarms, (at, delivery.seq, delivery))

    def _settle(self, delivery: Delivery) -> None:
        enter(delivery, "settled")
        self._state.settling.discard(delivery)
        self._state.flow.settled += 1


def _copy_place(command: Forward, capabilities: Capabilities) -> Place:
    """Return where a copy goes."""
    copy, queue = command.copy, 0
    if copy.delay is not None and capabilities.delay_digits is not None:
        queue = capabilities.delay_ms(copy.delay)
    return copy.destination, copy.delay is not None, queue


# ---- Set aside -------------------------------------------------------------------------------------------
# Messages that are set aside: poison that cannot be dead-lettered, and messages that the broker cannot settle.
#
# They stay unacknowledged at the broker and are not dispatched. All other messages are handled.

REMINDER = 3600.0
"""Seconds after which the log reports a message again that is set aside."""


class SetAsides:
    """Messages that one consumer has set aside on its connection: at most `maximum`; one more stops the consumer.

    A message is recognised by its record, as poison is: over any number of connections it is counted and reported once.
    """

    def __init__(self, state: ConsumerState, maximum: int) -> None:
        self._state, self._maximum = state, maximum
        # Time, a number, True if the delivery is then released (otherwise: reported again), and the delivery.
        self._alarms: list[tuple[float, int, bool, Delivery]] = []
        self._numbers = count()

    @property
    def sorts(self) -> bool:
        """True if deliveries may arrive that cannot be settled."""
        able = self._state.capabilities
        return able is not None and able.unsettleable

    def sorted_out(
        self, deliveries: Sequence[Delivery], now: float
    ) -> tuple[Sequence[Delivery], Sequence[tuple[SetAside, Record]]]:
        """Return the deliveries that can be settled; and commands, with records, that set the others aside."""
        state, able = self._state, self._state.capabilities
        found = [delivery for delivery in deliveries if delivery.settleable or delivery.epoch != state.epoch]
        if able is None or len(found) == len(deliveries):
            return deliveries, ()
        others = [each for each in deliveries if not each.settleable and each.epoch == state.epoch]
        state.flow.arrived += len(others)
        age = now - state.since
        return found, [(_unsettleable(each, able.broker), self._recalled(each, age)) for each in others]

    def _recalled(self, delivery: Delivery, age: float) -> Record:
        history = self._state.history
        record = history.known(delivery, age)
        if record is not None and record.copy is delivery:
            # A handler has the message from a lost connection. This delivery cannot be accepted for it.
            history.let_wait(record)
            record = None
        delivery.record = record or Record()
        return delivery.record

    def take(self, command: SetAside, record: Record, now: float) -> Sequence[Command]:
        """Set a delivery aside; above the maximum return `Stop` instead."""
        state, delivery, held = self._state, command.delivery, len(self._state.aside)
        if held >= self._maximum:
            many = f"; {held} others are set aside already (redelivery.maximumSetAside)" if held else ""
            return (Stop(AdapterError(f"{command.error}{many}")),)
        enter(delivery, "aside")
        state.aside[delivery] = command.error
        state.flow.set_aside(1)
        again = record.aside is not None
        if record.aside is None:
            state.counts.set_aside += 1
            record.aside = now + REMINDER
        self._alarm(record.aside, delivery)
        able = state.capabilities
        if able is not None and able.release and able.most_delay is not None:
            # Otherwise the broker would close the connection over it, or the channel with all its unsettled messages.
            self._alarm(now + max(0.0, able.most_delay - record.held), delivery, release=True)
        return (SetAside(delivery, command.error, again),)

    def tick(self, now: float) -> list[Command]:
        """Return the due commands: reminders for the log, and releases of messages that must not stay any longer."""
        state = self._state
        commands: list[Command] = []
        while self._alarms and self._alarms[0][0] <= now:
            at, _, release, delivery = heappop(self._alarms)
            error, record = state.aside.get(delivery), delivery.record
            if error is None or record is None:
                continue
            if not release:
                record.aside = max(at, now - REMINDER) + REMINDER
                self._alarm(record.aside, delivery)
                commands.append(StillAside(delivery, error))
                continue
            # The broker redelivers it at once, as another delivery, and it is set aside again by its record.
            del state.aside[delivery]
            state.flow.set_aside(-1)
            state.history.gave_back(delivery, record)
            enter(delivery, "settled")
            commands.append(Release((delivery,)))
        return commands

    def next_alarm(self) -> float | None:
        """Return when `tick` is due; None: no alarm is set."""
        return self._alarms[0][0] if self._alarms else None

    def lost(self) -> None:
        """Forget all alarms: the connection is gone."""
        self._alarms.clear()

    def _alarm(self, at: float, delivery: Delivery, *, release: bool = False) -> None:
        heappush(self._alarms, (at, next(self._numbers), release, delivery))


def _unsettleable(delivery: Delivery, broker: str) -> SetAside:
    """Return the command for a delivery that the broker cannot settle."""
    named = printable_id(delivery.message_id)
    return SetAside(
        delivery,
        AdapterError(
            f"{broker} cannot settle a message from {delivery.destination} over this protocol, because its producer "
            f"gave it an id ({named}). It stays on the broker, unacknowledged: consume this destination over AMQP, "
            f"or move the message: {move_command(delivery.destination, delivery.message_id)}"
        ),
    )
