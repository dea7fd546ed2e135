"""The stream reader: batches, redeliveries, duplicates, isolation."""
