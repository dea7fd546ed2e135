"""Sessions: their open messages and sends, and how these are committed, rolled back or closed."""
