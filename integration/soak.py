"""Consumes for long through a link that is cut again and again: `python -m integration.soak artemis stomp`.

One message in twenty fails, one in 400 always: a dead letter. After each thousand messages (`--every`) all connections
of the consumer are cut. At the end the books compare what was confirmed to the producer with the handler's successes
and with the dead letters, and the memory of the process at a fifth of the way with that at the end.

Exit status 1: a message is missing, a wrong one is dead, or the memory has grown by more than a fifth.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import random
import sys
import threading
import time
from argparse import ArgumentParser
from collections import Counter
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import redelivery
from integration.brokers import ALL_BROKERS
from integration.peers import fill, taken
from integration.proxy import LinkProxy
from integration.work import Running

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from multiprocessing.synchronize import Semaphore

    from integration.brokers import Broker

__all__ = ["POLICY", "Books", "failures", "main", "soak"]

BATCH = 5000  # messages that the producer sends at once
AHEAD = 4  # batches that are on the broker before the first is handled
POLICY = redelivery.RedeliveryPolicy(
    maximum_redeliveries=3, initial_redelivery_delay=0.5, redelivery_delay=0.5
)
BAD, SOMETIMES = 400, 20  # one message in so many always fails; one in so many fails once to three times
FIRST_BAD = 7
TELL = 30.0  # seconds between lines of progress
QUIET = 60.0  # seconds without a message after which nothing more comes
# Of the memory from the first fifth to the end. A million messages and 1,100 cuts: 1.13 over AMQP, nearly all of it
# before the third fifth: bounded histories fill, and the allocator keeps what it had.
GROWTH = 1.2


def rss() -> int:
    """Return the memory of this process in KiB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def failures(number: int) -> int:
    """Return how often the handler fails for a message; 4, and it is dead."""
    if number % BAD == FIRST_BAD:
        return POLICY.maximum_redeliveries + 1
    return 1 + number // SOMETIMES % 3 if number % SOMETIMES == 0 else 0


@dataclass
class Books:
    """Calls of the handler, and messages that are found at the end."""

    total: int
    bad: range = field(init=False)
    """Messages that always fail."""
    successes: bytearray = field(init=False)
    """Number of successes of each message, up to 255."""
    handled: int = 0
    """Number of calls."""
    good: int = 0
    """Number of messages with a success."""
    cuts: int = 0
    left: list[int] = field(default_factory=list)
    """Messages on the queue after the end and a restart: over STOMP Artemis may strand one at each cut."""
    given_up: list[int] = field(default_factory=list)
    """Messages that the broker has dead-lettered by itself, after too many lost connections (Artemis: ten)."""
    letters: Counter[int] = field(default_factory=Counter)
    """Number of dead letters of each message that has one."""
    memory: dict[int, int] = field(default_factory=dict)
    """KiB at each fifth of the way."""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        """Make room for all messages at once: what grows later is not the books."""
        self.bad, self.successes = range(FIRST_BAD, self.total, BAD), bytearray(self.total)

    def summary(self) -> dict[str, object]:
        """Return the figures."""
        dead, left = set(self.bad), {*self.left, *self.given_up}
        missing = [n for n in range(self.total) if n not in dead | left and not self.successes[n]]
        return {
            "messages": self.total,
            "seconds": round(self.seconds),
            "per second": round(self.total / self.seconds),
            "calls": self.handled,
            "calls expected": sum(min(failures(n), 4) + (n not in dead) for n in range(self.total)),
            "cuts": self.cuts,
            "missing": len(missing),
            "only after a restart": len(self.left),
            "dead-lettered by the broker": len(self.given_up),
            "without a dead letter": len(dead - left - set(self.letters)),
            "wrongly dead": len(set(self.letters) - dead),
            "two dead letters": sum(count > 1 for count in self.letters.values()),
            "handled twice": sum(count > 1 for count in self.successes),
            "memory in MiB at each fifth": [round(kib / 1024, 1) for _, kib in sorted(self.memory.items())],
        }

    def wrong(self, found: Mapping[str, object]) -> list[str]:
        """Return the names of the figures of `summary` that must be 0 and are not, and of a memory that has grown."""
        names = [each for each in ("missing", "without a dead letter", "wrongly dead") if found[each]]
        first, last = self.memory.get(1, 0), self.memory.get(5, 0)
        return names if last <= first * GROWTH else [*names, "memory"]


