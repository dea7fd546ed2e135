"""Tests with real brokers, and their tools: brokers, a Java client, a proxy that cuts connections."""
