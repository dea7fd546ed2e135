"""Metrics for Prometheus: give `Metrics()` to a connection, and serve `text()`. Needs the extra `prometheus`."""

from __future__ import annotations

from redelivery.prometheus.metrics import Metrics, text

__all__ = ["Metrics", "text"]
