"""`consumers=executors`: each task of a batch consumes for itself, and publishes what it took in the log."""
