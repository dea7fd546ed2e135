"""`foreach_batch`: a sink that marks its failures in the write-ahead log, where the next start finds them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from redelivery.core.delivery import Cause
from redelivery_spark.api.run import brief_error, was_stopped
from redelivery_spark.api.user_functions import check_function, check_result
from redelivery_spark.api.wal_location import wal_dir_of
from redelivery_spark.wal.records import Records
from redelivery_spark.wal.store import store_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

__all__ = ["foreach_batch"]

logger = logging.getLogger("redelivery.spark")


def foreach_batch(
    write: Callable[[DataFrame, int], object], *, wal_dir: str | None = None
) -> Callable[[DataFrame, int], None]:
    """Return a `foreachBatch` function that calls `write(df, batch_id)` and marks its failures.

    When `write` raises, the query fails as it does without this function, and the failure is marked in the write-ahead
    log. The next start runs the batch again with the same rows: no message is lost. With the option `isolate=split` the
    source counts the marks. After `isolateAfter` of them it runs the batch's messages in smaller batches. A write that
    was interrupted by `query.stop()` or a cancelled job is not marked.

    Args:
        write: Plain function that writes a batch. It is called again with the same batch after a failure. Its result
            is ignored; a coroutine or a generator ends the query, because nothing runs it.
        wal_dir: The source's `walDir`. Default: the one that the DataFrame carries in its columns' metadata; it is
            missing after an aggregation or a `select` of other columns. The failure is then not marked, and a warning
            is logged.

    Returns:
        The function for `foreachBatch`. It raises every error of `write` unchanged. A mark that cannot be written is
        logged as a warning and hides no error.

    Raises:
        ConfigurationError: `write` is not callable, or is `async def`.
    """
    check_function(write, "write", "a DataFrame and the batch's number")

    def guarded(df: DataFrame, batch_id: int) -> None:
        try:
            result = write(df, batch_id)
        except Exception as error:
            if not was_stopped(str(error)):
                _mark(df, wal_dir, batch_id, error)
            raise
        check_result(result, "write")

    return guarded


def _mark(df: DataFrame, wal_dir: str | None, batch_id: int, error: Exception) -> None:
    try:
        Records(store_at(wal_dir_of(df, wal_dir, "foreach_batch"))).fail(brief_error(error))
    except Exception as reason:  # noqa: BLE001 - the sink's error is the one that matters
        logger.warning(
            "batch %d: failed, and the failure cannot be marked in walDir (%s); isolate=split does not count it",
            batch_id,
            Cause.of(reason).text,
        )
