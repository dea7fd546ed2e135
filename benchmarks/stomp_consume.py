"""Consuming over STOMP: this library, a plain stomp.py loop and a Java client, on one broker, interleaved.

    python -m benchmarks.stomp_consume [--broker artemis] [--messages 50000] [--rounds 5] [--warm-up 4]

All do the same work: 256 B bodies with two properties, non-persistent, prefilled; heart-beats on; prefetch 1000 (on
Artemis its size in bytes for the STOMP consumers); the handler reads the body and one property; one acknowledgement for
each message. The time runs from the first message until the broker has answered a receipt after the last
acknowledgement. Prints the median rate of each, the broker's processor time of a message, and the ratio of the medians.
The Java client is ActiveMQ's, over OpenWire. RabbitMQ has no OpenWire, and Qpid JMS can read only messages that were
sent over AMQP (`benchmarks.amqp_consume`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from integration.brokers import STOMP_BROKERS, Broker
from integration.brokers.activemq import ActiveMQ
from integration.brokers.toolchain import fetch

from benchmarks.fill import fill

HERE = Path(__file__).parent
VARIANTS = ("redelivery", "stomp.py", "java")


def variants(broker: Broker) -> tuple[str, ...]:
    """Return the consumers that can be measured on this broker."""
    return VARIANTS if hasattr(broker, "openwire_url") else VARIANTS[:2]


def broker_time(broker: Broker) -> float:
    """Return the processor time of the broker so far, in seconds."""
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(variant: str, broker: Broker, queue: str, messages: int) -> float:
    """Run one consumer in a process of its own; return messages per second."""
    if variant == "java":
        jars = f"{fetch(ActiveMQ.distribution)}/*"
        url = broker.openwire_url  # type: ignore[attr-defined]  # it has one: `variants`
        login = [broker.user, broker.password]
        argv = [
            "java",
            "-Dlog4j2.level=ERROR",
            "-cp",
            jars,
            str(HERE / "java" / "PeerConsume.java"),
            url,
            *login,
        ]
        done = subprocess.run([*argv, queue, str(messages)], check=True, capture_output=True, text=True)
        return float(done.stdout)
    module = {"redelivery": "benchmarks.consume_redelivery", "stomp.py": "benchmarks.consume_plain"}[variant]
    argv = [sys.executable, "-m", module, broker.name, broker.uri(), queue, str(messages)]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, cwd=HERE.parent)
    return float(json.loads(done.stdout)["rate"])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--broker", choices=sorted(STOMP_BROKERS), action="append")
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--warm-up", type=int, default=4, help="rounds before, in which a broker on Java compiles itself"
    )
    arguments = parser.parse_args()
    for name in arguments.broker or sorted(STOMP_BROKERS):
        with STOMP_BROKERS[name]() as broker:
            rates: dict[str, list[float]] = {variant: [] for variant in variants(broker)}
            times: dict[str, list[float]] = {variant: [] for variant in variants(broker)}
            for turn in range(-arguments.warm_up, arguments.rounds):
                for variant in variants(broker):
                    queue = f"bench.{turn}.{variant}"
                    fill(broker, queue, arguments.messages)
                    before = broker_time(broker)
                    rate = measure(variant, broker, queue, arguments.messages)
                    each = 1e6 * (broker_time(broker) - before) / arguments.messages
                    print(
                        f"  {name} round {turn} {variant:10} {rate:9,.0f}/s, broker {each:.0f} µs",
                        file=sys.stderr,
                    )
                    if turn >= 0:
                        rates[variant].append(rate)
                        times[variant].append(each)
        report(name, rates, times)


def report(name: str, rates: dict[str, list[float]], times: dict[str, list[float]]) -> None:
    """Print the medians and their ratios."""
    median = {variant: statistics.median(found) for variant, found in rates.items()}
    for variant, found in rates.items():
        spread = f"({min(found):,.0f} to {max(found):,.0f})"
        each = statistics.median(times[variant])
        print(f"{name:9} {variant:10} {median[variant]:9,.0f}/s {spread}, broker {each:.0f} µs a message")
    ours = median["redelivery"]
    ratios = [f"to {peer} {ours / median[peer]:.2f}" for peer in VARIANTS[1:] if peer in median]
    print(f"{name:9} ratio {', '.join(ratios)}", flush=True)


if __name__ == "__main__":
    main()
