"""Stream reader: batches, redeliveries, duplicates, isolation."""
