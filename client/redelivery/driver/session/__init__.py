"""Sessions: what is open in one, and how it is committed, rolled back, closed."""
