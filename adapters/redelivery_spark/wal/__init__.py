"""The write-ahead log: one folder that the driver writes and all executors can read."""
