"""One run: a consumer and a producer of the library on a cluster, a fault in the middle, and the books at the end."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from contextlib import ExitStack, suppress
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import redelivery
from integration.clusters.books import DELAYS, Books, Call, Mark
from integration.clusters.consumers import asynchronous, threaded
from integration.clusters.faults import FAULTS
from integration.eventually import eventually, settled
from integration.proxy import LinkProxy
from integration.soak import failures
from redelivery.events import ConnectionLost, ConsumerRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from integration.brokers import Broker
    from integration.clusters.books import Verdict
    from integration.clusters.cluster import Cluster
    from integration.clusters.consumers import Consuming
    from integration.clusters.rows import Row
    from redelivery.events import Event

__all__ = ["Extent", "Outcome", "Run", "port_of", "run"]

RATE = 90.0  # messages a second
WORK = 0.002  # seconds that a handler takes
BEFORE, AFTER = 4.0, 5.0  # seconds before the first operation and after the last one
PATIENCE = 150.0  # seconds until all messages are handled after the fault
TURN = 0.25  # seconds between two looks at the consumer's health


class Extent(NamedTuple):
    """Size of a run."""

    messages: int
    """Confirmed messages, at least."""
    seed: int
    minutes: float = 2.0
    """Of operations that the seed chooses, in a row that has them."""


class Refusal(NamedTuple):
    """The broker's refusal of the consumer, and what the library took it for."""

    at: float
    text: str
    passes: bool | None


class Outcome(NamedTuple):
    """Result of a run."""

    row: Row
    verdict: Verdict
    seconds: float
    marks: list[tuple[float, str]]
    """Seconds since the start, and what was done."""
    refusals: list[tuple[float, str, bool | None]]
    health: list[tuple[float, str]]
    """Changes of the consumer's health."""
    log: list[str]
    """Lines of the library's log, from WARNING on."""
    error: str | None
    """Error that has ended the consumer."""
    send_errors: list[str]
    """Different texts of failed sends."""

    @property
    def wrong(self) -> list[str]:
        """Faults of the run, as text."""
        ended = [] if self.error is None else [f"the consumer has ended: {self.error}"]
        return [*ended, *self.verdict.wrong(self.row.allowed)]


