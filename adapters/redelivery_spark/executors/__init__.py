"""What runs in executors: segments as columns, and what `process` writes down about the rows that it handles."""
