"""Checks of `redelivery doctor`: small functions that return findings."""
