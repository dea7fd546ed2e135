"""Observer that counts for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redelivery.core.option_values import whole
from redelivery.events import BreakerChanged, DeadLettered, Observer
from redelivery.prometheus.client_library import REGISTRY, generate_latest
from redelivery.prometheus.error_types import failure_type
from redelivery.prometheus.exporter import exporter_of

if TYPE_CHECKING:
    from redelivery.events import Event, Finished, ObservedConnection, Sent
    from redelivery.prometheus.client_library import CollectorRegistry

__all__ = ["Metrics", "text"]


class Metrics(Observer):
    """Metrics of its connections: `connect(uri, observers=[Metrics()])`.

    One may be given to several connections. All metrics of one registry are added up. The counts stay when a
    connection closes.
    """

    event_types = (BreakerChanged, DeadLettered)

    def __init__(self, registry: CollectorRegistry = REGISTRY, destinations: int = 100) -> None:
        """Register the metrics, unless another `Metrics` has done so in this registry.

        Args:
            registry: Registry of prometheus-client. Default: its default registry.
            destinations: Most destinations that are labels, 1 to 1000; the first ones that occur. Later ones
                are counted together as `other`. The largest number given for a registry counts.

        Raises:
            ConfigurationError: `destinations` is out of range.
            ValueError: The registry has another metric of one of these names.
        """
        most = whole(destinations, "destinations", 1, 1000)
        self._exporter = exporter_of(registry)
        self._exporter.allow(most)
        self._handled = self._exporter.handled
        self._local = self._handled.local

    def attached(self, connection: ObservedConnection) -> None:
        """Export the state and the counts of a connection."""
        self._exporter.attach(connection)

    def finished(self, token: Any, result: Finished) -> None:  # noqa: ARG002 - nothing was begun
        """Count a delivery and the seconds that its handler took."""
        mine, destination, error = self._local.mine, result.destination, ""
        if result.details.verdict != "succeeded":
            error = failure_type(result)
            if result.delay is not None:
                self._exporter.delayed(destination, result.delay)
        buckets = None if error or mine is None else mine.succeeded.get(destination)
        if buckets is None:
            buckets = self._handled.buckets(destination, error)
        seconds = result.seconds
        if seconds is None:
            buckets.unmeasured += 1
            return
        buckets.observe(seconds)
        if result.details.outcome is None:
            # Its session has not committed it yet, and reports it again with the commit.
            buckets.unmeasured -= 1

    def sent(self, token: Any, result: Sent) -> None:  # noqa: ARG002 - nothing was begun
        """Count a message that was sent."""
        self._exporter.sent(result)

    def event(self, event: Event) -> None:
        """Count a dead letter, or a change of a breaker."""
        if isinstance(event, DeadLettered):
            self._exporter.dead_lettered(event)
        elif isinstance(event, BreakerChanged):
            self._exporter.breaker_changed(event)


def text(registry: CollectorRegistry = REGISTRY) -> bytes:
    """Return the body of `/metrics`; its content type is `prometheus_client.CONTENT_TYPE_LATEST`."""
    return generate_latest(registry)
