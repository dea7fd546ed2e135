"""Spark Structured Streaming over redelivery policies: `spark.readStream.format("redelivery")`."""

from redelivery_spark.guard import foreach_batch
from redelivery_spark.process import process
from redelivery_spark.sink import write_once
from redelivery_spark.source import RedeliveryDataSource
from redelivery_spark.supervisor import run

__all__ = ["RedeliveryDataSource", "foreach_batch", "process", "run", "write_once"]
