"""Messages that are new to the log: taken, told from those that the broker sends again, and decoded."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from redelivery.clock import pass_time
from redelivery_spark.executors.executor_duplicates import ExecutorDuplicates
from redelivery_spark.executors.share import NOT_WHOLE
from redelivery_spark.stream.available_now import GAP, LONGEST_LINGER
from redelivery_spark.stream.expected_body import FreshMessage, read_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.delivery import Delivery
    from redelivery_spark.options.stream_options import SourceOptions
    from redelivery_spark.stream.available_now import AvailableNow
    from redelivery_spark.stream.journal import Journal
    from redelivery_spark.stream.rows import LoggedDelivery
    from redelivery_spark.stream.source_connection import SourceConnection

__all__ = ["FreshMessage", "NewMessages"]

logger = logging.getLogger("redelivery.spark")


class NewMessages:
    """Takes messages ahead of batches: those that come again find their rows, whatever a batch has room for."""

    def __init__(self, options: SourceOptions, intake: SourceConnection, journal: Journal) -> None:
        self._options = options
        self._intake = intake
        self._journal = journal
        self._ahead: deque[FreshMessage] = deque()
        self._size = 0  # bytes of their bodies
        self._later: list[Delivery] = []  # taken after the end of what was available: the next run's
        self._epoch: int | None = None
        self.available: AvailableNow | None = None

    def __len__(self) -> int:
        """How many messages are here, for a batch."""
        return len(self._ahead)

    def gather(self, most: int, patience: float) -> None:
        """Take what has come, so that up to `most` are here; wait for a first one."""
        clock, available = self._intake.clock, self.available
        over = available is not None and available.exhausted
        room = self._room(most)
        if over:
            room = most - len(self._later) if self._journal.originals.awaited else 0
        if room <= 0:
            pass_time(clock, patience)
            return
        until = clock.monotonic() + LONGEST_LINGER
        while self._gathered(room, patience, over=over) and available is not None and not available.exhausted:
            # Only what comes without a gap shows that there is more: a busy producer need not pause for a batch.
            room, patience = self._room(most), GAP
            if room <= 0 or clock.monotonic() > until:
                return

    def look(self) -> None:
        """Look whether the connection is another one, over which messages may come again."""
        self._journal.copies.look(self._intake.clock.time(), self._missing)

    def _room(self, most: int) -> int:
        """How many messages may be taken ahead of a batch."""
        return most - len(self._ahead) if self._size < self._options.most_bytes else 0

    def _gathered(self, room: int, patience: float, *, over: bool) -> bool:
        """Take what has come; return whether anything has."""
        available = self.available
        self.look()
        taken = self._intake.take(room, self._options.most_bytes - self._size, patience)
        self.look()
        taken = self._on_this_connection(taken)
        if available is not None:
            available.saw(taken, self._intake.age())
        fresh: Sequence[Delivery] = self._unknown(taken) if taken else taken
        if over:
            self._later += fresh
        else:
            decoded = self._decoded(fresh)
            self._ahead += decoded
            self._size += sum(len(each.delivery.body) for each in decoded)
        return bool(taken)

    def _on_this_connection(self, taken: list[Delivery]) -> list[Delivery]:
        """Let go of what came over a connection that is gone: it comes again, and is known then if the log has it."""
        epoch = self._intake.epoch
        if epoch != self._epoch:
            self._epoch = epoch
            lost = [*(each.delivery for each in self._ahead), *self._later]
            self._intake.give_back(lost)
            self._ahead.clear()
            self._later.clear()
            self._size = 0
        self._intake.give_back([each for each in taken if each.epoch != epoch])
        return [each for each in taken if each.epoch == epoch]

    def take(self, most: int, most_bytes: int) -> list[FreshMessage]:
        """Return messages for a batch, up to these limits, but for the last one's bytes."""
        taken: list[FreshMessage] = []
        ahead = self._ahead
        while ahead and len(taken) < most and most_bytes > 0:
            taken.append(ahead.popleft())
            size = len(taken[-1].delivery.body)
            most_bytes -= size
            self._size -= size
        return taken

    def _missing(self) -> list[LoggedDelivery]:
        """Return the rows that wait whose messages the broker has, and this connection has not brought."""
        journal = self._journal
        return [row for row in journal.waiting() if row.original and row.place not in journal.originals]

    def _unknown(self, taken: Sequence[Delivery]) -> Sequence[Delivery]:
        """Sort out what the broker sends again although the log has it."""
        intake, journal = self._intake, self._journal
        if not any(intake.may_be_known(delivery) for delivery in taken):
            return taken
        if self._options.shares:
            fresh, again = self._unknown_to_all(taken)
        elif journal.copies.none:
            return taken
        else:
            fresh, again = self._unknown_here(taken)
        journal.state.totals["deduplicated"] += len(again)
        intake.settle(again)
        return fresh

    def _unknown_to_all(self, taken: Sequence[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
        """Tell what neither tasks nor the driver have taken before from what is to be accepted."""
        journal, intake = self._journal, self._intake
        recent = ExecutorDuplicates(
            journal.segments.store, journal.state.log, journal.segments.newest, journal.copies.batches
        )
        fresh: list[Delivery] = []
        again: list[Delivery] = []
        for delivery in taken:
            known = intake.may_be_known(delivery) and recent.claims(delivery)
            (again if known else fresh).append(delivery)
        return fresh, again

    def _unknown_here(self, taken: Sequence[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
        """Tell what is new from what is to be accepted; keep what is the original of a row that waits."""
        journal = self._journal
        waiting = {row.place: row for row in journal.waiting()}
        fresh: list[Delivery] = []
        again: list[Delivery] = []
        for delivery in taken:
            place = journal.copies.find(delivery)
            row = None if place is None else waiting.get(place)
            if place is None:
                fresh.append(delivery)
            elif journal.keeps(place) if row is None else row.original:
                journal.originals.keep(place, delivery)
            else:
                journal.expected.came(place)
                again.append(delivery)
        return fresh, again

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
