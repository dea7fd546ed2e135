"""Write-ahead log: a folder or an object store that the runner and its readers write, and executors read."""
