"""Cost of a change: this checkout and another one of this library, on one broker, interleaved.

    git worktree add ../before REVISION
    python -m benchmarks.before ../before [--broker artemis] [--protocol stomp] [--messages 50000] [--rounds 5]

Both consume as this library does in `benchmarks.stomp_consume` and `benchmarks.amqp_consume`; they begin a round
alternately. Prints the median rate and processor time of each, and the ratio of the medians: this one to the other.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from integration.brokers import BROKERS, Broker

from benchmarks.fill import fill

HERE = Path(__file__).parents[1]
WARM_UP = 3  # rounds before: a broker on Java compiles itself


def fill_queue(broker: Broker, protocol: str, queue: str, messages: int) -> None:
    """Send the messages of one round."""
    if protocol == "stomp":
        fill(broker, queue, messages)
        return
    url = f"amqp://{broker.host}:{broker.ports['amqp']}"
    argv = ["benchmarks.fill_amqp", url, broker.user, broker.password, queue, str(messages)]
    subprocess.run([sys.executable, "-m", *argv], check=True, capture_output=True, cwd=HERE)


def consume(checkout: Path, broker: Broker, protocol: str, queue: str, messages: int) -> dict[str, float]:
    """Consume the messages with the library of a checkout; return the rate and the processor time of a message."""
    path = os.pathsep.join(str(checkout / folder) for folder in ("client", "adapters", "."))
    argv = ["benchmarks.consume_redelivery", broker.name, broker.uri(protocol=protocol), queue, str(messages)]
    done = subprocess.run(
        [sys.executable, "-m", *argv],
        check=True,
        capture_output=True,
        text=True,
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": path},
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, metavar="FOLDER")
    parser.add_argument("--broker", choices=sorted(BROKERS), default="artemis")
    parser.add_argument("--protocol", choices=("stomp", "amqp"), default="stomp")
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    checkouts = {"before": arguments.before.resolve(), "now": HERE}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in checkouts}
    with BROKERS[arguments.broker]() as broker:
        for turn in range(-WARM_UP, arguments.rounds):
            for name in sorted(checkouts, reverse=bool(turn % 2)):
                queue = f"bench.{turn}.{name}"
                fill_queue(broker, arguments.protocol, queue, arguments.messages)
                measured = consume(checkouts[name], broker, arguments.protocol, queue, arguments.messages)
                print(f"  round {turn} {name:6} {measured['rate']:9,.0f}/s", file=sys.stderr, flush=True)
                if turn >= 0:
                    found[name].append(measured)
    rates = {name: [each["rate"] for each in rounds] for name, rounds in found.items()}
    for name, rounds in found.items():
        spread = f"({min(rates[name]):,.0f} to {max(rates[name]):,.0f})"
        cpu = statistics.median(each["cpu_us"] for each in rounds)
        print(
            f"{name:6} {statistics.median(rates[name]):9,.0f}/s {spread}, {cpu:.1f} µs of processor a message"
        )
    ratio = statistics.median(rates["now"]) / statistics.median(rates["before"])
    print(f"{arguments.broker} over {arguments.protocol}: ratio {ratio:.3f}")


if __name__ == "__main__":
    main()
