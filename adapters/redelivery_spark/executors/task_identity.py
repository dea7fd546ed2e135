"""Batch and run of the query to which the task of this process belongs, as reported by Spark."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from pyspark import TaskContext

__all__ = ["TaskIdentity", "this_task"]


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """Identity of a streaming query's task.

    `batch`: Spark's number of the batch. `run`: a digest that differs for each start of the query, empty if Spark does
    not report it. `stage` and `partition`: Spark's numbers. `retried`: another attempt of the task has failed in the
    same job, or runs at the same time.
    """

    batch: int
    run: str = ""
    stage: int = 0
    partition: int = 0
    retried: bool = False


def this_task() -> TaskIdentity | None:
    """Return the identity of this process's task, or None outside of a streaming query."""
    context = TaskContext.get()
    batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    if context is None or batch is None:
        return None
    # Spark names the job group of a query by the id of its run.
    run = context.getLocalProperty("spark.jobGroup.id") or ""
    digest = f"{zlib.crc32(run.encode()):08x}" if run else ""
    return TaskIdentity(
        int(batch), digest, context.stageId(), context.partitionId(), context.attemptNumber() > 0
    )
