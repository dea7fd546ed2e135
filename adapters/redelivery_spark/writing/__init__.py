"""Writing of rows as messages: `df.write.format("redelivery")` and `df.writeStream.format("redelivery")`."""
