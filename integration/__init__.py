"""Tests against real brokers, and what they need: brokers, a Java client, a link-cutting proxy."""
