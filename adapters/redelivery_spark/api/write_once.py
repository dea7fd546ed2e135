"""`write_once`: Parquet that has each batch once, also if the batch is written again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["write_once"]

# Local property of Spark's thread that runs a batch. It is the id in the checkpoint: a new checkpoint has a new one.
_QUERY = "sql.streaming.queryId"
# Folder beside the batches, with an empty file named by the query's id. Readers skip names that begin with `_`.
_MARKS = "_written_by"


def write_once(df: DataFrame, path: str, batch_id: int) -> None:
    """Write a batch as Parquet into `path/batch_id=N`, once, also if the batch runs again.

    For `foreachBatch`. The files of an earlier run of the batch are replaced. `spark.read.parquet(path)` reads all
    batches, with a column `batch_id`. Errors of Spark's writer are raised unchanged.

    Args:
        df: The batch.
        path: Folder on any file system that Spark can write, for one query and its checkpoint.
        batch_id: Number of the batch, as `foreachBatch` passes it.

    Raises:
        ConfigurationError: A query with another checkpoint has written into `path`. Its batches had the same numbers,
            and would be replaced. Not found with Spark Connect.
    """
    path = path.rstrip("/")
    _claim(df.sparkSession, path)
    df.write.mode("overwrite").parquet(f"{path}/batch_id={int(batch_id)}")


def _claim(session: Any, path: str) -> None:
    """Mark a folder with the query that writes it; refuse one that another query has marked."""
    if not hasattr(session, "_jsparkSession"):  # Spark Connect
        return
    query = session.sparkContext.getLocalProperty(_QUERY)
    if query is None:  # not in a streaming query
        return
    new_path = session._jvm.org.apache.hadoop.fs.Path
    folder = new_path(f"{path}/{_MARKS}")
    files = folder.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())
    marks = files.listStatus(folder) if files.exists(folder) else ()
    names = [str(mark.getPath().getName()) for mark in marks]
    if others := [name for name in names if name != query]:
        raise ConfigurationError(
            f"path={path}: another query has written into it (id {others[0]} in its checkpoint), and a new checkpoint "
            "counts its batches from 0 again; use the old checkpoint, or a new path",
            option="path",
        )
    if query not in names:
        files.create(new_path(folder, query)).close()