class Run:
    """The processes of one run; a fault uses `cluster`, `mark` and `wait`."""

    def __init__(
        self,
        cluster: Cluster,
        row: Row,
        extent: Extent,
        tell: Callable[[str], None],
    ) -> None:
        self.cluster, self.row, self.minutes = cluster, row, extent.minutes
        self.dice = random.Random(extent.seed)
        self.books = Books()
        self.refusals: list[Refusal] = []
        self.health: list[Mark] = []
        self.proxies: list[LinkProxy] = []
        parts = (row.fault, row.protocol, row.queues, row.scheduler, f"{time.time_ns() // 10**6 % 10**8}")
        stem = ".".join(filter(None, parts))
        self.queue, self.dead_letters = f"q.{stem}", f"dead.{stem}"
        self._messages, self._tell = extent.messages, tell
        self._began = time.monotonic()
        self._over = threading.Event()
        self._ended = threading.Event()

    def mark(self, what: str) -> None:
        """Note an operation."""
        now = time.monotonic()
        self.books.marks.append(Mark(now, what))
        self._tell(f"{now - self._began:6.1f} s  {what}")

    def wait(self, seconds: float) -> None:
        """Go on for a time, up to a second longer by the seed."""
        self._over.wait(seconds + self.dice.random())

    def connected(self) -> Broker:
        """Return the node that the consumer is connected to."""
        port = port_of(self.consumer.health().connection.address)
        ports = [proxy.port for proxy in self.proxies] or [
            node.ports[self.row.protocol] for node in self.cluster.nodes
        ]
        return self.cluster.nodes[ports.index(port)]

    def whole(self) -> Outcome:
        """Run, and return what it has shown."""
        fault, row = FAULTS[row_fault(self.row)], self.row
        lines: list[str] = []
        with ExitStack() as stack:
            stack.enter_context(_Lines(lines, self._began))
            if fault.proxied:
                ports = [node.ports[row.protocol] for node in self.cluster.nodes]
                self.proxies = [stack.enter_context(LinkProxy(port, opaque=True)) for port in ports]
            if fault.home:
                self.cluster.prepare(self.queue if fault.home == "queue" else self.dead_letters)
            self.consumer = stack.enter_context(self._consuming(fault.first, stack))
            eventually(
                lambda: self.consumer.ended or self.consumer.health().ready, message="the consumer consumes"
            )
            producer = stack.enter_context(_Thread(self._produce, self._over))
            stack.enter_context(_Thread(self._watch, self._ended))
            self.wait(BEFORE)
            fault.act(self)
            self.wait(AFTER)
            self._over.set()
            producer.join(90.0)
            self._finish()
            self._ended.set()
        self._take()
        return self._outcome(lines)

    def handle(self, message: redelivery.Message) -> None:
        """Handle a delivery as its number says."""
        began = time.monotonic()
        time.sleep(WORK)
        self._end(message, began)

    async def handle_async(self, message: redelivery.Message) -> None:
        """Handle a delivery as its number says, on an event loop."""
        began = time.monotonic()
        await asyncio.sleep(WORK)
        self._end(message, began)

    def _end(self, message: redelivery.Message, began: float) -> None:
        number = int(message.text)
        failed = message.delivery_count <= failures(number)
        self.books.called(number, Call(message.delivery_count, began, time.monotonic(), failed))
        if failed:
            raise ValueError(f"{number} fails")

    def _consuming(self, first: int, stack: ExitStack) -> AbstractContextManager[Consuming]:
        """Return the consumer, not yet entered; its address is that of a node, and others follow."""
        row = self.row
        uri = self._uri(
            first,
            [proxy.port for proxy in self.proxies],
            redelivery__policy__delays=",".join(f"{delay * 1000:.0f}" for delay in DELAYS),
            redelivery__scheduler=row.scheduler,
        )
        options: dict[str, Any] = {"observers": [self._observe]}
        if row.ledger:
            folder = stack.enter_context(TemporaryDirectory())
            options["ledger"] = redelivery.SqliteLedger(f"{folder}/ledger")
        if row.client == "asyncio":
            return asynchronous(uri, self.queue, self.handle_async, **options)
        return threaded(uri, self.queue, self.handle, **options)

    def _uri(self, first: int, ports: Sequence[int] = (), **more: object) -> str:
        row = self.row
        options: dict[str, object] = {
            "maxReconnectDelay": 5000,
            "redelivery__deadLetterDestination": self.dead_letters,
            **self.cluster.options(row.protocol, row.queues),
            **more,
        }
        return self.cluster.uri(row.protocol, first=first, ports=ports, **options)

    def _observe(self, event: Event) -> None:
        if isinstance(event, ConsumerRefused):
            passes = getattr(event.error, "passes", None)
            self.refusals.append(Refusal(time.monotonic(), str(event.error), passes))
        elif isinstance(event, ConnectionLost):
            self.books.losses.append(time.monotonic())

    def _produce(self) -> None:
        """Send until the fault is over, and enough is confirmed; a message is never sent a second time."""
        books, number, due = self.books, 0, time.monotonic()
        with redelivery.connect(self._uri(1)) as connection:
            while not self._ended.is_set() and not (
                self._over.is_set() and len(books.confirmed) >= self._messages
            ):
                try:
                    connection.send(self.queue, str(number))
                except redelivery.RedeliveryError as error:
                    books.unconfirmed[number] = f"{type(error).__name__}: {error}"
                else:
                    books.confirmed.add(number)
                number += 1
                due = max(due + 1 / RATE, time.monotonic() - 1.0)
                time.sleep(max(0.0, due - time.monotonic()))

    def _watch(self) -> None:
        """Note each change of the consumer's health."""
        last = ""
        while not self._ended.wait(TURN):
            found = self.consumer.health()
            state = found.consumers[0].state if found.consumers else "none"
            where = port_of(found.connection.address) if found.connection.connected else "-"
            now = f"{'live' if found.live else 'dead'} {'ready' if found.ready else 'not ready'} {state} {where}"
            if now != last:
                last = now
                self.health.append(Mark(time.monotonic(), "; ".join([now, *found.reasons])[:300]))

    def _finish(self) -> None:
        """Wait until all is handled, or nothing comes any more."""
        with suppress(AssertionError):
            eventually(
                lambda: self.consumer.ended or not self.books.open(), PATIENCE, message="all are handled"
            )
        dead = sum(failures(number) > len(DELAYS) for number in self.books.confirmed)
        with suppress(AssertionError):
            eventually(lambda: self.consumer.ended or self.consumer.report().poisoned >= dead, 45.0)
        # What comes a second time comes now.
        settled(self.books.last, quiet=3.0)
        self.books.stale_results = self.consumer.report().stale

    def _take(self) -> None:
        """Take what is on the broker."""
        cluster, books = self.cluster, self.books
        protocol = "amqp" if self.row.setup == "rabbitmq" else self.row.protocol
        bad = sum(failures(number) > len(DELAYS) for number in books.confirmed)
        books.letters.update(map(int, _gone_is_empty(lambda: cluster.take(protocol, self.dead_letters, bad))))
        books.found.update(map(int, _gone_is_empty(lambda: cluster.take(protocol, self.queue))))

    def _outcome(self, lines: list[str]) -> Outcome:
        began, error = self._began, self.consumer.failure
        return Outcome(
            self.row,
            self.books.verdict(),
            round(time.monotonic() - began, 1),
            [(round(mark.at - began, 1), mark.what) for mark in self.books.marks],
            [(round(each.at - began, 1), each.text, each.passes) for each in self.refusals],
            [(round(mark.at - began, 1), mark.what) for mark in self.health],
            lines,
            None if error is None else f"{type(error).__name__}: {error}",
            sorted(set(self.books.unconfirmed.values())),
        )


