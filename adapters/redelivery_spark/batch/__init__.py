"""Batch reads: `spark.read.format("redelivery")`, which browses queues or drains them."""
