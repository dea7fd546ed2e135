"""Cost of a change: this checkout and another one of this library, on one broker, interleaved.

    git worktree add ../before REVISION
    python -m benchmarks.before ../before [--broker artemis] [--protocol stomp] [--messages 50000] [--rounds 5]

Both run this checkout's `benchmarks.consume_redelivery`, as `benchmarks.stomp_consume` and `benchmarks.amqp_consume`
do; they begin a round alternately. Prints the median rate and processor time of each, and the ratio of the medians:
this one to the other.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

from integration.brokers import BROKERS, Broker

from benchmarks.checkouts import HERE, alternating, checkout, output
from benchmarks.fill import fill

WARM_UP = 3  # rounds before: a broker on Java compiles itself


def fill_queue(broker: Broker, protocol: str, queue: str, messages: int) -> None:
    """Send the messages of one round."""
    if protocol == "stomp":
        fill(broker, queue, messages)
        return
    url = f"amqp://{broker.host}:{broker.ports['amqp']}"
    argv = ["benchmarks.fill_amqp", url, broker.user, broker.password, queue, str(messages)]
    subprocess.run([sys.executable, "-m", *argv], check=True, capture_output=True, cwd=HERE)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=checkout, metavar="FOLDER")
    parser.add_argument("--broker", choices=sorted(BROKERS), default="artemis")
    parser.add_argument("--protocol", choices=("stomp", "amqp"), default="stomp")
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    checkouts = {"before": arguments.before, "now": HERE}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in checkouts}
    with BROKERS[arguments.broker]() as broker:
        for turn, name in alternating(checkouts, range(-WARM_UP, arguments.rounds)):
            queue = f"bench.{turn}.{name}"
            fill_queue(broker, arguments.protocol, queue, arguments.messages)
            source = [broker.name, broker.uri(protocol=arguments.protocol), queue, str(arguments.messages)]
            measured = output(checkouts[name], "benchmarks.consume_redelivery", *source)
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
