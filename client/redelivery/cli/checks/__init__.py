"""Checks of `redelivery doctor`: each is a small function that returns findings."""
