"""`write_once`: Parquet that has each batch once, also if the batch is written again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["write_once"]


def write_once(df: DataFrame, path: str, batch_id: int) -> None:
    """Write a batch as Parquet into `path/batch_id=N`, once, also if the batch runs again.

    For `foreachBatch`. The files of an earlier run of the batch are replaced. `spark.read.parquet(path)` reads all
    batches, with a column `batch_id`. Errors of Spark's writer are raised unchanged.

    Args:
        df: The batch.
        path: Folder on any file system that Spark can write.
        batch_id: Number of the batch, as `foreachBatch` passes it.
    """
    df.write.mode("overwrite").parquet(f"{path.rstrip('/')}/batch_id={int(batch_id)}")
