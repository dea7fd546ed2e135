"""A broker for the benchmarks of Spark: it has compiled itself, pages nothing, and collects little garbage.

Measured on Artemis 2.40.0 with messages of 1 kB: a cold broker spends 44 µs of processor time on one, a warm one 10.
With half a gigabyte of memory it pages from 127,000 messages on. On a queue of 500,000 messages the G1 collector spent
23 µs a message, the parallel collector 2.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.fill import fill

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.brokers import Broker

__all__ = ["filled", "pinned", "plain", "refuse_paging", "warm_broker"]

HERE = Path(__file__).parent
# Artemis pages when its messages take half of the heap. A message of 1 kB takes 2 kB: a million fit.
JVM = ("-Xms4g", "-Xmx4g", "-XX:+UseParallelGC")
PAGING = "AMQ222038"  # in Artemis' log when it starts to page
AT_ONCE = 100_000


@contextmanager
def warm_broker(kind: type[Broker], protocol: str, messages: int) -> Iterator[Broker]:
    """Start a broker with enough memory, and pass this number of messages through it as a warm-up."""
    roomy: type[Broker] = type(kind.__name__, (kind,), {"jvm": JVM})
    with roomy() as broker:
        for turn in range(messages // AT_ONCE):
            filled(broker, protocol, f"warm.{turn}", AT_ONCE, 1000)
            plain(broker, protocol, f"warm.{turn}", AT_ONCE, 1000)
        yield broker


def filled(broker: Broker, protocol: str, queue: str, messages: int, size: int) -> None:
    """Fill a queue, over the protocol by which it is read."""
    if protocol == "stomp":
        fill(broker, queue, messages, size)
        return
    argv = [sys.executable, "-m", "benchmarks.fill_amqp", f"amqp://{broker.host}:{broker.ports['amqp']}"]
    subprocess.run([*argv, broker.user, broker.password, queue, str(messages), str(size)], check=True)


def plain(broker: Broker, protocol: str, queue: str, messages: int, size: int) -> dict[str, float]:
    """Read a queue with the library's plain consumer; return its rate and its µs of processor time for a message."""
    argv = [sys.executable, "-m", "benchmarks.consume_redelivery", broker.name, broker.uri(protocol=protocol)]
    done = subprocess.run(
        [*argv, queue, str(messages), "1", str(size)],
        check=True,
        capture_output=True,
        text=True,
        cwd=HERE.parent,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def refuse_paging(broker: Broker) -> None:
    """Raise SystemExit if the broker has paged: its figures would not depend on the client then."""
    if PAGING in broker.server.log_tail(10**9):
        raise SystemExit("the broker pages: use fewer messages")


def pinned(broker: Broker) -> None:
    """Give the broker the first processor; this process and its later child processes get the others."""
    others = os.sched_getaffinity(0) - {0}
    for thread in Path(f"/proc/{broker.pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {0})
    os.sched_setaffinity(0, others)