class Soak:
    """A handler that fails as the numbers of the messages say, and cuts the link."""

    def __init__(self, books: Books, proxy: LinkProxy, room: Semaphore, every: int, seed: int) -> None:
        """Begin."""
        self.books = books
        self.last = time.monotonic()
        self._proxy, self._room = proxy, room
        self._every, self._random = every, random.Random(seed)
        self._lock = threading.Lock()

    def __call__(self, message: redelivery.Message) -> None:
        """Handle one delivery."""
        number = int(message.text)
        with self._lock:
            books = self.books
            self.last = time.monotonic()
            books.handled += 1
            fails = message.delivery_count <= failures(number)
            if not fails:
                self._succeeded(number)
            cut = books.handled % self._every == 0
            if cut:
                books.cuts += 1
        if cut:
            self._proxy.cut(reset=self._random.random() < 0.5)
        if fails:
            raise ValueError(f"{number} fails")

    def _succeeded(self, number: int) -> None:
        books = self.books
        books.successes[number] = min(255, books.successes[number] + 1)
        if books.successes[number] > 1:
            return
        books.good += 1
        if books.good % BATCH == 0:
            self._room.release()
        fifth = (books.good + len(books.bad)) * 5 // books.total
        if fifth and fifth not in books.memory:
            books.memory[fifth] = rss()


def produce(broker: Broker, protocol: str, queue: str, total: int, room: Semaphore) -> None:
    """Send all messages, a batch whenever there is room; a process of its own, whose memory is not measured."""
    for first in range(0, total, BATCH):
        room.acquire()
        bodies = [str(number).encode() for number in range(first, min(first + BATCH, total))]
        fill(broker, protocol, queue, bodies, first=first)


def soak(
    broker: Broker, protocol: str, total: int, every: int, seed: int, tell: Callable[[str], None]
) -> Books:
    """Send, consume, cut; return the books."""
    books, queue = Books(total), f"soak.{protocol}"
    context = multiprocessing.get_context("spawn")
    room = context.Semaphore(AHEAD)
    producer = context.Process(target=produce, args=(broker, protocol, queue, total, room), daemon=True)
    began = time.monotonic()
    with ExitStack() as stack:
        proxy = stack.enter_context(LinkProxy(broker.ports[protocol], opaque=True))
        uri = broker.uri(
            protocol=protocol,
            port=proxy.port,
            redelivery__deadLetterDestination=f"{queue}.dead",
        )
        # Losses that follow each other delay the next connection by up to 30 s otherwise.
        endpoint, _, options = uri.partition("?")
        uri = f"failover:({endpoint})?maxReconnectDelay=200&{options}"
        policies = redelivery.RedeliveryPolicyMap(default=POLICY)
        connection = stack.enter_context(redelivery.connect(uri, policies=policies))
        handler = Soak(books, proxy, room, every, seed)
        connection.listen(queue, handler, workers=4)
        running = stack.enter_context(Running(connection, drain=30.0))
        producer.start()
        stack.callback(producer.kill)
        _wait(running, connection, handler, tell, began)
        books.seconds = time.monotonic() - began
        books.memory[5] = rss()
    if running.error is not None:
        raise running.error
    assert running.report is not None, "it has ended"
    tell(str(running.report))
    books.given_up = _numbers(broker, protocol, broker.dead_letter_queue, 0)
    open_ones = total - books.good - running.report.poisoned - len(books.given_up)
    broker.stop()
    broker.start()
    books.left = _numbers(broker, protocol, queue, open_ones) if open_ones > 0 else []
    books.letters.update(_numbers(broker, protocol, f"{queue}.dead", running.report.poisoned))
    return books


def _wait(
    running: Running,
    connection: redelivery.Connection,
    handler: Soak,
    tell: Callable[[str], None],
    began: float,
) -> None:
    """Return when everything is handled, or nothing comes any more."""
    books, told = handler.books, began
    dead = len(books.bad)
    while not running.ended and time.monotonic() - handler.last < QUIET:
        time.sleep(0.5)
        if books.good >= books.total - dead and connection.report().poisoned >= dead:
            break
        if time.monotonic() - told >= TELL:
            told = time.monotonic()
            tell(
                f"{books.good} of {books.total} in {told - began:.0f} s, {books.cuts} cuts, {rss() // 1024} MiB"
            )


def _numbers(broker: Broker, protocol: str, queue: str, expected: int) -> list[int]:
    """Take what is on a queue."""
    return [int(body) for body in taken(broker, protocol, queue, expected, BATCH)]


def main(arguments: list[str] | None = None) -> int:
    """Run one broker and consume from it."""
    parser = ArgumentParser(prog="python -m integration.soak", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("broker", choices=sorted(ALL_BROKERS))
    parser.add_argument("protocol", choices=("stomp", "amqp"))
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--every", type=int, default=1000, help="cut after so many calls of the handler")
    parser.add_argument("--seed", type=int, default=1, help="of how a connection is cut: FIN or RST")
    given = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    kind = ALL_BROKERS[given.broker]
    kind.obtain()
    with closing(kind()) as broker:
        broker.start()
        books = soak(
            broker,
            given.protocol,
            given.messages,
            given.every,
            given.seed,
            lambda line: print(line, flush=True),
        )
    found = books.summary()
    print(json.dumps(found, indent=1))
    if wrong := books.wrong(found):
        print(f"WRONG: {', '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
