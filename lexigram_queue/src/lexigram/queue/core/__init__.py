"""Parts around the queue: middleware, dead letters in memory, batches."""
