"""Cost of observers: processor time of a message through `memory://`, without an observer and with each.

    python -m benchmarks.observers [--messages 20000] [--rounds 7] [VARIANT …]

`otel-none` has no SDK, `otel-off` samples nothing, `otel` records all spans and exports none; `otel-metrics` has no
spans but metrics, `otel-both` all. They need the extra `otel` and its SDK.

Each round runs all variants, one after the other. The table has the best and the median of the rounds, in microseconds
a message, and the difference to no observer. One worker, 256 bytes and a `traceparent`.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
from typing import TYPE_CHECKING, Any

from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON
from opentelemetry.trace import NoOpTracerProvider
from prometheus_client import CollectorRegistry

import redelivery
from redelivery.events import Finished, Observer
from redelivery.otel import Telemetry
from redelivery.prometheus import Metrics
from redelivery.testing import MemoryBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.driver.observers import Watching

HEADERS = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}


class Empty(Observer):
    """Overrides the methods that are called for each message, and does nothing."""

    def started(self, message: redelivery.Message) -> object:
        """Nothing."""

    def finished(self, token: Any, result: Finished) -> None:
        """Nothing."""


def off() -> Sequence[Watching]:
    """No observer."""
    return ()


def noop() -> Sequence[Watching]:
    """An `Observer` with empty methods."""
    return (Empty(),)


def function() -> Sequence[Watching]:
    """A function, which gets every event."""
    return (lambda _: None,)


def otel_none() -> Sequence[Watching]:
    """OpenTelemetry without an SDK."""
    return (Telemetry(),)


def otel_off() -> Sequence[Watching]:
    """OpenTelemetry with a sampler that records no span."""
    return (Telemetry(TracerProvider(sampler=ALWAYS_OFF), NoOpMeterProvider()),)


def otel() -> Sequence[Watching]:
    """OpenTelemetry, all spans recorded, none exported."""
    return (Telemetry(TracerProvider(sampler=ALWAYS_ON), NoOpMeterProvider()),)


def otel_metrics() -> Sequence[Watching]:
    """OpenTelemetry, metrics only."""
    return (Telemetry(NoOpTracerProvider(), MeterProvider([InMemoryMetricReader()])),)


def otel_both() -> Sequence[Watching]:
    """OpenTelemetry, all spans and metrics."""
    return (Telemetry(TracerProvider(sampler=ALWAYS_ON), MeterProvider([InMemoryMetricReader()])),)


def prometheus() -> Sequence[Watching]:
    """Metrics for Prometheus."""
    return (Metrics(CollectorRegistry()),)


VARIANTS: dict[str, Callable[[], Sequence[Watching]]] = {
    "off": off,
    "noop": noop,
    "function": function,
    "otel-none": otel_none,
    "otel-off": otel_off,
    "otel": otel,
    "otel-metrics": otel_metrics,
    "otel-both": otel_both,
    "prometheus": prometheus,
}


def run(observers: Sequence[Watching], messages: int) -> float:
    """Return microseconds of processor time a message, of all threads of the process."""
    seen = 0
    with (
        MemoryBroker("observers"),
        redelivery.connect("memory://observers", observers=observers) as connection,
    ):
        for _ in range(messages):
            connection.send("orders", b"x" * 256, headers=HEADERS)

        def handle(_: redelivery.Message) -> None:
            nonlocal seen
            seen += 1
            if seen == messages:
                connection.stop()

        connection.listen("orders", handle)
        began = time.process_time()
        connection.run()
        return 1e6 * (time.process_time() - began) / messages


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("variants", nargs="*", metavar="VARIANT", help=", ".join(VARIANTS))
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    logging.getLogger("redelivery").setLevel(logging.ERROR)
    names = ["off", *(name for name in arguments.variants or VARIANTS if name != "off")]
    found: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(arguments.rounds):
        for name in names:
            found[name].append(run(VARIANTS[name](), arguments.messages))
    best, median = min(found["off"]), statistics.median(found["off"])
    print(f"{'':12}{'best':>8}{'median':>8}{'+ best':>8}{'+ median':>9}   (µs a message)")
    for name, times in found.items():
        more = f"{min(times) - best:8.2f}{statistics.median(times) - median:9.2f}"
        print(f"{name:12}{min(times):8.2f}{statistics.median(times):8.2f}{more}")


if __name__ == "__main__":
    main()
