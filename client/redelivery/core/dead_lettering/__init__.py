"""How poison leaves: routing, strategies, and what a redrive does with a dead letter."""
