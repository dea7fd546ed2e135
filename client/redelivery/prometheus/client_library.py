"""Import of prometheus-client, in this module only."""

from __future__ import annotations

try:
    from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ImportError(
        "redelivery.prometheus needs prometheus-client 0.20 or newer; pip install 'redelivery[prometheus]'"
    ) from error

__all__ = [
    "REGISTRY",
    "Collector",
    "CollectorRegistry",
    "CounterMetricFamily",
    "GaugeMetricFamily",
    "HistogramMetricFamily",
    "Metric",
    "generate_latest",
]
