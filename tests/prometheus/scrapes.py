"""Scrape, read as Prometheus reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from redelivery.prometheus import text

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["Scrape", "scrape"]


class Scrape:
    """Samples of one scrape."""

    def __init__(self, body: str) -> None:
        self.body = body
        self.kinds: dict[str, str] = {}
        self.samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in text_string_to_metric_families(body):
            self.kinds[family.name] = family.type
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                assert key not in self.samples, f"twice: {key}"
                self.samples[key] = sample.value

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of one sample, by all of its labels; None: there is none."""
        return self.samples.get((name, frozenset(labels.items())))

    def by(self, name: str, label: str) -> dict[str, float]:
        """Return the sums of a metric by one of its labels."""
        found: dict[str, float] = {}
        for (each, labels), value in self.samples.items():
            if each == name:
                key = dict(labels)[label]
                found[key] = found.get(key, 0) + value
        return found


def scrape(registry: CollectorRegistry) -> Scrape:
    """Scrape a registry."""
    return Scrape(text(registry).decode())
