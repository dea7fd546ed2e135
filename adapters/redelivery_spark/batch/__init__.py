"""Reading without a stream: `spark.read.format("redelivery")`, which looks at queues or drains them."""
