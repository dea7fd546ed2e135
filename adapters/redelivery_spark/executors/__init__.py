"""Code that runs in executors: segments as columns, and the files in which `process` records the rows it handles."""
