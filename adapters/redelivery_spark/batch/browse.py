"""Looking at a queue, in an executor: the library's dead-letter tools, whose letters become rows."""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa

from redelivery.dlq.dlq_connection import DeadLetterConnection
from redelivery.dlq.ledger_causes import LedgerCauses
from redelivery.dlq.queue_browser import QueueBrowser
from redelivery.dlq.selection import EVERYTHING
from redelivery.errors import AdapterError, ConfigurationError
from redelivery_spark.batch.read_columns import STORED, deaths_of
from redelivery_spark.stream.row_ids import named
from redelivery_spark.stream.rows import batch_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from redelivery.core.delivery import Delivery
    from redelivery.dlq.dead_letter import DeadLetter
    from redelivery_spark.options.batch_options import ReadOptions

    Seen = tuple[Delivery, DeadLetter]

__all__ = ["browsed", "stored"]

ROWS = 1000  # in one Arrow batch
# Of bodies in it, but for one message.
BYTES = 8 << 20


def browsed(options: ReadOptions, queue: str | None) -> Iterator[pa.RecordBatch]:
    """Go through the rows of a queue.

    Raises:
        ConfigurationError: this broker takes what it shows.
        AdapterError: the broker refuses the queue, or shows only a part of it.
        TransportError: the connection was lost.
    """
    connection = DeadLetterConnection(options.connection_uri())
    # Executors have no ledger: options refuse one.
    browser = QueueBrowser(connection, queue, LedgerCauses())
    with connection:
        if not browser.takes_nothing:
            raise ConfigurationError(
                f"{connection.capabilities.broker} cannot show a queue over this protocol without taking its "
                "messages; use mode=drain, or a protocol that can",
                option="mode",
            )
        with closing(browser.look(EVERYTHING)) as seen:
            for number, some in enumerate(_chunks(islice(seen, options.most))):
                yield stored(some, f"{browser.queue}/{number}")
        if browser.limit is not None and not options.accepts_less:
            raise AdapterError(f"{browser.limit}; maxMessages or incomplete=accept takes what is shown")


def stored(seen: Sequence[Seen], name: str) -> pa.RecordBatch:
    """Return messages as rows of `STORED`; those without an id are called `name/0`, `name/1`, …."""
    nothing = [None] * len(seen)  # decoded when they are shown
    deliveries = [delivery for delivery, _ in seen]
    names = named(deliveries, frozenset(), name)
    rows = batch_of(deliveries, names, [False] * len(seen), nothing, nothing)
    columns = [*rows.columns, *deaths_of([letter for _, letter in seen])]
    return pa.RecordBatch.from_arrays(columns, schema=STORED)


def _chunks(seen: Iterator[Seen]) -> Iterator[list[Seen]]:
    some: list[Seen] = []
    size = 0
    for one in seen:
        some.append(one)
        size += len(one[0].body)
        if len(some) >= ROWS or size >= BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some