def port_of(address: str) -> int:
    """Return the port of an address that the library reports, behind which may be the IP address of a node."""
    (endpoint,) = redelivery.parse_uri(address.partition(" ")[0]).endpoints
    return endpoint.port


def row_fault(row: Row) -> str:
    """Return the name of a row's fault: that of its setup, or of all."""
    own = f"{row.setup.partition('-')[0]}.{row.fault}"
    return own if own in FAULTS else row.fault


def run(cluster: Cluster, row: Row, extent: Extent, tell: Callable[[str], None]) -> Outcome:
    """Bring all nodes up, and run a row."""
    cluster.start()
    try:
        return Run(cluster, row, extent, tell).whole()
    finally:
        cluster.start()


class _Thread:
    """A thread for the time of a block, which ends with it."""

    def __init__(self, work: Callable[[], None], over: threading.Event) -> None:
        self._thread, self._over = threading.Thread(target=work, daemon=True), over

    def __enter__(self) -> threading.Thread:
        self._thread.start()
        return self._thread

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(100.0)


class _Lines(logging.Handler):
    """Keeps the lines of the library's log from WARNING on, with the seconds since the start."""

    def __init__(self, lines: list[str], began: float) -> None:
        super().__init__(logging.WARNING)
        self._lines, self._began = lines, began

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line, unless it is on a message."""
        if record.name == "redelivery.messages":
            return
        self._lines.append(f"{time.monotonic() - self._began:6.1f} {record.levelname} {record.getMessage()}")

    def __enter__(self) -> None:
        logging.getLogger("redelivery").addHandler(self)

    def __exit__(self, *_: object) -> None:
        logging.getLogger("redelivery").removeHandler(self)


def _gone_is_empty(take: Callable[[], list[bytes]]) -> list[bytes]:
    """Return what is taken; nothing of a queue that does not exist."""
    try:
        return take()
    except Exception as error:
        if "not-found" in str(error) or "no queue" in str(error):
            return []
        raise
