"""Speed of counting and redriving dead letters.

python -m benchmarks.dead_letters [--broker artemis] [--protocol amqp] [--messages 20000]
"""

from __future__ import annotations

import argparse
import time
import uuid

from integration.brokers import BROKERS
from integration.dead_letter_fill import CAUSES, fill

import redelivery


def main() -> None:
    """Fill, count, redrive one cause, redrive the rest; print a line for each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--broker", default="artemis", choices=sorted(BROKERS))
    parser.add_argument("--protocol", default="amqp", choices=("stomp", "amqp"))
    parser.add_argument("--messages", type=int, default=20_000)
    given = parser.parse_args()
    with BROKERS[given.broker]() as broker:
        origin = f"bench.{uuid.uuid4().hex[:8]}"
        dead = f"{origin}.dead"
        fill(broker, given.protocol, dead, origin, given.messages)
        uri = broker.uri(protocol=given.protocol)
        take = (given.broker, given.protocol) == ("artemis", "stomp") or given.broker == "rabbitmq"
        with redelivery.dead_letters(uri, dead, take=take) as tools:
            began = time.perf_counter()
            count = sum(group.count for group in tools.summary())
            took = time.perf_counter() - began - (2.0 if take else 0.0)
            print(f"{given.broker} {given.protocol}: summary of {count} in {took:.2f} s")
            for what, filters in ((f"one cause of {len(CAUSES)}", {"cause": CAUSES[3]}), ("the rest", {})):
                began = time.perf_counter()
                done = tools.redrive(**filters)  # type: ignore[arg-type]
                took = time.perf_counter() - began - 2.0  # of silence at the end
                print(f"redrive of {what}: {done.redriven} in {took:.2f} s, {done.redriven / took:,.0f}/s")


if __name__ == "__main__":
    main()
