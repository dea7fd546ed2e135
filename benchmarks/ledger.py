"""Cost of the ledger: the same consumer with and without one, with 1 and 8 workers, on one broker, interleaved.

    python -m benchmarks.ledger [--broker artemis] [--protocol stomp] [--messages 50000] [--rounds 5]

The work is that of `benchmarks.stomp_consume` and `benchmarks.amqp_consume`; no message fails. The ledger is an SQLite
file in a directory of its own on the disk of the temporary files. Prints the median rate of each, and the ratio.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from integration.brokers import BROKERS, Broker

from benchmarks.fill import fill

HERE = Path(__file__).parent
WORKERS = (1, 8)


def prefill(broker: Broker, protocol: str, queue: str, messages: int) -> None:
    """Send the messages of a round, over the protocol by which they will be consumed."""
    if protocol == "stomp":
        fill(broker, queue, messages)
        return
    url = f"amqp://{broker.host}:{broker.ports['amqp']}"
    argv = [sys.executable, "-m", "benchmarks.fill_amqp", url, broker.user, broker.password, queue]
    subprocess.run([*argv, str(messages)], check=True, capture_output=True, cwd=HERE.parent)


def measure(broker: Broker, protocol: str, queue: str, messages: int, workers: int, *, ledger: bool) -> float:
    """Run one consumer in a process of its own; return messages per second."""
    with tempfile.TemporaryDirectory(prefix="redelivery-ledger-") as directory:
        uri = broker.uri(protocol=protocol)
        if ledger:
            uri += f"&redelivery.ledger=sqlite:///{directory}/ledger.db"
        argv = [sys.executable, "-m", "benchmarks.consume_redelivery", broker.name, uri, queue]
        argv += [str(messages), str(workers)]
        done = subprocess.run(argv, check=True, capture_output=True, text=True, cwd=HERE.parent)
    return float(json.loads(done.stdout)["rate"])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--broker", choices=sorted(BROKERS), default="artemis")
    parser.add_argument("--protocol", choices=("stomp", "amqp"), default="stomp")
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    rates: dict[tuple[int, bool], list[float]] = {}
    with BROKERS[given.broker]() as broker:
        for turn in range(given.rounds + 1):  # the first warms the broker up, and does not count
            for workers in WORKERS:
                for ledger in (False, True) if turn % 2 else (True, False):
                    queue = f"bench.{turn}.{workers}.{ledger}"
                    prefill(broker, given.protocol, queue, given.messages)
                    rate = measure(broker, given.protocol, queue, given.messages, workers, ledger=ledger)
                    print(
                        f"  round {turn}, {workers} workers, ledger {ledger}: {rate:,.0f}/s", file=sys.stderr
                    )
                    if turn:
                        rates.setdefault((workers, ledger), []).append(rate)
    for workers in WORKERS:
        off, on = (statistics.median(rates[workers, ledger]) for ledger in (False, True))
        print(
            f"{given.broker} over {given.protocol}, {workers} workers: {off:,.0f}/s without a ledger, "
            f"{on:,.0f}/s with one, ratio {on / off:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
