"""`foreach_batch`: a sink that tells the source when it fails, so that the batch is looked at once it comes again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from redelivery.core.delivery import Cause
from redelivery_spark.api.wal_location import wal_dir_of
from redelivery_spark.wal.records import Records
from redelivery_spark.wal.store import store_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

__all__ = ["foreach_batch"]

logger = logging.getLogger("redelivery.spark")
STOPPED = (
    "java.lang.InterruptedException",
    "java.io.InterruptedIOException",
    "java.nio.channels.ClosedByInterruptException",
    "SPARK_JOB_CANCELLED",
    "cancelled part of cancelled job group",
    "cancelled because SparkContext was shut down",
)
"""What Spark says of a write that `query.stop()`, or the end of its session, has interrupted."""


def foreach_batch(
    write: Callable[[DataFrame, int], object], *, wal_dir: str | None = None
) -> Callable[[DataFrame, int], None]:
    """Return a function for `writeStream.foreachBatch` that calls `write(df, batch_id)`.

    When `write` raises, the query fails as ever, and the source is told: at the next start it looks for the message to
    blame at once, instead of after `isolateAfter` failures.

    Args:
        write: what to do with a batch; called again with the same batch after a failure.
        wal_dir: the source's `walDir`; by default what the DataFrame says.
    """

    def guarded(df: DataFrame, batch_id: int) -> None:
        records = Records(store_at(wal_dir_of(df, wal_dir, "foreach_batch")))
        try:
            write(df, batch_id)
        except Exception as error:
            if not _stopped(error):
                _tell(records, batch_id, error)
            raise

    return guarded


def _tell(records: Records, batch_id: int, error: Exception) -> None:
    try:
        records.fail(batch_id, _brief(error))
    except Exception as told:  # noqa: BLE001 - the sink's error is the one that matters
        logger.warning("batch %d failed, and the log could not be told: %s", batch_id, Cause.of(told).text)


def _stopped(error: Exception) -> bool:
    """Whether a write failed because its query was stopped, or its job cancelled: no row of it is to blame for that."""
    text = str(error)
    return any(name in text for name in STOPPED)


def _brief(error: Exception) -> str:
    """Return the first line of what an exception says: Spark's go on with plans and stacks."""
    text = Cause.of(error).text
    return text.split("\n", 1)[0].split("  ", 1)[0][:300]
