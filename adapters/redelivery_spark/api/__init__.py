"""Functions that a Spark program calls."""
