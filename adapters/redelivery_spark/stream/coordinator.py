"""Composes batches, settles them, and replays those that failed. Its walks are in docs/design-spark.md."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import pyarrow as pa

from redelivery.core.delivery import Cause
from redelivery.errors import ConfigurationError, RedeliveryError, TransportError
from redelivery_spark.executors.share import Share
from redelivery_spark.schema import SEGMENT
from redelivery_spark.stream.available_now import LAST_CALL, LONGEST_DRAIN, AvailableNow
from redelivery_spark.stream.bisection import suspicious
from redelivery_spark.stream.new_messages import NewMessages
from redelivery_spark.stream.row_ids import named
from redelivery_spark.stream.rows import batch_of, table_of
from redelivery_spark.wal.arrow_files import empty
from redelivery_spark.wal.segments import NO_SHARES, Shares, sliced

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery_spark.options.stream_options import SourceOptions
    from redelivery_spark.stream.journal import Journal
    from redelivery_spark.stream.new_messages import FreshMessage
    from redelivery_spark.stream.rows import LoggedDelivery
    from redelivery_spark.stream.source_connection import SourceConnection

__all__ = ["Coordinator", "Slice"]

logger = logging.getLogger("redelivery.spark")
Slice = tuple[str, int, int]
"""The file of a batch, and the rows of it that one task reads."""
# Bytes of the bodies that wait: they are in memory.
MOST_WAITING = 256 << 20
# Seconds of a turn that waits for the end of what is available.
SHORTEST_WAIT = 0.05


class Coordinator:
    """One query's side of one log. All methods are called on one thread, Spark's own."""

    def __init__(
        self, options: SourceOptions, intake: SourceConnection, journal: Journal, unlock: Callable[[], None]
    ) -> None:
        self._options = options
        self._intake = intake
        self._journal = journal
        self._clock = intake.clock
        self._unlock = unlock
        self._parent = os.getppid()
        # The batch that Spark has been given last, or has been seen to replay.
        self._given: int | None = None
        self._fresh = NewMessages(options, intake, journal)
        # Who may compose the next batch, in order.
        self._turns = [self._group, self._due, self._suspect]
        # The newest batch, if its messages could not be acknowledged.
        self._unread: tuple[int, ...] = ()
        # Whether so much waits that nothing fresh is taken.
        self._full = False

    @property
    def log(self) -> str:
        """The identity of the log."""
        return self._journal.state.log

    # Spark asks.

    def latest(self, start: int, most: int) -> int:
        """Settle all batches up to `start`, and return the number of the next one, or `start` if there is none.

        Raises:
            RedeliveryError: the query cannot go on.
        """
        journal = self._journal
        journal.settle(start)
        self._given = start + 1
        if journal.segments.exists(start + 1):
            # Published before a crash, and never given to Spark.
            return start + 1
        until = self._clock.monotonic() + LAST_CALL
        composed = self._step(start + 1, most)
        while not composed and self._fresh.available is not None and not self._finished(until):
            composed = self._step(start + 1, most)
        return start + 1 if composed else start

    def available_now(self) -> None:
        """Learn that the query is to end when what is there now has been processed."""
        self._fresh.available = AvailableNow(self._clock)

    def slices(self, number: int) -> list[Slice]:
        """Return what the tasks of a batch read. Spark asks for one that it was not given here when it replays it."""
        journal = self._journal
        if self._given != number:
            self._given = number
            self._replay(number)
        if journal.state.emptied == number:
            return []
        name = journal.segments.name(number)
        slices = [(name, begin, end) for begin, end in journal.segments.slices(number)]
        # Tasks do not consume any more, once the query was started without: they get what others have taken.
        return slices if self._options.shares else slices + journal.segments.taken(number)

    def shares(self, number: int) -> list[Share]:
        """Return what tasks of a batch take from the broker themselves; to be asked after `slices`."""
        if self._journal.state.emptied == number or not self._options.shares:
            return []
        tasks, most, size = self._journal.segments.shares(number)
        # A batch that was found is given out before anything is taken.
        self._fresh.look()
        doubtful = tuple({*self._journal.copies.batches, *self._unread})
        return [Share(self._options, self.log, number, part, most, size, doubtful) for part in range(tasks)]

    def check_new(self) -> None:
        """Refuse a log that has gone on, for a query that begins. Raises ConfigurationError."""
        settled = max(self._journal.state.settled, self._journal.segments.newest - 1)
        if settled > 0:
            raise ConfigurationError(
                f"walDir holds the log of a query that has come to batch {settled}, and this query begins with a new "
                "checkpoint: give the old one, or a new walDir",
                option="walDir",
            )

    def close(self) -> None:
        """Leave: the broker takes back what has not been settled."""
        self._intake.close()
        self._unlock()

    def report(self) -> dict[str, object] | None:
        """Return what a query's progress shows of the source, once it has begun."""
        journal, number = self._journal, self._given
        if number is None:
            return None
        waiting, isolation = journal.redeliveries, journal.isolation
        return {
            "n": number,
            "log": journal.state.log,
            "buffered": self._intake.buffered + len(self._fresh),
            "parked": waiting.engine.load.parked,
            "suspects": isolation.rows + waiting.suspects,
            "full": self._full,
            **waiting.added_to(journal.state.totals),
        }

    # A new batch.

    def _step(self, number: int, most: int) -> bool:
        journal = self._journal
        journal.originals.pump()
        journal.redeliveries.pump()
        composed = self._compose(number, most)
        if journal.redeliveries.changed:
            journal.save()
            journal.release()
        return composed

    def _compose(self, number: int, most: int) -> bool:
        """Let one of those compose a batch who have something for it: they take turns."""
        journal, waiting = self._journal, self._journal.redeliveries
        due = waiting.next_due()
        patience = self._options.wait
        if self._fresh.available is not None:
            patience = max(patience, SHORTEST_WAIT)
            if self._shared():
                self._fresh.available.go_on()
        if journal.isolation.groups or waiting.suspects or self._may_be_fresh() or self._shared():
            patience = 0.0
        # One is enough to know that there are some, where tasks take them; silence over a full credit tells nothing.
        self._fresh.gather(
            1 if self._options.shares else most, patience if due is None else min(patience, due)
        )
        # Who is due may turn out to be a suspect.
        for turn in (*self._turns, self._suspect):
            if turn(number, most):
                self._turns.remove(turn)
                self._turns.append(turn)
                return True
        return False

    def _group(self, number: int, most: int) -> bool:
        """Have a group of suspects be the batch."""
        del most
        groups = self._journal.isolation.groups
        return bool(groups) and self._publish(number, self._journal.group(groups[0]))

    def _suspect(self, number: int, most: int) -> bool:
        """Have one row be the batch that has been alone in one that failed."""
        del most
        waiting = self._journal.redeliveries
        alone = waiting.take_alone() if waiting.suspects else None
        return alone is not None and self._publish(number, [alone])

    def _due(self, number: int, most: int) -> bool:
        """Have rows whose time has come be the batch, and fresh messages."""
        most_bytes = self._options.most_bytes
        due = self._journal.redeliveries.take(most, most_bytes)
        left = most_bytes - sum(len(row.body) for row in due)
        has_room = self._has_room()
        fresh = self._fresh.take(most - len(due), left) if has_room else []
        if not (due or fresh or (has_room and self._shared())):
            return False
        room = most - len(due) - len(fresh) if has_room and self._options.shares else 0
        left -= sum(len(each.delivery.body) for each in fresh)
        tasks = min(self._options.partitions, room, max(0, left))
        shares = Shares(tasks, room // tasks, left // tasks) if tasks else NO_SHARES
        return self._publish(number, due, fresh, shares)

    def _shared(self) -> bool:
        """Whether tasks that consume for themselves have had messages lately, so that there may be more."""
        times, available = self._journal.shared, self._fresh.available
        return len(times) > 0 and (available is None or available.wants(times))

    def _may_be_fresh(self) -> bool:
        return len(self._fresh) > 0 and self._has_room()

    def _has_room(self) -> bool:
        """Whether fresh messages may be taken, which may fail and have to wait."""
        journal, most = self._journal, self._intake.most_parked
        parked = journal.redeliveries.engine.load.parked + journal.isolation.rows
        size = sum(len(row.body) for row in journal.waiting())
        if parked < most and size < MOST_WAITING:
            self._full = False
        elif not self._full:
            self._full = True
            logger.warning(
                "%d messages of %d bytes wait for a redelivery: nothing fresh is taken until there are fewer than %d "
                "(redelivery.maxParked), of less than %d bytes",
                parked,
                size,
                most,
                MOST_WAITING,
            )
        return not self._full

    def _publish(
        self,
        number: int,
        known: Sequence[LoggedDelivery],
        fresh: Sequence[FreshMessage] = (),
        shares: Shares = NO_SHARES,
    ) -> bool:
        """Write the batch; then the broker may let go of what is in it. `shares`: what tasks take besides."""
        journal, intake, options = self._journal, self._intake, self._options
        deliveries = [each.delivery for each in fresh]
        stay = [intake.must_stay(delivery) for delivery in deliveries]
        parts = [table_of(known, options)] if known else [empty()]
        if fresh:
            names = named(deliveries, journal.names(), f"{journal.state.log}/{number}")
            texts, errors = [each.text for each in fresh], [each.error for each in fresh]
            parts.append(pa.Table.from_batches([batch_of(deliveries, names, stay, texts, errors)], SEGMENT))
        table = pa.concat_tables(parts)
        if not journal.segments.publish(number, sliced(table, options.partitions, shares)):
            raise RedeliveryError(f"batch {number} is in the log already: is another query using it?")
        journal.began(number, table, known)
        for at, delivery in enumerate(deliveries):
            if stay[at]:
                journal.originals.keep((number, len(known) + at), delivery)
        let_go = [delivery for at, delivery in enumerate(deliveries) if not stay[at]]
        intake.settle(let_go)
        self._unread = () if all(each.outcome == "accepted" for each in let_go) else (number,)
        return True

    def _finished(self, until: float) -> bool:
        """Whether AvailableNow has nothing more to wait for, or has waited long enough."""
        if os.getppid() != self._parent:
            # Spark has been killed: nobody waits for an answer.
            return True
        journal, waiting, available = self._journal, self._journal.redeliveries, self._fresh.available
        if self._clock.monotonic() >= until:
            if not self._intake.connected:
                raise TransportError(f"AvailableNow: there has been no connection for {LAST_CALL:g} s")
            return True
        if (
            available is None
            or not available.exhausted
            or self._may_be_fresh()
            or waiting.engine.load.unconfirmed
        ):
            return False
        if journal.isolation.groups or waiting.suspects:
            return False
        due = waiting.next_due()
        return due is None or due > LONGEST_DRAIN

    # A batch again.

    def _replay(self, number: int) -> None:
        """Learn that Spark tries a batch once more: it failed, or its process died."""
        journal, state = self._journal, self._journal.state
        journal.resume(number)
        if state.emptied == number:
            return
        state.attempts += 1
        told = journal.records.failure()
        if suspicious(state.attempts, self._options.isolate_after, evidence=told is not None):
            cause = Cause.of(told or f"its batch failed {state.attempts} times")
            journal.isolate(number, cause, self._options.fanout)
        journal.save()
