"""A task's share of a batch: taken from the broker by one attempt, published by one, accepted by that one only."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from redelivery.errors import RedeliveryError, TransportError
from redelivery_spark.executors.executor_duplicates import ExecutorDuplicates
from redelivery_spark.executors.share import NOT_WHOLE
from redelivery_spark.schema import SEGMENT
from redelivery_spark.stream.expected_body import read_message
from redelivery_spark.stream.row_ids import named
from redelivery_spark.stream.rows import batch_of
from redelivery_spark.stream.source_connection import SourceConnection
from redelivery_spark.wal.arrow_files import empty, read_table
from redelivery_spark.wal.segments import segment_of
from redelivery_spark.wal.store import store_at
from redelivery_spark.wal.task_parts import TaskParts

if TYPE_CHECKING:
    from redelivery.core.delivery import Delivery
    from redelivery_spark.executors.share import Share
    from redelivery_spark.stream.expected_body import FreshMessage

__all__ = ["rows_of_share"]

logger = logging.getLogger("redelivery.spark")
# Seconds without a message after which a share that has some is enough.
LULL = 0.05
# Seconds for a first message: a connection that has just begun has none yet.
SHORTEST_WAIT = 0.2


def rows_of_share(share: Share) -> pa.Table:
    """Return the rows of a share: those in the log, or, if there are none yet, what the broker has.

    Each attempt of the task, and each action of the query on this batch, gets the same.

    Raises:
        RedeliveryError: the broker refuses; the log cannot be read; a body cannot be decoded, and that is to fail.
    """
    parts = TaskParts(store_at(share.options.wal_dir))
    name = parts.name(share.number, share.part)
    if name not in parts.of(share.number):
        _fill(share, parts, name)
    return read_table(parts.store, name)


def _fill(share: Share, parts: TaskParts, name: str) -> None:
    # A connection of its own: one that waited for the next task would hold messages that nobody asks for.
    # What it is sent when it has accepted its share it has to give back, and that comes marked to another.
    intake = SourceConnection(
        replace(share.options, most_messages=share.most, consumers="driver"), share=True
    )
    accepted = False
    try:
        intake.begin()
        accepted = _Filling(share, intake, parts).carry_out(name) and intake.connected
    except TransportError as error:
        # The driver's own connection waits for the broker, with patience; a task has none, and no batch dies of it.
        logger.warning("batch %d, part %d: no messages: %s", share.number, share.part, error)
        parts.publish(name, empty())
    finally:
        intake.close()
    # The goodbye comes after the acceptances: a broker that lives has read them.
    if accepted:
        parts.accepted(name)


class _Filling:
    """One attempt."""

    def __init__(self, share: Share, intake: SourceConnection, parts: TaskParts) -> None:
        self._share = share
        self._intake = intake
        self._parts = parts
        self._recent = ExecutorDuplicates(parts.store, share.log, share.number, share.doubtful)
        self._fresh: list[FreshMessage] = []
        self._undecodable = 0

    def carry_out(self, name: str) -> bool:
        """Take messages, publish, and accept what was published; what another attempt was faster with goes back.

        Return whether what was published was accepted.
        """
        taken = self._gathered()
        copies: list[Delivery] = []
        epoch = self._intake.epoch
        for delivery in taken:
            # Else its connection is lost: it comes again, here or elsewhere.
            if delivery.epoch == epoch:
                self._sort(delivery, copies)
        fresh = [each.delivery for each in self._fresh]
        names = named(fresh, frozenset(), self._share.name)
        texts, errors = [each.text for each in self._fresh], [each.error for each in self._fresh]
        rows = batch_of(fresh, names, [False] * len(fresh), texts, errors)
        published = self._parts.publish(name, pa.Table.from_batches([rows], SEGMENT), self._undecodable)
        self._intake.settle(copies)
        if published and self._awaited():
            self._intake.settle(fresh)
            return all(each.outcome == "accepted" for each in fresh)
        self._intake.give_back(taken)
        return False

    def _awaited(self) -> bool:
        """Whether anybody will read what was published: the batch is still in the log.

        Its parts are removed after it. An attempt that comes when both are gone finds its place free.
        """
        try:
            # Opened, not looked up in a listing: NFS shows those late.
            read_table(self._parts.store, segment_of(self._share.number))
        except RedeliveryError:
            return False
        return True

    def _gathered(self) -> list[Delivery]:
        """Take messages, until there are enough, or no more come."""
        share = self._share
        taken: list[Delivery] = []
        size, until = 0, self._intake.now() + max(share.options.wait, SHORTEST_WAIT)
        while len(taken) < share.most and size < share.most_bytes:
            left = max(0.0, until - self._intake.now())
            patience = min(LULL, left) if taken else left
            more = self._intake.take(share.most - len(taken), share.most_bytes - size, patience)
            if not more:
                break
            taken += more
            size += sum(len(delivery.body) for delivery in more)
        return taken

    def _sort(self, delivery: Delivery, copies: list[Delivery]) -> None:
        """Tell what is new to the log from copies of what is in it, and have the broker dead-letter what is no row."""
        intake, options = self._intake, self._share.options
        # A copy could not be made of it later.
        if intake.must_stay(delivery):
            intake.refuse(delivery, NOT_WHOLE)
            return
        if intake.may_be_known(delivery) and self._recent.claims(delivery):
            copies.append(delivery)
            return
        message = read_message(delivery, options, intake.refuse)
        if message is None:
            self._undecodable += 1
        else:
            self._fresh.append(message)
