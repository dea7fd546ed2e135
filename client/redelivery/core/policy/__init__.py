"""Redelivery policies of each broker, and the map that chooses one by destination."""
