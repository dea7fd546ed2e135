"""Measures how a queue is browsed without consuming: `python -m integration.measure_browse [BROKER ...]`.

The source of "Browsing" in docs/measured/activemq-stomp.md, artemis-stomp.md, rabbitmq-stomp.md and amqp.md.
"""

from __future__ import annotations

import itertools
import sys
import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from integration.brokers import BROKERS, STOMP_BROKERS
from integration.raw_amqp import AmqpError, RawAmqp, proton, reactor
from integration.raw_stomp import RawStomp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from integration.brokers import Broker

MANY = 3000  # more than ActiveMQ Classic pages in
_names = itertools.count(1)


def fresh() -> str:
    """Return the name of a new queue."""
    return f"browse.{uuid.uuid4().hex[:8]}"


def say(broker: Broker, protocol: str, what: str, found: object) -> None:
    """Print one line."""
    print(f"{broker.name} {protocol} {what}: {found}", flush=True)


class Stomp:
    """The measurements over STOMP."""

    name = "stomp"

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def send(self, queue: str, count: int) -> None:
        """Send messages, of which every tenth has `kind` b."""
        with RawStomp(self.broker) as raw:
            for number in range(count):
                raw.connection.send(
                    self.broker.destination(queue),
                    b"%d" % number,
                    headers={
                        **self.broker.send_headers,
                        "persistent": "true",
                        "kind": "ab"[number % 10 == 9],
                    },
                )
            raw.send(queue + ".end", b"")

    def browse(self, queue: str, selector: str = "", window: int = 0) -> tuple[str, int]:
        """Browse; return the messages, and how it ended."""
        windows = {"activemq.prefetchSize": str(window), "consumer-window-size": str(window * 1024)}
        extra = {
            "browser": "true",
            **({"selector": selector} if selector else {}),
            **(windows if window else {}),
        }
        with RawStomp(self.broker) as raw:
            begun = time.monotonic()
            headers = {**self.broker.subscribe_headers, **extra}
            raw.connection.subscribe(
                self.broker.destination(queue),
                "1",
                "auto" if self.broker.name != "rabbitmq" else "client-individual",
                headers,
            )
            frames = raw.messages(1.5)
            end = [f for f in frames if f.headers.get("browser") == "end"]
            shown = [f for f in frames if f not in end]
            marks = sorted({str(f.headers.get("redelivered")) for f in shown})
            last = dict(end[0].headers) if end else "no mark of the end"
            took = time.monotonic() - begun - 1.5
            return (
                f"{len(shown)} frames, {[f.command for f in shown[:1]]} redelivered={marks}, {took:.2f} s, end: {last}",
                len(shown),
            )

    def consume(self, queue: str, selector: str = "") -> str:
        """Return the number of messages of a consumer that settles each, and their redelivered flags."""
        with RawStomp(self.broker) as raw:
            raw.subscribe(queue, **({"selector": selector} if selector else {}))
            frames = []
            while (frame := raw.next(2.0)) is not None:
                frames.append(frame)
                raw.ack(frame, wait=False)
            return f"{len(frames)} redelivered={sorted({str(f.headers.get('redelivered')) for f in frames})}"

    def take(self, queue: str) -> str:
        """Receive, settle no message, unsubscribe and disconnect."""
        with RawStomp(self.broker) as raw:
            raw.subscribe(queue)
            found = len(raw.messages(1.0))
            raw.connection.unsubscribe("1")
            return f"{found} taken, unsubscribed"


