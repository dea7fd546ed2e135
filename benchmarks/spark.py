"""The Spark source beside the library's plain consumer, on one broker, in turns; and how old messages get in it.

    python -m benchmarks.spark [--broker artemis] [--protocol stomp] [--size 1000] [--messages 200000] [--rounds 3]
    python -m benchmarks.spark --latency 60 [--per-second 1000]

Batches of 10,000 rows, `ack=wal`, Spark's noop sink. Consumed by the driver, and by one task or two, in `local[2]`; and
by a task on each worker of a standalone cluster, one or two, with one core each (`--place`). The plain consumer reads
body and one property, and acknowledges each. Non-persistent messages, prefilled. Of Spark the time runs from the end of
its first batch, in which it starts its workers. Prints the medians, and their ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from integration.brokers import BROKERS, Broker
from integration.spark_cluster import Cluster

from benchmarks.fill import fill, send_times

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
PLACES = {
    "driver": ("driver", 2),
    "one-task": ("executors", 1),
    "two-tasks": ("executors", 2),
    "one-worker": ("executors", 1),
    "two-workers": ("executors", 2),
}
WARM_UP = 20.0  # seconds that are not counted: Spark starts workers, and compiles itself


def filled(broker: Broker, protocol: str, queue: str, messages: int, size: int) -> None:
    """Fill a queue, over the protocol that it is read with."""
    if protocol == "stomp":
        fill(broker, queue, messages, size)
        return
    argv = [sys.executable, "-m", "benchmarks.fill_amqp", f"amqp://{broker.host}:{broker.ports['amqp']}"]
    subprocess.run([*argv, broker.user, broker.password, queue, str(messages), str(size)], check=True)


def plain(broker: Broker, protocol: str, queue: str, messages: int, size: int) -> float:
    """Return the rate of the plain consumer."""
    argv = [sys.executable, "-m", "benchmarks.consume_redelivery", broker.name, broker.uri(protocol=protocol)]
    done = subprocess.run(
        [*argv, queue, str(messages), "1", str(size)], check=True, capture_output=True, text=True
    )
    return float(json.loads(done.stdout)["rate"])


def start(broker: Broker, config: dict[str, Any]) -> subprocess.Popen[str]:
    """Start a query in a process of its own."""
    path = Path(config["folder"]) / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    argv = [sys.executable, "-m", "benchmarks.consume_spark", str(path)]
    return subprocess.Popen(
        argv,
        cwd=HERE.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def master(place: str, folder: str) -> Iterator[str]:
    """Yield where a query runs: a cluster of its own, or its process."""
    if not place.endswith(("worker", "workers")):
        yield "local[2]"
        return
    with Cluster(Path(folder), PLACES[place][1]) as cluster:
        yield cluster.url


def result(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return what it printed last."""
    printed, errors = process.communicate(timeout=600)
    if process.returncode:
        raise SystemExit(errors[-3000:])
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


def config_of(
    broker: Broker, arguments: argparse.Namespace, queue: str, place: str, folder: str, url: str
) -> dict[str, Any]:
    """Return what a query's process is told."""
    consumers, partitions = PLACES[place]
    return {
        "master": url,
        "url": broker.uri(protocol=arguments.protocol).partition("?")[0],  # executors get no credentials
        "queue": queue,
        "messages": arguments.messages,
        "folder": folder,
        "consumers": consumers,
        "partitions": partitions,
        "maxMessagesPerTrigger": 10_000,
    }


def rates(broker: Broker, arguments: argparse.Namespace) -> None:
    """Print rows a second."""
    found: dict[str, list[float]] = {each: [] for each in ("plain", *arguments.place)}
    for turn in range(arguments.rounds):
        for variant, each in found.items():
            queue = f"spark.{turn}.{variant}"
            filled(broker, arguments.protocol, queue, arguments.messages, arguments.size)
            if variant == "plain":
                each.append(plain(broker, arguments.protocol, queue, arguments.messages, arguments.size))
            else:
                with tempfile.TemporaryDirectory() as folder, master(variant, folder) as url:
                    config = config_of(broker, arguments, queue, variant, folder, url)
                    each.append(result(start(broker, config))["rate"])
            print(f"  round {turn} {variant:10} {each[-1]:9,.0f}/s", file=sys.stderr)
    name = f"{broker.name} {arguments.protocol} {arguments.size} B"
    middle = {variant: statistics.median(each) for variant, each in found.items()}
    for variant, rate in middle.items():
        ratio = f", {rate / middle['plain']:.2f} of plain" if variant != "plain" else ""
        each = found[variant]
        print(f"{name} {variant:10} {rate:9,.0f}/s ({min(each):,.0f} to {max(each):,.0f}){ratio}")


def latencies(broker: Broker, arguments: argparse.Namespace) -> None:
    """Print ages."""
    for place in arguments.place:
        queue = f"spark.latency.{place}"
        with tempfile.TemporaryDirectory() as folder, master(place, folder) as url:
            config = config_of(broker, arguments, queue, place, folder, url)
            config |= {"latency": arguments.latency, "warm_up": WARM_UP}
            process = start(broker, config)
            ended = threading.Event()
            thread = threading.Thread(
                target=send_times, args=(broker, queue, arguments.per_second, arguments.size, ended)
            )
            assert process.stdout is not None
            process.stdout.readline()  # the query has begun
            thread.start()
            told = result(process)
            ended.set()
            thread.join()
        print(
            f"{broker.name} {arguments.protocol} {place:10} {arguments.per_second}/s: "
            f"p50 {told['p50']:.2f} s, p99 {told['p99']:.2f} s, most {told['most']:.2f} s, {told['rows']} messages"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--broker", choices=sorted(BROKERS), default="artemis")
    parser.add_argument("--protocol", choices=("stomp", "amqp"), default="stomp")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--place", choices=PLACES, action="append")
    parser.add_argument("--latency", type=float, default=0, help="seconds")
    parser.add_argument("--per-second", type=int, default=1000)
    arguments = parser.parse_args()
    arguments.place = arguments.place or list(PLACES)
    with BROKERS[arguments.broker]() as broker:
        os.environ |= {"REDELIVERY_USER": broker.user, "REDELIVERY_PASSWORD": broker.password}  # workers' too
        (latencies if arguments.latency else rates)(broker, arguments)


if __name__ == "__main__":
    main()
