"""Messages that are set aside: poison that cannot be dead-lettered, and messages that the broker cannot settle.

They stay unacknowledged at the broker and are not dispatched. All other messages are handled.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from redelivery.core.commands import Release, SetAside, StillAside, Stop
from redelivery.core.delivery import Record
from redelivery.core.printable import move_command, printable_id
from redelivery.core.transitions import enter
from redelivery.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Command
    from redelivery.core.credit import CreditWindow
    from redelivery.core.delivery import Delivery
    from redelivery.core.message_history import MessageHistory
    from redelivery.core.report import Counters
    from redelivery.errors import RedeliveryError

__all__ = ["REMINDER", "SetAsides"]

REMINDER = 3600.0
"""Seconds after which the log reports a message again that is set aside."""


class SetAsides:
    """Messages that one consumer has set aside on its connection: at most `maximum`; one more stops the consumer.

    A message is recognised by its record, as poison is: over any number of connections it is counted and reported once.
    """

    def __init__(
        self, maximum: int, max_parked: int, history: MessageHistory, counts: Counters, flow: CreditWindow
    ) -> None:
        self._maximum = maximum
        self._max_parked = max_parked
        self._history = history
        self._counts = counts
        self._flow = flow
        self._held: dict[Delivery, RedeliveryError] = {}
        # Time, a number, True if the delivery is then released (otherwise: reported again), and the delivery.
        self._alarms: list[tuple[float, int, bool, Delivery]] = []
        self._numbers = count()
        self._capabilities: Capabilities | None = None
        self.sorts = False
        """True if deliveries may arrive that cannot be settled."""

    def __len__(self) -> int:
        return len(self._held)

    def share(self, history: MessageHistory) -> None:
        """Share the memory of all consumers of the source."""
        self._history = history

    def connected(self, capabilities: Capabilities) -> None:
        """Note the capabilities of the broker."""
        self._capabilities = capabilities
        self.sorts = capabilities.unsettleable

    @property
    def most_parked(self) -> int:
        """Number of messages that may also be parked, where all unsettled messages share one window.

        A window that does not grow has a fixed size, and so has a limit of the broker.
        """
        able = self._capabilities
        if not self._held or able is None:
            return self._max_parked
        shared = able.max_unacknowledged is not None or not (able.flow or able.grows)
        return max(1, self._max_parked - len(self._held)) if shared else self._max_parked

    def sorted_out(
        self, deliveries: Sequence[Delivery], epoch: int, age: float
    ) -> tuple[Sequence[Delivery], Sequence[tuple[SetAside, Record]]]:
        """Return the deliveries that can be settled; and commands, with records, that set the others aside.

        `epoch`, `age`: of the connection; the age as in `MessageHistory.known`.
        """
        able = self._capabilities
        found = [delivery for delivery in deliveries if delivery.settleable or delivery.epoch != epoch]
        if able is None or len(found) == len(deliveries):
            return deliveries, ()
        others = [each for each in deliveries if not each.settleable and each.epoch == epoch]
        self._flow.arrived += len(others)
        return found, [(_unsettleable(each, able.broker), self._recalled(each, age)) for each in others]

    def _recalled(self, delivery: Delivery, age: float) -> Record:
        record = self._history.known(delivery, age)
        if record is not None and record.copy is delivery:
            # A handler has the message from a lost connection. This delivery cannot be accepted for it.
            self._history.let_wait(record)
            record = None
        delivery.record = record or Record()
        return delivery.record

    def take(self, command: SetAside, record: Record, now: float) -> Sequence[Command]:
        """Set a delivery aside; above the maximum return `Stop` instead."""
        delivery, held = command.delivery, len(self._held)
        if held >= self._maximum:
            many = f"; {held} others are set aside already (redelivery.maximumSetAside)" if held else ""
            return (Stop(AdapterError(f"{command.error}{many}")),)
        enter(delivery, "aside")
        self._held[delivery] = command.error
        self._flow.set_aside(1)
        again = record.aside is not None
        if record.aside is None:
            self._counts.set_aside += 1
            record.aside = now + REMINDER
        self._alarm(record.aside, delivery)
        able = self._capabilities
        if able is not None and able.release and able.most_delay is not None:
            # Otherwise the broker would close the connection over it, or the channel with all its unsettled messages.
            self._alarm(now + max(0.0, able.most_delay - record.held), delivery, release=True)
        return (SetAside(delivery, command.error, again),)

    def tick(self, now: float) -> list[Command]:
        """Return the due commands: reminders for the log, and releases of messages that must not stay any longer."""
        commands: list[Command] = []
        while self._alarms and self._alarms[0][0] <= now:
            at, _, release, delivery = heappop(self._alarms)
            error, record = self._held.get(delivery), delivery.record
            if error is None or record is None:
                continue
            if not release:
                record.aside = max(at, now - REMINDER) + REMINDER
                self._alarm(record.aside, delivery)
                commands.append(StillAside(delivery, error))
                continue
            # The broker redelivers it at once, as another delivery, and it is set aside again by its record.
            del self._held[delivery]
            self._flow.set_aside(-1)
            self._history.gave_back(delivery, record)
            enter(delivery, "settled")
            commands.append(Release((delivery,)))
        return commands

    def next_alarm(self) -> float | None:
        """Return when `tick` is due; None: no alarm is set."""
        return self._alarms[0][0] if self._alarms else None

    def forget(self, delivery: Delivery) -> bool:
        """Remove a delivery that the broker has taken back; return True if it was set aside."""
        if self._held.pop(delivery, None) is None:
            return False
        self._flow.set_aside(-1)
        return True

    def lost(self) -> list[Delivery]:
        """Remove and return all deliveries: the connection is gone."""
        held = list(self._held)
        self._held.clear()
        self._alarms.clear()
        return held

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