class Amqp:
    """The measurements over AMQP."""

    name = "amqp"

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def send(self, queue: str, count: int) -> None:
        """Send messages, of which every tenth has `kind` b."""
        with RawAmqp(self.broker, timeout=60) as raw:
            sender = raw.declare(queue)
            link, tags = sender.link, itertools.count()
            sent = []
            for number in range(count):
                message = proton.Message(
                    body=b"%d" % number, durable=True, properties={"kind": "ab"[number % 10 == 9]}
                )
                raw.connection.wait(lambda: link.credit > 0)
                delivery = link.delivery(f"t{next(tags)}")
                link.stream(message.encode())
                link.advance()
                sent.append(delivery)
            raw.connection.wait(lambda: all(d.remote_state for d in sent[-1:]))

    def _receiver(self, raw: RawAmqp, queue: str, *, copy: bool, selector: str = "") -> Any:
        options = raw._options("source")

        class Copy(reactor.LinkOption):  # type: ignore[misc]  # proton has no types
            def apply(self, link: Any) -> None:
                if copy:
                    link.source.distribution_mode = proton.Terminus.DIST_MODE_COPY

        if selector:
            options.append(reactor.Selector(selector))
        return raw.connection.create_receiver(
            self.broker.address(queue), credit=0, name=f"b{next(_names)}", options=[*options, Copy()]
        )

    def _drain(self, raw: RawAmqp, receiver: Any, credit: int) -> tuple[list[Any], str]:
        """Give credit and drain it until a drain brings no message; return the messages, and how it ended."""
        begun, found, drains = time.monotonic(), list[Any](), list[int]()
        incoming = receiver.fetcher.incoming
        try:
            while not drains or (drains[-1] and credit > 100):
                receiver.link.drain(credit)
                raw.connection.wait(lambda: receiver.link.credit == 0, timeout=10.0)
                drains.append(len(incoming))
                while incoming:
                    found.append(incoming.popleft())
        except proton.Timeout:
            drains.append(-1)
        took = time.monotonic() - begun
        with suppress(proton.Timeout):
            while True:
                raw.connection.wait(lambda: incoming, timeout=1.0)
                found.append(incoming.popleft())
        return found, f"drains brought {drains} (-1: no answer) in {took:.2f} s"

    def browse(self, queue: str, selector: str = "", window: int = 0) -> tuple[str, int]:
        """Browse; return the messages, and how it ended."""
        with RawAmqp(self.broker) as raw:
            receiver = self._receiver(raw, queue, copy=True, selector=selector)
            mode = receiver.link.remote_source.distribution_mode
            found, end = self._drain(raw, receiver, window or 10_000)
            counts = sorted({(m.delivery_count, m.first_acquirer) for m, *_ in found})
            copy = proton.Terminus.DIST_MODE_COPY
            return f"{len(found)}, mode {mode} (copy is {copy}), (dc, fa) {counts}, {end}", len(found)

    def consume(self, queue: str, selector: str = "") -> str:
        """Return the number of messages of a consumer that settles each, and their redelivered flags."""
        with RawAmqp(self.broker) as raw:
            receiver = self._receiver(raw, queue, copy=False, selector=selector)
            receiver.link.flow(100)
            seen = []
            with suppress(proton.Timeout):
                while True:
                    message = receiver.receive(2.0)
                    seen.append((message.delivery_count, message.first_acquirer))
                    receiver.accept()
                    receiver.link.flow(1)
            return f"{len(seen)} (dc, fa) {sorted(set(seen))}"

    def take(self, queue: str) -> str:
        """Receive, release all messages, close."""
        with RawAmqp(self.broker) as raw:
            receiver = self._receiver(raw, queue, copy=False)
            found, end = self._drain(raw, receiver, 100)
            for _ in found:
                receiver.fetcher.unsettled and receiver.release(delivered=False)
            return f"{len(found)} taken and released; {end}"


def measure(pair: Stomp | Amqp) -> None:
    """Run all measurements of one broker and protocol."""
    broker = pair.broker

    def attempt(what: str, act: Callable[[], object]) -> None:
        try:
            say(broker, pair.name, what, act())
        except (AmqpError, AssertionError, OSError) as error:
            say(broker, pair.name, what, f"{type(error).__name__}: {error}")

    queue, empty, many = fresh(), fresh(), fresh()
    pair.send(queue, 10)
    attempt("an empty queue", lambda: (pair.send(empty, 0), pair.browse(empty)[0])[1])
    attempt("ten", lambda: pair.browse(queue)[0])
    attempt("ten once more", lambda: pair.browse(queue)[0])
    attempt("ten, a window of three", lambda: pair.browse(queue, window=3)[0])
    attempt("one by a selector", lambda: pair.browse(queue, selector="kind = 'b'")[0])
    attempt("then consumed", lambda: pair.consume(queue))
    queue = fresh()
    pair.send(queue, 10)
    attempt("taken", lambda: pair.take(queue))
    attempt("then consumed", lambda: pair.consume(queue))
    pair.send(many, MANY)
    attempt(f"{MANY}", lambda: pair.browse(many)[0])
    attempt(
        f"{MANY}: a consumer with a selector that a tenth matches", lambda: pair.consume(many, "kind = 'b'")
    )


def pairs(broker: Broker) -> Iterable[Stomp | Amqp]:
    """Return the measurements of each protocol of one broker."""
    if broker.name in STOMP_BROKERS:
        yield Stomp(broker)
    yield Amqp(broker)


def main(names: list[str]) -> None:
    """Measure every broker, or the named ones."""
    for name in names or sorted(BROKERS):
        with BROKERS[name]() as broker:
            for pair in pairs(broker):
                measure(pair)


if __name__ == "__main__":
    main(sys.argv[1:])
