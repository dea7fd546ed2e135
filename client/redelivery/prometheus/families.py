"""Names, helps and labels of the metrics."""

from __future__ import annotations

from typing import TypeVar

from redelivery.prometheus.client_library import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

__all__ = ["Families"]

FamilyT = TypeVar("FamilyT", bound=Metric)
MESSAGING = ("messaging_destination_name", "error_type")


class Families:
    """The families of one scrape, without samples at first."""

    def __init__(self) -> None:
        self.all: list[Metric] = []
        self.durations = self._add(
            HistogramMetricFamily(
                "messaging_process_duration_seconds",
                "Seconds for which handlers had messages",
                labels=MESSAGING,
            )
        )
        self.consumed = self._counter(
            "messaging_client_consumed_messages", "Deliveries that have a result, redeliveries too", MESSAGING
        )
        self.sent = self._counter("messaging_client_sent_messages", "Messages that were sent", MESSAGING)
        self.outcomes = self._counter(
            "redelivery_outcomes", "What became of deliveries", ("destination", "outcome")
        )
        self.dead_letters = self._counter(
            "redelivery_dead_letters",
            "Dead letters that the broker has confirmed",
            ("destination", "error_type"),
        )
        self.delays = self._add(
            HistogramMetricFamily(
                "redelivery_delay_seconds",
                "Seconds from a failure to the redelivery",
                labels=("destination",),
            )
        )
        self.transitions = self._counter(
            "redelivery_breaker_transitions", "Changes of the breaker to a state", ("destination", "state")
        )
        self.reconnects = self._counter(
            "redelivery_reconnects", "Connections after the first one", ("connection",)
        )
        self.parked = self._gauge("redelivery_parked", "Failed messages that are kept until they are due")
        self.oldest_parked = self._gauge(
            "redelivery_oldest_parked_seconds",
            "Seconds since the first failure of the message parked the longest",
        )
        self.running = self._gauge("redelivery_running", "Messages that the application has unsettled")
        self.unconfirmed = self._gauge(
            "redelivery_unconfirmed", "Dead letters that the broker has not confirmed"
        )
        self.ready = self._gauge("redelivery_ready", "Messages that wait for a worker")
        self.credit = self._gauge(
            "redelivery_credit", "Messages that may be here unsettled, without parked ones"
        )
        self.breaker = self._gauge("redelivery_breaker_state", "0: closed, 1: ramp, 2: open")
        self.connected = self._gauge("redelivery_connected", "1: the connection stands", "connection")
        self.workers_alive = self._gauge(
            "redelivery_workers_alive", "Workers of listeners that have not ended", "connection"
        )
        self.info = self._add(
            GaugeMetricFamily(
                "redelivery_info",
                "The broker of the last connection",
                labels=("connection", "broker", "version"),
            )
        )

    def _add(self, family: FamilyT) -> FamilyT:
        self.all.append(family)
        return family

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> CounterMetricFamily:
        return self._add(CounterMetricFamily(name, text, labels=labels))

    def _gauge(self, name: str, text: str, label: str = "destination") -> GaugeMetricFamily:
        return self._add(GaugeMetricFamily(name, text, labels=(label,)))
