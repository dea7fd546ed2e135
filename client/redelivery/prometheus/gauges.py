"""States of connections and consumers at a scrape."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redelivery.health import ConnectionHealth, ConsumerHealth, Health
    from redelivery.prometheus.families import Families
    from redelivery.prometheus.label_values import LabelValues

__all__ = ["add_gauges"]

STATES = {"off": 0, "closed": 0, "ramp": 1, "open": 2, "probing": 2}


def add_gauges(
    families: Families,
    states: Iterable[tuple[str, Health | None]],
    destinations: LabelValues,
    names: LabelValues,
) -> None:
    """Add the samples; for several connections or consumers with one label, the sum or the worst.

    `states`: names of connections, each with its health, or None if the connection is gone.
    """
    consumers: dict[str, list[ConsumerHealth]] = defaultdict(list)
    connections: dict[str, list[Health]] = defaultdict(list)
    for name, health in states:
        if health is not None:
            connections[names.of(name)].append(health)
            # Consumers without credit have not been started.
            for each in (each for each in health.consumers if each.credit):
                consumers[destinations.of(each.destination)].append(each)
    for destination, found in consumers.items():
        _add_consumers(families, destination, found)
    for name, healths in connections.items():
        _add_connections(families, name, healths)


def _add_consumers(families: Families, destination: str, found: list[ConsumerHealth]) -> None:
    label = (destination,)
    families.parked.add_metric(label, sum(each.parked for each in found))
    families.oldest_parked.add_metric(label, max(each.oldest_parked_s for each in found))
    families.running.add_metric(label, sum(each.running for each in found))
    families.unconfirmed.add_metric(label, sum(each.unconfirmed for each in found))
    families.ready.add_metric(label, sum(each.ready for each in found))
    families.credit.add_metric(label, sum(each.credit for each in found))
    families.breaker.add_metric(label, max(STATES[each.breaker] for each in found))


def _add_connections(families: Families, name: str, healths: list[Health]) -> None:
    families.connected.add_metric((name,), min(each.connection.connected for each in healths))
    families.workers_alive.add_metric(
        (name,), sum(consumer.workers_alive for each in healths for consumer in each.consumers)
    )
    for broker, version in sorted({_broker(each.connection) for each in healths if each.connection.broker}):
        families.info.add_metric((name, broker, version), 1)


def _broker(connection: ConnectionHealth) -> tuple[str, str]:
    """Return the name and the version."""
    name, _, version = connection.broker.partition(" ")
    return name, version
