"""One queue of a test of Spark's recipes, and queries over it, which are started again when they fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import redelivery_spark
from integration.peers import fill

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from integration.brokers import Broker
    from integration.conftest import Session

__all__ = ["MESSAGES", "POLICY", "Recipe"]

MESSAGES = 1000
POLICY = {
    "jms__redeliveryPolicy__maximumRedeliveries": 2,
    "jms__redeliveryPolicy__initialRedeliveryDelay": 200,
    "jms__redeliveryPolicy__redeliveryDelay": 200,
}


class Recipe:
    """One queue, and queries over it."""

    def __init__(self, spark: SparkSession, broker: Broker, queue: str, folder: Path) -> None:
        self._spark = spark
        self._broker = broker
        self._queue = queue
        self.folder = folder
        self.wal = str(folder / "wal")
        self.dead = f"{queue}.dead"
        self.out = str(folder / "out")
        self.queries: list[StreamingQuery] = []

    def fill(self, kinds: Mapping[int, str], count: int = MESSAGES, *, first: int = 0) -> list[str]:
        """Send messages, and return their bodies."""
        bodies = [f"{kinds.get(number, 'good')}-{number}" for number in range(first, first + count)]
        fill(self._broker, "stomp", self._queue, [body.encode() for body in bodies])
        return bodies

    def load(
        self, schema: str | None = None, policy: Mapping[str, Any] = POLICY, **options: str
    ) -> DataFrame:
        """Return the stream."""
        uri = self._broker.uri(protocol="stomp", **policy, redelivery__deadLetterDestination=self.dead)
        reader = self._spark.readStream.format("redelivery").option("url", uri)
        reader = reader.options(destination=self._queue, walDir=self.wal, **options)
        return (reader if schema is None else reader.schema(schema)).load()

    def run(
        self, df: DataFrame, write: Callable[[DataFrame, int], None], times: int | None = 20, **options: str
    ) -> None:
        """Process all messages that are there, starting again after failures."""

        def start() -> StreamingQuery:
            writer = df.writeStream.foreachBatch(redelivery_spark.foreach_batch(write, wal_dir=self.wal))
            writer = writer.option("checkpointLocation", str(self.folder / "checkpoint")).options(**options)
            self.queries.append(writer.trigger(availableNow=True).start())
            return self.queries[-1]

        redelivery_spark.run(start, max_restarts=times, wal_dir=self.wal)

    def letters(self, session: Session, expected: int = 1) -> dict[str, tuple[int, str]]:
        """Return the dead letters: count and cause by body. None is duplicated."""
        drained = session.client(self._broker, "stomp").drain(self.dead, expected=expected)
        told = [
            (
                (each.body or b"").decode(),
                int(each.properties["redeliveryCount"]),
                each.properties["redeliveryCause"],
            )
            for each in drained
        ]
        assert len({body for body, *_ in told}) == len(told)
        return {body: (count, cause) for body, count, cause in told}
