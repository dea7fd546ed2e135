"""What the broker still has of rows: unacknowledged messages, and what was decided of those yet to come again.

By the places of rows: their ids need not differ.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redelivery.core.dead_lettering.routing import arrived_whole
from redelivery.core.message_history import RETURN
from redelivery.errors import RedeliveryError

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from redelivery.core.commands import Forward
    from redelivery.core.delivery import Cause, Delivery
    from redelivery_spark.stream.rows import LoggedDelivery
    from redelivery_spark.stream.source_connection import SourceConnection
    from redelivery_spark.wal.wal_state import Place

__all__ = ["UnackedMessages"]

logger = logging.getLogger("redelivery.spark")


@dataclass(slots=True)
class _Poisoned:
    """A row that is poison, and its message, if that is here. `since`: when it was last known to be on its way."""

    row: LoggedDelivery
    cause: Cause
    done: Callable[[RedeliveryError | None], None]
    since: float
    delivery: Delivery | None = None

    def safe(self) -> bool:
        """Whether the broker has confirmed its dead letter, of this message or of a copy that came later."""
        delivery = self.delivery
        if delivery is None:
            return False
        return delivery.state == "settled" or (delivery.record is not None and delivery.record.confirmed)


class UnackedMessages:
    """Messages that the broker keeps until their rows are done with. One thread."""

    def __init__(self, intake: SourceConnection) -> None:
        self._intake = intake
        self._kept: dict[Place, Delivery] = {}
        self._poisoned: dict[Place, _Poisoned] = {}
        self.ended: set[Place] = set()
        """Rows whose messages have been dead-lettered, until that is written down."""

    def __contains__(self, place: Place) -> bool:
        """Whether the message of a row is here: over a connection that is gone it is not, and comes again."""
        delivery = self._kept.get(place)
        return delivery is not None and self._intake.on_this_connection(delivery)

    def had(self, place: Place) -> bool:
        """Whether the message of a row need not come again: it is here, or has been dead-lettered."""
        return place in self or place in self.ended

    @property
    def awaited(self) -> bool:
        """Whether something has been decided of messages that have yet to come again."""
        return any(each.delivery is None for each in self._poisoned.values())

    def keep(self, place: Place, delivery: Delivery) -> None:
        """Leave a message unacknowledged until its row is done with, which it may be already."""
        poisoned = self._poisoned.get(place)
        if poisoned is None:
            self._kept[place] = delivery
        else:
            self._refuse(poisoned, delivery)

    def accept_all_but(self, held: Container[Place]) -> None:
        """Accept the messages of rows that are done with: of all that are not in `held`."""
        if self._kept:
            done = [place for place in self._kept if place not in held]
            self._intake.settle([self._kept.pop(place) for place in done])

    # What the redeliveries ask for.

    def poison(
        self, row: LoggedDelivery, cause: Cause, done: Callable[[RedeliveryError | None], None]
    ) -> None:
        """Have the broker dead-letter the message of a row: now, or when it comes again.

        `done` is called once the broker has confirmed that; or with an error when it does not come: then the row is all
        that is left.
        """
        poisoned = self._poisoned[row.place] = _Poisoned(row, cause, done, self._intake.now())
        delivery = self._kept.pop(row.place, None)
        if delivery is not None:
            self._refuse(poisoned, delivery)

    def forward(self, command: Forward, done: Callable[[RedeliveryError | None], None]) -> None:
        """Send the copy; `done` is called, on any thread, when the broker has answered."""
        self._intake.forward(command, done)

    def pump(self) -> None:
        """See which dead letters are safe, and which messages do not come any more."""
        if not self._poisoned:
            return
        for poisoned in list(self._poisoned.values()):
            if poisoned.safe():
                self._end(poisoned, None)
            elif self._lost(poisoned):
                self._give_up(poisoned)

    def _refuse(self, poisoned: _Poisoned, delivery: Delivery) -> None:
        poisoned.delivery = delivery
        self._intake.refuse(delivery, poisoned.cause)

    def _lost(self, poisoned: _Poisoned) -> bool:
        """Whether a connection has stood for as long as a broker takes to send again what it has."""
        intake, delivery = self._intake, poisoned.delivery
        here = delivery is not None and (intake.on_this_connection(delivery) or intake.unconfirmed)
        age, now = intake.age(), intake.now()
        if here or age is None:
            poisoned.since = now
            return False
        return min(age, now - poisoned.since) >= RETURN

    def _give_up(self, poisoned: _Poisoned) -> None:
        row = poisoned.row
        if arrived_whole(row, empty_is_whole=self._intake.empty_is_whole):
            row.without_original()
            self._end(poisoned, RedeliveryError("its message has not come again; a copy is sent"))
            return
        logger.error(
            "%s: %s is poison, but did not arrive whole, and the broker has not sent it again: it is a dead letter "
            "already, or another consumer has it",
            row.destination,
            row.message_id,
        )
        self._end(poisoned, None)

    def _end(self, poisoned: _Poisoned, error: RedeliveryError | None) -> None:
        del self._poisoned[poisoned.row.place]
        if error is None:
            self.ended.add(poisoned.row.place)
        poisoned.done(error)
