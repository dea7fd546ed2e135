"""Options of the source, of the batch reader and of the writers."""
