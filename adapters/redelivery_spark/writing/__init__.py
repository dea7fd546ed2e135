"""Writing: `df.write.format("redelivery")` and `df.writeStream.format("redelivery")`, rows to messages."""
