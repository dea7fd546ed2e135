"""Browsing of a queue in an executor, with the library's dead-letter tools. Its messages become rows."""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING

from redelivery.dlq.dead_letter import LedgerCauses
from redelivery.dlq.dlq_connection import DeadLetterConnection, QueueBrowser
from redelivery.dlq.selection import EVERYTHING
from redelivery.errors import AdapterError, ConfigurationError
from redelivery_spark.batch.read_columns import ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from redelivery.core.delivery import Delivery
    from redelivery.dlq.dead_letter import DeadLetter
    from redelivery_spark.batch.read_columns import ShownColumns
    from redelivery_spark.options.source_options import ReadOptions

    Seen = tuple[Delivery, DeadLetter]

__all__ = ["browsed"]

# Bytes of bodies in one Arrow batch; a single larger message is an Arrow batch of its own.
BYTES = 8 << 20


def browsed(options: ReadOptions, queue: str | None, columns: ShownColumns) -> Iterator[pa.RecordBatch]:
    """Return the rows of a queue as Arrow batches. The messages stay on the broker.

    Without a queue, those of all places where the dead letters of the URI's settings are.

    Raises:
        ConfigurationError: This broker cannot show a queue over this protocol without taking its messages.
        AdapterError: The broker refuses the queue, or shows only a part of it.
        TransportError: The connection was lost.
    """
    connection = DeadLetterConnection(options.connection_uri())
    first = 0
    with connection:
        if not connection.capabilities.browse:
            raise ConfigurationError(
                f"mode=browse: {connection.capabilities.broker} cannot show a queue over this protocol without taking "
                "its messages; use mode=drain, or a protocol that can",
                option="mode",
            )
        for each in [queue] if queue is not None else _places(connection, options):
            # Executors have no ledger: its option is refused.
            browser = QueueBrowser(connection, each, LedgerCauses())
            with closing(browser.look(EVERYTHING)) as seen:
                for some in _chunks(islice(seen, options.most)):
                    deliveries, letters = zip(*some, strict=True)
                    yield columns.of(deliveries, browser.queue, browser.queue, first, letters)
                    first += len(some)
            if browser.limit is not None and not options.accepts_less:
                raise AdapterError(
                    f"{browser.limit}; set maxMessages or incomplete=accept to read what is shown"
                )


def _places(connection: DeadLetterConnection, options: ReadOptions) -> list[str]:
    """Return the queues in which dead letters of the URI are. Raises ConfigurationError if others may have some."""
    places = connection.places(())
    if places.unknown and not options.accepts_less:
        raise ConfigurationError(
            f"mode=browse: {'; '.join(places.unknown)}; or set incomplete=accept to read the others",
            option="destination",
        )
    return connection.queues_of(places)


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
