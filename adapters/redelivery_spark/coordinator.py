"""Composes batches, settles them, and replays those that failed. Its walks are in docs/design-spark.md."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyarrow as pa

from redelivery.clock import pass_time
from redelivery.core.delivery import Cause
from redelivery.errors import ConfigurationError, RedeliveryError
from redelivery_spark.decoding import decoded
from redelivery_spark.isolation import suspicious
from redelivery_spark.rows import batch_of, key_of, table_of
from redelivery_spark.schema import SEGMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.core.delivery import Delivery
    from redelivery_spark.intake import Intake
    from redelivery_spark.journal import Journal
    from redelivery_spark.options import SourceOptions
    from redelivery_spark.rows import LoggedDelivery

__all__ = ["Coordinator", "Slice"]

logger = logging.getLogger("redelivery.spark")
Slice = tuple[str, int, int]
"""The file of a batch, and the rows of it that one task reads."""
LONGEST_DRAIN = 60.0  # seconds that AvailableNow waits for redeliveries; later ones are for the next run


class Coordinator:
    """One query's side of one log. All methods are called on one thread, Spark's own."""

    def __init__(
        self, options: SourceOptions, intake: Intake, journal: Journal, unlock: Callable[[], None]
    ) -> None:
        self._options = options
        self._intake = intake
        self._journal = journal
        self._clock = intake.clock
        self._unlock = unlock
        self._given: int | None = None  # the batch that Spark has been given last, or has been seen to replay
        self._until: float | None = None  # of AvailableNow: what is sent later is for the next run
        self._exhausted = False  # of AvailableNow: all that was there has been taken

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
            return start + 1  # published before a crash, and never given to Spark
        composed = self._step(start + 1, most)
        while not composed and self._until is not None and not self._finished():
            composed = self._step(start + 1, most)
        return start + 1 if composed else start

    def available_now(self) -> None:
        """Learn that the query is to end when what is there now has been processed."""
        self._until = self._clock.time()

    def slices(self, number: int) -> list[Slice]:
        """Return what the tasks of a batch read. Spark asks for one that it was not given here when it replays it."""
        journal = self._journal
        if self._given != number:
            self._given = number
            self._replay(number)
        rows = 0 if journal.state.emptied == number else journal.segments.read(number).num_rows
        size = -(-rows // self._options.partitions)
        name = journal.segments.name(number)
        return [(name, at, min(at + size, rows)) for at in range(0, rows, size)] if rows else []

    def check_new(self) -> None:
        """Refuse a log that has gone on, for a query that begins. Raises ConfigurationError."""
        settled = max(self._journal.state.settled, max(self._journal.segments.numbers(), default=0) - 1)
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
            "buffered": self._intake.buffered,
            "parked": waiting.engine.parked,
            "suspects": isolation.rows + waiting.suspects,
            **journal.totals(),
        }

    # A new batch.

    def _step(self, number: int, most: int) -> bool:
        journal = self._journal
        journal.redeliveries.pump()
        composed = self._compose(number, most)
        if journal.redeliveries.changed:
            journal.save()
        return composed

    def _compose(self, number: int, most: int) -> bool:
        journal, waiting = self._journal, self._journal.redeliveries
        group = journal.isolation.next_group(others=waiting.next_due() == 0 or self._intake.buffered > 0)
        if group is not None:
            return self._publish(number, journal.group(group))
        if waiting.suspects:
            alone = waiting.take_alone()
            return alone is not None and self._publish(number, [alone])
        due = waiting.take(most)
        fresh, texts, errors = self._fresh(most - len(due), wait=not due)
        if not due and not fresh:
            return False
        rows = batch_of(fresh, f"{journal.state.log}/{number}", texts, errors)
        return self._publish(number, due, rows, fresh)

    def _publish(
        self,
        number: int,
        known: Sequence[LoggedDelivery],
        rows: pa.RecordBatch | None = None,
        fresh: Sequence[Delivery] = (),
    ) -> bool:
        """Write the batch; then the broker may let go of what is in it."""
        journal, intake = self._journal, self._intake
        parts = [table_of(known)] if known else []
        if rows is not None:
            parts.append(pa.Table.from_batches([rows], SEGMENT))
        table = pa.concat_tables(parts)
        if not journal.segments.publish(number, table):
            raise RedeliveryError(f"batch {number} is in the log already: is another query using it?")
        journal.began(number, table, known)
        kept = [at for at, delivery in enumerate(fresh) if intake.must_stay(delivery)]
        if kept:
            keys = journal.identities()[len(known) :]
            for at in kept:
                intake.keep(keys[at], fresh[at])
        stay = set(kept)
        intake.settle([delivery for at, delivery in enumerate(fresh) if at not in stay])
        return True

    def _fresh(self, most: int, *, wait: bool) -> tuple[list[Delivery], list[str | None], list[str | None]]:
        """Take messages that are new to the log, and can be decoded."""
        waiting = self._journal.redeliveries
        patience = self._options.wait if wait else 0.0
        due = waiting.next_due()
        if due is not None:
            patience = min(patience, due)
        parked = waiting.engine.parked + self._journal.isolation.rows
        if most <= 0 or self._exhausted or parked >= self._intake.most_parked:
            pass_time(self._clock, patience)
            return [], [], []
        taken = self._intake.take(most, self._options.most_bytes, patience)
        if self._until is not None and (not taken or any(self._late(each) for each in taken)):
            self._exhausted = bool(taken) or patience >= self._options.wait
        return self._decoded(self._unknown(taken))

    def _late(self, delivery: Delivery) -> bool:
        sent = delivery.timestamp
        return sent is not None and self._until is not None and sent.timestamp() > self._until

    def _finished(self) -> bool:
        """Whether AvailableNow has nothing more to wait for."""
        journal, waiting = self._journal, self._journal.redeliveries
        if not self._exhausted or journal.isolation.groups or waiting.suspects or waiting.engine.unconfirmed:
            return False
        due = waiting.next_due()
        return due is None or due > LONGEST_DRAIN

    def _unknown(self, taken: Sequence[Delivery]) -> list[Delivery]:
        """Sort out what the broker sends again although the log has it."""
        fresh: list[Delivery] = []
        again: list[Delivery] = []
        for delivery in taken:
            where = self._journal.knows(delivery)
            key = key_of(delivery)
            if self._intake.owes(key):
                self._intake.keep(key, delivery)
            elif where is None:
                fresh.append(delivery)
            elif where == "held" and self._intake.must_stay(delivery):
                self._intake.keep(key, delivery)
            else:
                again.append(delivery)
        if again:
            self._journal.state.totals["deduplicated"] += len(again)
            self._intake.settle(again)
        return fresh

    def _decoded(self, fresh: list[Delivery]) -> tuple[list[Delivery], list[str | None], list[str | None]]:
        options = self._options
        if not options.text:
            nothing: list[str | None] = [None] * len(fresh)
            return fresh, nothing, nothing
        kept: list[tuple[Delivery, str | None, str | None]] = []
        for delivery in fresh:
            text, error = decoded(delivery.body, options)
            if error is None or options.on_decode_error == "permissive":
                kept.append((delivery, text, error))
            elif options.on_decode_error == "fail":
                raise RedeliveryError(f"message {delivery.identity} of {delivery.destination} {error}")
            else:
                logger.warning("%s: %s: %s; dead-lettered", delivery.destination, delivery.identity, error)
                self._journal.state.totals["undecodable"] += 1
                self._intake.refuse(delivery, Cause.of(error))
        return [each[0] for each in kept], [each[1] for each in kept], [each[2] for each in kept]

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
            journal.isolate(
                number, Cause.of(told or f"its batch failed {state.attempts} times"), self._options.fanout
            )
        journal.save()
