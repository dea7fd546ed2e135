"""Messages that are new to the log: taken, told from those that the broker sends again, and decoded."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from redelivery.clock import pass_time
from redelivery_spark.available import GAP, LONGEST_LINGER
from redelivery_spark.decoding import FreshMessage, read_message
from redelivery_spark.executors.recent import Recent
from redelivery_spark.executors.share import NOT_WHOLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.delivery import Delivery
    from redelivery_spark.available import AvailableNow
    from redelivery_spark.intake import Intake
    from redelivery_spark.journal import Journal
    from redelivery_spark.options import SourceOptions
    from redelivery_spark.rows import LoggedDelivery

__all__ = ["Fresh", "FreshMessage"]

logger = logging.getLogger("redelivery.spark")


class Fresh:
    """Takes messages ahead of batches: those that come again find their rows, whatever a batch has room for."""

    def __init__(self, options: SourceOptions, intake: Intake, journal: Journal) -> None:
        self._options = options
        self._intake = intake
        self._journal = journal
        self._ahead: deque[FreshMessage] = deque()
        self._later: list[Delivery] = []  # taken after the end of what was available: the next run's
        self.available: AvailableNow | None = None

    def __len__(self) -> int:
        """How many messages are here, for a batch."""
        return len(self._ahead)

    def gather(self, most: int, patience: float) -> None:
        """Take what has come, so that up to `most` are here; wait for a first one."""
        clock, available = self._intake.clock, self.available
        over = available is not None and available.exhausted
        room = most - len(self._ahead)
        if over:
            room = most - len(self._later) if self._journal.originals.awaited else 0
        if room <= 0:
            pass_time(clock, patience)
            return
        until = clock.monotonic() + LONGEST_LINGER
        while self._gathered(room, patience, over=over) and available is not None and not available.exhausted:
            # Only what comes without a gap shows that there is more: a busy producer need not pause for a batch.
            room, patience = most - len(self._ahead), GAP
            if room <= 0 or clock.monotonic() > until:
                return

    def _gathered(self, room: int, patience: float, *, over: bool) -> bool:
        """Take what has come; return whether anything has."""
        clock, available = self._intake.clock, self.available
        copies = self._journal.copies
        copies.look(clock.time(), self._missing)
        taken = self._intake.take(room, self._options.most_bytes, patience)
        copies.look(clock.time(), self._missing)
        if available is not None:
            available.saw(taken, self._intake.age())
        fresh = self._unknown(taken) if taken else taken
        if over:
            self._later += fresh
        else:
            self._ahead += self._decoded(fresh)
        return bool(taken)

    def take(self, most: int, most_bytes: int) -> list[FreshMessage]:
        """Return messages for a batch, up to these limits, but for the last one's bytes."""
        taken: list[FreshMessage] = []
        ahead = self._ahead
        while ahead and len(taken) < most and most_bytes > 0:
            taken.append(ahead.popleft())
            most_bytes -= len(taken[-1].delivery.body)
        return taken

    def _missing(self) -> list[LoggedDelivery]:
        """Return the rows that wait whose messages the broker has, and this connection has not brought."""
        journal = self._journal
        return [row for row in journal.waiting() if row.original and row.place not in journal.originals]

    def _of_tasks(self) -> Recent:
        """Return what may come again of what tasks have taken; of what came here, `copies` know."""
        journal = self._journal
        return Recent(journal.segments.store, journal.state.log, journal.segments.newest, ())

    def _unknown(self, taken: Sequence[Delivery]) -> Sequence[Delivery]:
        """Sort out what the broker sends again although the log has it."""
        intake, journal = self._intake, self._journal
        if not any(intake.may_be_known(delivery) for delivery in taken):
            return taken
        shared = self._of_tasks() if self._options.shares else None
        if shared is None and journal.copies.none:
            return taken
        waiting = {row.place: row for row in journal.waiting()}
        fresh: list[Delivery] = []
        again: list[Delivery] = []
        for delivery in taken:
            if shared is not None and intake.may_be_known(delivery) and shared.has(delivery):
                again.append(delivery)
                continue
            place = journal.copies.find(delivery)
            row = None if place is None else waiting.get(place)
            if place is None:
                fresh.append(delivery)
            elif journal.keeps(place) if row is None else row.original:
                journal.originals.keep(place, delivery)
            else:
                again.append(delivery)
        journal.state.totals["deduplicated"] += len(again)
        intake.settle(again)
        return fresh

    def _decoded(self, fresh: Sequence[Delivery]) -> list[FreshMessage]:
        options = self._options
        if options.shares:
            fresh = [delivery for delivery in fresh if not self._refused(delivery)]
        if not options.text:
            return [FreshMessage(delivery, None, None) for delivery in fresh]
        read = (read_message(delivery, options, self._intake.refuse) for delivery in fresh)
        kept = [message for message in read if message is not None]
        self._journal.state.totals["undecodable"] += len(fresh) - len(kept)
        return kept

    def _refused(self, delivery: Delivery) -> bool:
        """Have a message dead-lettered that would have to stay: two of those would be all that the driver may have."""
        if not self._intake.must_stay(delivery):
            return False
        self._intake.refuse(delivery, NOT_WHOLE)
        return True
