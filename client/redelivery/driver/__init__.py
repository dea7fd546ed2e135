"""What the synchronous and the asynchronous front ends share: one channel a consumer, one keeper a connection."""
