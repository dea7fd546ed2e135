"""Which batch of which run of a query the task of this process belongs to, as Spark says it."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from pyspark import TaskContext

__all__ = ["TaskIdentity", "this_task"]


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """A task of a streaming query.

    `batch`: Spark's number of the batch. `run`: a digest that each start of the query has for itself, empty if Spark
    does not say. `stage` and `partition`: Spark's numbers. `retried`: another attempt of the task has failed in the
    same job, or runs beside this one.
    """

    batch: int
    run: str = ""
    stage: int = 0
    partition: int = 0
    retried: bool = False


def this_task() -> TaskIdentity | None:
    """Return what the task of this process is, or None outside of a streaming query."""
    context = TaskContext.get()
    batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    if context is None or batch is None:
        return None
    # The group of a query's jobs is called by the id of its run.
    run = context.getLocalProperty("spark.jobGroup.id") or ""
    digest = f"{zlib.crc32(run.encode()):08x}" if run else ""
    return TaskIdentity(
        int(batch), digest, context.stageId(), context.partitionId(), context.attemptNumber() > 0
    )
