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
# Names and labels of OpenTelemetry's semantic conventions 1.45.0.
MESSAGING = ("messaging_destination_name", "error_type")
ERRORS = ("destination", "error_type")


class Families:
    """Metric families of one scrape, without samples at first."""

    def __init__(self) -> None:
        self.all: list[Metric] = []
        counter, gauge, histogram = self._counter, self._gauge, self._histogram
        # Of messages.
        self.durations = histogram(
            "messaging_process_duration_seconds", "Seconds that a handler took", MESSAGING
        )
        self.consumed = counter(
            "messaging_client_consumed_messages", "Deliveries that have a result", MESSAGING
        )
        self.sent = counter("messaging_client_sent_messages", "Messages that were sent", MESSAGING)
        self.outcomes = counter("redelivery_outcomes", "Results of deliveries", ("destination", "outcome"))
        self.dead_letters = counter("redelivery_dead_letters", "Dead letters that are confirmed", ERRORS)
        self.delays = histogram("redelivery_delay_seconds", "Seconds until a redelivery", ("destination",))
        # Of consumers.
        self.parked = gauge("redelivery_parked", "Failed messages that are kept until they are due")
        self.oldest_parked = gauge(
            "redelivery_oldest_parked_seconds", "Seconds since the first failure of the oldest parked message"
        )
        self.running = gauge("redelivery_running", "Messages that the application has unsettled")
        self.unconfirmed = gauge("redelivery_unconfirmed", "Dead letters that are not confirmed")
        self.ready = gauge("redelivery_ready", "Messages that wait for a worker")
        self.credit = gauge("redelivery_credit", "Messages that may be unsettled, without parked ones")
        self.breaker = gauge("redelivery_breaker_state", "0: closed, 1: ramp, 2: open")
        self.transitions = counter(
            "redelivery_breaker_transitions", "Changes to a state", ("destination", "state")
        )
        # Of connections.
        self.connected = gauge("redelivery_connected", "1: the connection stands", "connection")
        self.reconnects = counter("redelivery_reconnects", "Connections after the first one", ("connection",))
        self.workers_alive = gauge("redelivery_workers_alive", "Workers that have not ended", "connection")
        self.info = gauge(
            "redelivery_info", "The broker of the last connection", "connection", "broker", "version"
        )

    def _add(self, family: FamilyT) -> FamilyT:
        self.all.append(family)
        return family

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> CounterMetricFamily:
        return self._add(CounterMetricFamily(name, text, labels=labels))

    def _gauge(self, name: str, text: str, *labels: str) -> GaugeMetricFamily:
        return self._add(GaugeMetricFamily(name, text, labels=labels or ("destination",)))

    def _histogram(self, name: str, text: str, labels: tuple[str, ...]) -> HistogramMetricFamily:
        return self._add(HistogramMetricFamily(name, text, labels=labels))
