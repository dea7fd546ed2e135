"""Consuming over AMQP 1.0: this library, a plain proton handler and Qpid JMS, on one broker, interleaved.

    python -m benchmarks.amqp_consume [--broker artemis] [--messages 50000] [--rounds 5]

`rabbitmq4` is the newest RabbitMQ with quorum queues, `rabbitmq4-classic` the same with classic ones.

All do the same work: 256 B bodies with two properties, non-persistent, prefilled; heart-beats on; credit 1000; the
handler reads the body and one property; one settlement for each message (the proton handler accepts automatically). The
time runs from the first message until the broker has answered the close after the last settlement. Prints medians and
their ratios.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from integration.brokers import BROKERS, Broker, RabbitMQ4
from integration.brokers.toolchain import fetch
from integration.java_client import QPID_JMS

if TYPE_CHECKING:
    from collections.abc import Mapping

HERE = Path(__file__).parent
VARIANTS = ("redelivery", "proton", "qpid-jms")
BROKERS_MEASURED = ("activemq", "artemis")


class ClassicQueues(RabbitMQ4):
    """The newest RabbitMQ with its default queues."""

    queue_arguments: ClassVar[Mapping[str, object]] = {}


KNOWN: Mapping[str, type[Broker]] = {
    **{name: BROKERS[name] for name in BROKERS_MEASURED},
    "rabbitmq4": RabbitMQ4,
    "rabbitmq4-classic": ClassicQueues,
}


def run(argv: list[str]) -> str:
    """Run a program to its end; return what it printed."""
    return subprocess.run(argv, check=True, capture_output=True, text=True, cwd=HERE.parent).stdout


def measure(variant: str, broker: Broker, queue: str, messages: int) -> float:
    """Run one consumer in a process of its own; return messages per second."""
    if variant == "qpid-jms":
        source = str(HERE / "java" / "PeerConsumeAmqp.java")
        argv = [
            "java",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
            "-cp",
            f"{fetch(QPID_JMS)}/*",
            source,
        ]
        address = broker.jms_name(queue)
        return float(run([*argv, broker.qpid_url, broker.user, broker.password, address, str(messages)]))
    uri = broker.uri(protocol="amqp")
    if variant == "redelivery":
        argv = ["benchmarks.consume_redelivery", broker.name, uri, queue, str(messages)]
    else:
        argv = ["benchmarks.consume_proton", uri, broker.jms_name(queue), str(messages)]
    return float(json.loads(run([sys.executable, "-m", *argv]))["rate"])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--broker", choices=sorted(KNOWN), action="append")
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    for name in arguments.broker or BROKERS_MEASURED:
        with KNOWN[name]() as broker:
            rates: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
            for turn in range(arguments.rounds + 1):  # the first warms the broker up, and does not count
                for variant in VARIANTS:
                    queue = f"bench.{turn}.{variant}"
                    url = f"amqp://{broker.host}:{broker.ports['amqp']}"
                    address = broker.jms_name(queue)
                    fill = [url, broker.user, broker.password, address, str(arguments.messages)]
                    run([sys.executable, "-m", "benchmarks.fill_amqp", *fill])
                    rate = measure(variant, broker, queue, arguments.messages)
                    print(f"  {name} round {turn} {variant:10} {rate:9,.0f}/s", file=sys.stderr, flush=True)
                    if turn:
                        rates[variant].append(rate)
        median = {variant: statistics.median(found) for variant, found in rates.items()}
        for variant, found in rates.items():
            print(f"{name:9} {variant:10} {median[variant]:9,.0f}/s ({min(found):,.0f} to {max(found):,.0f})")
        ours = median["redelivery"]
        ratios = ", ".join(f"to {peer} {ours / median[peer]:.2f}" for peer in VARIANTS[1:])
        print(f"{name:9} ratio {ratios}", flush=True)


if __name__ == "__main__":
    main()
