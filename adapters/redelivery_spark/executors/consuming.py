"""A task's share of a batch: taken from the broker by one attempt, published by one, accepted by that one only."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

import pyarrow as pa

from redelivery.core.delivery import Cause
from redelivery.errors import TransportError
from redelivery_spark.decoding import decoded
from redelivery_spark.executors.consumers import CONSUMERS
from redelivery_spark.log.parts import Parts
from redelivery_spark.log.segments import empty, read_table
from redelivery_spark.log.store import store_at
from redelivery_spark.names import named
from redelivery_spark.rows import batch_of, key_of, keys_of
from redelivery_spark.schema import SEGMENT

if TYPE_CHECKING:
    from collections.abc import Hashable

    from redelivery.core.delivery import Delivery
    from redelivery_spark.intake import Intake
    from redelivery_spark.options import SourceOptions

__all__ = ["Share", "rows_of_share"]

logger = logging.getLogger("redelivery.spark")
LULL = 0.05  # seconds without a message after which a share that has some is enough


@dataclass(frozen=True, slots=True)
class Share:
    """What one task is to take. Holds nothing secret: credentials are read where the connection is made."""

    options: SourceOptions
    log: str
    number: int
    part: int
    most: int

    @property
    def name(self) -> str:
        """What its rows without an id are called by."""
        return f"{self.log}/{self.number}.{self.part}"


def rows_of_share(share: Share) -> pa.Table:
    """Return the rows of a share: those in the log, or, if there are none yet, what the broker has.

    Each attempt of the task, and each action of the query on this batch, gets the same.

    Raises:
        RedeliveryError: the broker refuses; the log cannot be read.
    """
    store = store_at(share.options.wal_dir)
    parts = Parts(store)
    name = parts.name(share.number, share.part)
    if name not in parts.of(share.number):
        _consume(share, parts, name)
    return read_table(store, name)


def _consume(share: Share, parts: Parts, name: str) -> None:
    try:
        intake = CONSUMERS.take(share)
    except TransportError as error:
        # The driver's own connection waits for the broker, with patience; a task has none, and no batch dies of it.
        logger.warning("batch %d, part %d: no messages: %s", share.number, share.part, error)
        parts.publish(name, empty())
        return
    try:
        taken = _gathered(share, intake)
        fresh, copies = _sorted_out(taken, intake, parts, share.number)
        won = parts.publish(name, _table(share, fresh))
        if won:
            intake.settle([*fresh, *copies])
        else:
            intake.give_back(taken)
    except BaseException:
        intake.close()
        raise
    CONSUMERS.give_back(share, intake)


def _gathered(share: Share, intake: Intake) -> list[Delivery]:
    """Take messages, until there are enough, or no more come."""
    taken: list[Delivery] = []
    size, until = 0, time.monotonic() + share.options.wait
    while len(taken) < share.most and size < share.options.most_bytes:
        left = until - time.monotonic()
        more = intake.take(
            share.most - len(taken),
            share.options.most_bytes - size,
            max(0.0, min(LULL, left) if taken else left),
        )
        if not more:
            break
        taken += more
        size += sum(len(delivery.body) for delivery in more)
    return taken


def _sorted_out(
    taken: list[Delivery], intake: Intake, parts: Parts, number: int
) -> tuple[list[Delivery], list[Delivery]]:
    """Return what is new to the log; and copies of what is in it, whose acknowledgement was lost.

    What was not sent whole goes to the dead letters at once, by the broker: a copy could not be made of it later.
    """
    known: set[Hashable] | None = None
    fresh: list[Delivery] = []
    copies: list[Delivery] = []
    for delivery in taken:
        if delivery.state != "running":
            continue  # its connection is lost: somebody else gets it
        if intake.must_stay(delivery):
            intake.refuse(
                delivery, Cause.of("its body did not arrive whole, and executors keep no originals")
            )
            continue
        if intake.may_be_known(delivery):
            if known is None:
                known = _known(parts, number)
            if (key_of(delivery), _digest(delivery.body)) in known:
                copies.append(delivery)
                continue
        fresh.append(delivery)
    return fresh, copies


def _known(parts: Parts, number: int) -> set[Hashable]:
    known: set[Hashable] = set()
    for name in parts.recent(number):
        known |= _identities(parts.store.url, name)
    return known


@lru_cache(maxsize=64)
def _identities(place: str, name: str) -> frozenset[Hashable]:
    """What the rows of a file are known by: ids need not differ, and then bodies tell. A file never changes."""
    table = read_table(store_at(place), name)
    return frozenset(zip(keys_of(table), map(_digest, table.column("body").to_pylist()), strict=True))


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).digest()


def _table(share: Share, fresh: list[Delivery]) -> pa.Table:
    """Return the rows of messages. Of one that cannot be decoded the row says so, and the driver sees to it."""
    read = [decoded(delivery.body, share.options) for delivery in fresh]
    names = named(fresh, frozenset(), share.name)
    texts, errors = [text for text, _ in read], [error for _, error in read]
    rows = batch_of(fresh, names, [False] * len(fresh), texts, errors)
    return pa.Table.from_batches([rows], SEGMENT)
