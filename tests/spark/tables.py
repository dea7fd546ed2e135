"""Spark's batch calls, without Spark: the work of a planner and an executor with a source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.pandas.types import from_arrow_schema

from redelivery_spark.source import RedeliveryDataSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.testing import MemoryBroker
    from redelivery_spark.batch.batch_reader import BatchReader

Row = dict[str, Any]


def pickled(value: object) -> bytes:
    """Return a value as Spark ships it."""
    shipped: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return shipped


def source(broker: MemoryBroker, **options: object) -> RedeliveryDataSource:
    """Return the source, as `load()` and `save()` make it."""
    given = {"url": broker.uri} | {name: str(value) for name, value in options.items()}
    return RedeliveryDataSource({name.lower(): value for name, value in given.items()})


def planned(broker: MemoryBroker, **options: object) -> BatchReader:
    """Return the reader that the planner makes."""
    made = source(broker, **options)
    return made.reader(made.schema())


def rows(reader: BatchReader) -> list[Row]:
    """Read all partitions, each with the reader as an executor gets it."""
    found: list[Row] = []
    for part in reader.partitions():
        shipped, partition = cloudpickle.loads(pickled((reader, part)))
        for batch in shipped.read(partition):
            found += batch.to_pylist()
    return found


def read(broker: MemoryBroker, **options: object) -> list[Row]:
    """Run one action on a DataFrame."""
    return rows(planned(broker, **options))


def write(broker: MemoryBroker, given: Sequence[Row] | pa.Table, **options: object) -> int:
    """Write rows in one task; return the number of messages that it reports as sent."""
    table = given if isinstance(given, pa.Table) else pa.Table.from_pylist(list(given))
    writer = source(broker, **options).writer(from_arrow_schema(table.schema), False)
    shipped = cloudpickle.loads(pickled(writer))
    return int(shipped.write(iter(table.to_batches(max_chunksize=100))).messages)


def bodies(found: list[Row]) -> list[str]:
    """Return the bodies of rows."""
    return [row["body"].decode() for row in found]


def fill(broker: MemoryBroker, count: int, queue: str = "orders") -> list[str]:
    """Send numbered messages."""
    sent = [f"{queue}-{number}" for number in range(count)]
    for body in sent:
        broker.send(queue, body)
    return sent
