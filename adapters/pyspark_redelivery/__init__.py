"""The module by which Spark finds the data source: it looks for `pyspark_*` and takes their `DefaultSource`."""

from redelivery_spark.source import RedeliveryDataSource as DefaultSource

__all__ = ["DefaultSource"]
