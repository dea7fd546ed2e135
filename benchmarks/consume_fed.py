"""One round of this library's consumer on a recording: PROTOCOL. Prints JSON, with the smallest time of four.

    recorded bytes -> adapter -> engine -> handler -> bytes of the acknowledgements

The library runs as always, with its own threads; only its socket is `benchmarks.replay.FedSocket`. A read brings the
next messages when all earlier ones were handled: one thread works at a time, and no round has more switches of threads
than another. The time is that of all threads, from the first message to the write of the last acknowledgement.
"""

from __future__ import annotations

import gc
import gzip
import json
import logging
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import redelivery
from benchmarks.replay import CHUNK, AmqpReplay, FedSocket, StompReplay, connecting_with, recording

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from benchmarks.replay import Replay
    from redelivery import Message

__all__ = ["OPTIONS", "QUEUE", "SIZE", "consume", "main"]

QUEUE = "fed"
LOG_IN = "jms.userName=tester&jms.password=secret"
SIZE = 256  # bytes of a body
# The credit and the policy of `benchmarks.consume_redelivery`; no heart-beats within a round. The names of links begin
# with the id of the client.
OPTIONS = (
    "jms.clientID=fed&jms.redeliveryPolicy.maximumRedeliveries=4"
    # A topic is named: the recorded broker answers no question about its own place, or about queues.
    "&redelivery.credit=1000&redelivery.heartbeat=3600000&redelivery.deadLetterDestination=topic://dead"
)
TIMES = 4
PATIENCE = 30.0  # seconds
MOMENT = 0.005  # seconds; the library writes its last acknowledgements after 1 to 2 ms


class Feed:
    """The handler, and the messages that it gets: it lets the library read more when it has handled all."""

    def __init__(self, link: FedSocket) -> None:
        self.handled: list[str] = []
        self.over = threading.Event()
        self._link = link
        self._chunks: Iterator[tuple[bytes, int]] = iter(())
        self._given = 0

    def begin(self, messages: Sequence[bytes]) -> float:
        """Give the first messages; return the processor time before."""
        self._chunks = iter(chunks(messages))
        self._link.begin()
        gc.collect()
        began = time.process_time()
        self._give()
        return began

    def _give(self) -> None:
        data, number = next(self._chunks, (b"", 0))
        self._given += number
        if data:
            self._link.give(data)
        else:
            self.over.set()

    def handle(self, message: Message) -> None:
        """Read the body and one header, as the handlers of the other benchmarks do."""
        if len(message.body) != SIZE:
            raise ValueError("wrong message")
        self.handled.append(message.headers["xid"])
        if len(self.handled) == self._given:
            self._give()


def chunks(messages: Sequence[bytes]) -> list[tuple[bytes, int]]:
    """Return the bytes of each read, and how many messages they are."""
    found: list[list[bytes]] = [[]]
    size = 0
    for message in messages:
        if size + len(message) > CHUNK:
            found.append([])
            size = 0
        found[-1].append(message)
        size += len(message)
    return [(b"".join(each), len(each)) for each in found]


def consume(protocol: str, most: int | None = None) -> tuple[int, float]:
    """Consume a recording, or its first messages; return their number, and µs of processor time a message.

    Raises:
        RuntimeError: A message was not handled once, or not acknowledged once.
    """
    sent = gzip.decompress(recording(protocol).read_bytes())
    replay: Replay = StompReplay(sent, most) if protocol == "stomp" else AmqpReplay(sent, most)
    link = FedSocket(replay)
    try:
        with connecting_with(protocol, lambda *_: link):
            return len(replay.messages), fed(protocol, replay, link) / len(replay.messages)
    except redelivery.TransportError as error:
        anew = "the adapter does not speak as it did when it was recorded: python -m benchmarks.record"
        raise RuntimeError(f"{error}; {anew}") from error


def fed(protocol: str, replay: Replay, link: FedSocket) -> float:
    """Consume; return µs of processor time."""
    feed = Feed(link)
    with redelivery.connect(f"{protocol}://127.0.0.1:1?{LOG_IN}&{OPTIONS}") as connection:
        try:
            connection.listen(QUEUE, feed.handle)
            connection.start()
            # Not before: the messages have the name of the subscription.
            began = feed.begin(replay.messages)
            feed.over.wait(PATIENCE)
            check(replay, link, feed)
        finally:
            connection.close(timeout=0)
    return 1e6 * (link.last_write - began)


def check(replay: Replay, link: FedSocket, feed: Feed) -> None:
    """Wait until all acknowledgements are written. Raises RuntimeError if something is missing, or is there twice."""
    messages = len(replay.messages)
    if not len(set(feed.handled)) == len(feed.handled) == messages:
        raise RuntimeError(f"{len(feed.handled)} messages were handled, of {messages}")
    deadline = time.monotonic() + PATIENCE
    found: Sequence[Hashable] = ()
    while Counter(found) != Counter(replay.identities):
        if len(found) > messages or time.monotonic() > deadline:
            raise RuntimeError(f"{len(found)} acknowledgements were written, for {messages} messages")
        # Before a look, which takes processor time.
        time.sleep(MOMENT)
        found = replay.acknowledged(link.written)


def main() -> None:
    """Consume, and print the result and the library that was measured."""
    logging.getLogger("redelivery").setLevel(logging.CRITICAL)
    protocol = sys.argv[1]
    # Not the first time: the interpreter adapts its code then, and gets memory.
    messages, cpu_us = min(consume(protocol) for _ in range(TIMES))
    used = (redelivery, sys.modules[f"redelivery_{protocol}"])
    libraries = sorted({str(Path(str(module.__file__)).parents[2]) for module in used})
    print(json.dumps({"messages": messages, "cpu_us": cpu_us, "libraries": libraries}))


if __name__ == "__main__":
    main()
