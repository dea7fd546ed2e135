"""`write_once`: Parquet that has each batch once, however often it is tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["write_once"]


def write_once(df: DataFrame, path: str, batch_id: int) -> None:
    """Write a batch as Parquet into `path/batch_id=N`, in place of what an earlier try of it has left there.

    For use in `foreachBatch`. `spark.read.parquet(path)` reads all batches, with a column `batch_id`.

    Args:
        df: the batch.
        path: a folder on any file system that Spark can write.
        batch_id: its number, as `foreachBatch` passes it.
    """
    df.write.mode("overwrite").parquet(f"{path.rstrip('/')}/batch_id={int(batch_id)}")
