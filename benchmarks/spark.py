"""Spark source of this checkout compared with another one, on one warm broker, interleaved; and the age of messages.

    git worktree add ../before REVISION
    python -m benchmarks.spark --peer ../before [--size 1000] [--messages 400000] [--rounds 3] [--batch 40000 …]
    python -m benchmarks.spark --latency 60 [--per-second 1000] [--peer ../before] [--batch default]
    python -m benchmarks.spark --reader-alone

Each checkout runs with each `--batch`: rows (maxMessagesPerTrigger), or `default` for its own, in `local[2]`, into
Spark's noop sink. `--option name=value` is for both, `--this-option` and `--peer-option` for one. The messages are
non-persistent and prefilled. The measurement is from a third of them to nine tenths (`--begin`, `--end`), when the JVMs
have compiled most of their code, and the write-ahead log has its largest number of rows ahead. The broker has enough
memory, and has compiled itself before (`benchmarks.warm_broker`).

The first figures are the processor time of a row by role, which depends little on other work of the machine. Next is
the rate, which depends on it: the busy processors, and the part of them for this benchmark, are printed with it.
"ahead": rows that the source had read at the two ends; if they differ much, the rate is not that of reading from the
broker. The times of the broker and the runner are divided by the rows that were read, those of the JVM and the workers
by the rows of batches. `--taskset` gives the broker the first processor, and all other processes the others.
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
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from integration.brokers import BROKERS, Broker

from benchmarks.checkouts import HERE, environment
from benchmarks.fill import send_times
from benchmarks.processor_time import ROLES
from benchmarks.warm_broker import filled, pinned, plain, refuse_paging, warm_broker

if TYPE_CHECKING:
    from collections.abc import Sequence

WARM_UP = 20.0  # seconds that are not counted: Spark starts workers, and compiles itself
READER_WARM_UP = 20_000  # messages


class Variant(NamedTuple):
    """One checkout with one set of options."""

    name: str
    checkout: Path
    options: dict[str, str]


def variants(arguments: argparse.Namespace) -> list[Variant]:
    """Return the variants: both checkouts for each batch size."""
    checkouts = [("this", HERE, arguments.this_option)]
    if arguments.peer is not None:
        checkouts.append(("peer", arguments.peer.resolve(), arguments.peer_option))
    return [
        Variant(f"{name} {batch}", checkout, options_of(arguments.option, own, batch))
        for batch in arguments.batch
        for name, checkout, own in checkouts
    ]


def options_of(common: Sequence[str], own: Sequence[str], batch: str) -> dict[str, str]:
    """Return the options of one variant."""
    size = [] if batch == "default" else [f"maxMessagesPerTrigger={batch}"]
    pairs = [each.partition("=") for each in (*size, *common, *own)]
    return {name: value for name, _, value in pairs}


class Bench:
    """One broker, and the rounds on it."""

    def __init__(self, broker: Broker, arguments: argparse.Namespace) -> None:
        """Begin with empty queues."""
        self.broker = broker
        self.arguments = arguments

    @property
    def name(self) -> str:
        """Name of the broker and the protocol in the output."""
        return f"{self.broker.name} {self.arguments.protocol} {self.arguments.size} B"

    def fill(self, queue: str) -> None:
        """Fill a queue with the messages of one round."""
        arguments = self.arguments
        filled(self.broker, arguments.protocol, queue, arguments.messages, arguments.size)

    def plain(self, queue: str) -> dict[str, float]:
        """Read a queue with the plain consumer."""
        arguments = self.arguments
        return plain(self.broker, arguments.protocol, queue, arguments.messages, arguments.size)

    def config(self, queue: str, folder: str) -> dict[str, Any]:
        """Return the configuration of a query's process."""
        arguments = self.arguments
        return {
            "master": "local[2]",
            # Executors get no credentials.
            "url": self.broker.uri(protocol=arguments.protocol).partition("?")[0],
            "queue": queue,
            "messages": arguments.messages,
            "folder": folder,
            "options": {},
            "broker": self.broker.pid,
            "begin": arguments.begin,
            "end": arguments.end,
        }

    def start(self, module: str, config: dict[str, Any], checkout: Path = HERE) -> subprocess.Popen[str]:
        """Start a round in a process of its own, with the library of a checkout."""
        path = Path(config["folder"]) / "config.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        login = {"REDELIVERY_USER": self.broker.user, "REDELIVERY_PASSWORD": self.broker.password}
        return subprocess.Popen(
            [sys.executable, "-m", module, str(path)],
            cwd=HERE,
            env={**environment(checkout), **login},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def rate(self, queue: str, variant: Variant) -> dict[str, Any]:
        """Run one round of a variant."""
        self.fill(queue)
        with tempfile.TemporaryDirectory() as folder:
            config = self.config(queue, folder) | {"options": variant.options}
            found = result(self.start("benchmarks.consume_spark", config, variant.checkout))
        refuse_paging(self.broker)
        return found | {"load": os.getloadavg()[0]}

    def latency(self, queue: str, variant: Variant) -> dict[str, Any]:
        """Return the age of messages that are sent while a query runs."""
        arguments = self.arguments
        with tempfile.TemporaryDirectory() as folder:
            config = self.config(queue, folder) | {"options": variant.options}
            config |= {"latency": arguments.latency, "warm_up": WARM_UP}
            process = self.start("benchmarks.consume_spark", config, variant.checkout)
            ended = threading.Event()
            sender = threading.Thread(
                target=send_times, args=(self.broker, queue, arguments.per_second, arguments.size, ended)
            )
            assert process.stdout is not None
            process.stdout.readline()  # the query has begun
            sender.start()
            try:
                return result(process) | {"load": os.getloadavg()[0]}
            finally:
                ended.set()
                sender.join()

    def reader_alone(self, queue: str) -> dict[str, Any]:
        """Run this checkout's reader without Spark."""
        warm_queue = f"{queue}.warm"
        self.fill(queue)
        filled(self.broker, self.arguments.protocol, warm_queue, READER_WARM_UP, self.arguments.size)
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
            warm_up = {"queue": warm_queue, "messages": READER_WARM_UP, "folder": other}
            config = self.config(queue, folder) | {"warm_up": warm_up}
            return result(self.start("benchmarks.spark_reader_alone", config))


def result(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return the last line of a process, parsed."""
    printed, errors = process.communicate(timeout=600)
    if process.returncode:
        raise SystemExit(errors[-3000:])
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


def rates(bench: Bench, compared: Sequence[Variant]) -> None:
    """Run the variants in turns, and print the figures of each round, and their medians."""
    found: dict[str, list[dict[str, Any]]] = {variant.name: [] for variant in compared}
    plain_ones: list[dict[str, float]] = []
    for turn in range(bench.arguments.rounds):
        if bench.arguments.plain:
            bench.fill(queue := f"plain.{turn}")
            plain_ones.append(bench.plain(queue))
        # The variants begin a round alternately.
        for variant in compared if turn % 2 == 0 else reversed(compared):
            each = bench.rate(f"spark.{turn}.{variant.name.replace(' ', '.')}", variant)
            found[variant.name].append(each)
            print(
                f"  round {turn} {variant.name:13} {row_of(each)}, load {each['load']:.1f}", file=sys.stderr
            )
    if plain_ones:
        each = median_of(plain_ones)
        print(f"{bench.name} {'plain':13} {each['cpu_us']:.1f} µs/row of the consumer; {each['rate']:,.0f}/s")
    for name, rounds in found.items():
        print(f"{bench.name} {name:13} {row_of(median_of(rounds))}")


def row_of(each: dict[str, Any]) -> str:
    """Return the figures of a round, or of the medians of several, as a line."""
    us, ms, (least, usual, most) = each["us"], each["ms"], each["sizes"]
    parts = ", ".join(f"{role} {us[role]:.1f}" for role in ROLES)
    return (
        f"{parts} = {sum(us.values()):.1f} µs/row; {each['rate']:,.0f}/s, ahead {each['ahead'][0]:,.0f} to "
        f"{each['ahead'][1]:,.0f}; latestOffset {ms['latestOffset']:.0f} ms, addBatch {ms['addBatch']:.0f} ms, "
        f"{usual:,.0f} rows a batch ({least:,.0f} to {most:,.0f}); runner {each['peaks']['runner']:.0f} MiB, "
        f"jvm {each['peaks']['jvm']:.0f} MiB; {each['busy']:.2f} processors busy, {each['ours']:.2f} for this"
    )


def median_of(found: Sequence[Any]) -> Any:
    """Return the medians of figures, through lists and dicts of them."""
    first = found[0]
    if isinstance(first, dict):
        return {name: median_of([each[name] for each in found]) for name in first}
    if isinstance(first, list):
        return [median_of(each) for each in zip(*found, strict=True)]
    return statistics.median(found)


def latencies(bench: Bench, compared: Sequence[Variant]) -> None:
    """Print the age of messages for each variant."""
    arguments = bench.arguments
    for turn in range(arguments.rounds):
        for variant in compared if turn % 2 == 0 else reversed(compared):
            each = bench.latency(f"latency.{turn}.{variant.name.replace(' ', '.')}", variant)
            phases = ", ".join(f"{name} {value:.0f}" for name, value in each["ms"].items())
            print(
                f"{bench.name} {variant.name:13} {arguments.per_second}/s: p50 {each['p50']:.3f} s, "
                f"p99 {each['p99']:.3f} s, most {each['most']:.3f} s, {each['rows']} messages, load {each['load']:.1f}"
                f"; of a batch, ms: {phases}"
            )


def readers(bench: Bench) -> None:
    """Print the figures of the reader without Spark."""
    for turn in range(bench.arguments.rounds):
        each = bench.reader_alone(f"alone.{turn}")
        us = ", ".join(f"{role} {each['us'][role]:.1f}" for role in ("runner", "broker"))
        print(f"{bench.name} reader alone: {us} µs/row; {each['rate']:,.0f}/s, load {os.getloadavg()[0]:.1f}")


def parsed() -> argparse.Namespace:
    """Return the arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--broker", choices=sorted(BROKERS), default="artemis")
    parser.add_argument("--protocol", choices=("stomp", "amqp"), default="stomp")
    parser.add_argument("--peer", type=Path, metavar="CHECKOUT", help="another checkout of this library")
    parser.add_argument("--messages", type=int, default=400_000)
    parser.add_argument("--size", type=int, default=1000, help="bytes of a body")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--batch", action="append", metavar="ROWS", help="maxMessagesPerTrigger, or `default`"
    )
    for name, whose in (("", "both checkouts"), ("this-", "this checkout"), ("peer-", "the peer")):
        text = f"an option of the source, for {whose}"
        parser.add_argument(f"--{name}option", action="append", default=[], metavar="NAME=VALUE", help=text)
    parser.add_argument(
        "--begin", type=float, default=1 / 3, help="measure from this part of the messages on"
    )
    parser.add_argument("--end", type=float, default=0.9, help="measure up to this part of the messages")
    parser.add_argument("--warm", type=int, default=400_000, help="messages that warm up the broker")
    parser.add_argument(
        "--plain", action=argparse.BooleanOptionalAction, default=True, help="also measure the plain consumer"
    )
    parser.add_argument("--taskset", action="store_true", help="run the broker on a processor of its own")
    parser.add_argument("--latency", type=float, default=0, help="seconds")
    parser.add_argument("--per-second", type=int, default=1000)
    parser.add_argument("--reader-alone", action="store_true")
    arguments = parser.parse_args()
    arguments.batch = arguments.batch or ["default", "40000"]
    return arguments


def main() -> None:
    """Measure and print."""
    arguments = parsed()
    with warm_broker(BROKERS[arguments.broker], arguments.protocol, arguments.warm) as broker:
        if arguments.taskset:
            pinned(broker)
        bench = Bench(broker, arguments)
        if arguments.reader_alone:
            readers(bench)
        elif arguments.latency:
            latencies(bench, variants(arguments))
        else:
            rates(bench, variants(arguments))


if __name__ == "__main__":
    main()
