"""Make the recordings of `benchmarks.fed` anew: what Artemis sends to this library for a prefilled queue.

    python -m benchmarks.record [--protocol both]

Starts the Artemis of `integration.brokers`. The 5,000 messages are those of `benchmarks.fill` and
`benchmarks.fill_amqp`. A recording holds all bytes of one connection from the broker to the client, compressed. It is
fed to this library once, as a test.
"""

from __future__ import annotations

import argparse
import gzip
import socket
from typing import TYPE_CHECKING, Any

from integration.brokers import Artemis, BrokerError

import redelivery
from benchmarks.before import fill_queue
from benchmarks.consume_fed import OPTIONS, QUEUE, SIZE, consume
from benchmarks.replay import PROTOCOLS, connecting_with, recording
from redelivery.adapter_support.sockets import connected

if TYPE_CHECKING:
    from integration.brokers import Broker

    from redelivery import Message

__all__ = ["main"]

MESSAGES = 5000


class RecordedSocket(socket.socket):
    """A socket that keeps what is read from it."""

    def __init__(self, connected_socket: socket.socket) -> None:
        super().__init__(fileno=connected_socket.detach())
        self.bytes_read = bytearray()

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        """Read; over STOMP."""
        data = super().recv(size, flags)
        self.bytes_read += data
        return data

    def recv_into(self, buffer: Any, size: int = 0, flags: int = 0) -> int:
        """Read; over AMQP."""
        read = super().recv_into(buffer, size, flags)
        self.bytes_read += buffer[:read]
        return read


def record(broker: Broker, protocol: str) -> bytes:
    """Fill a queue, consume it, and return what the broker sent."""
    fill_queue(broker, protocol, QUEUE, MESSAGES)
    links: list[RecordedSocket] = []
    seen = 0

    def connect(*arguments: Any) -> socket.socket:
        links.append(RecordedSocket(connected(*arguments)))
        return links[-1]

    def handle(message: Message) -> None:
        nonlocal seen
        seen += 1
        if len(message.body) != SIZE or message.headers["xid"] is None:
            raise ValueError("wrong message")
        if seen == MESSAGES:
            connection.stop()

    with (
        connecting_with(protocol, connect),
        redelivery.connect(f"{broker.uri(protocol=protocol)}&{OPTIONS}") as connection,
    ):
        connection.listen(QUEUE, handle)
        report = connection.run()
    if report.accepted != MESSAGES or len(links) != 1:
        raise SystemExit(f"{protocol}: {len(links)} connections, {report}")
    return bytes(links[0].bytes_read)


def renew(broker: Broker, protocol: str) -> None:
    """Record one protocol, write the recording, and feed it once."""
    data = gzip.compress(record(broker, protocol), mtime=0)
    recording(protocol).write_bytes(data)
    messages, cpu_us = consume(protocol)
    print(
        f"{protocol}: {messages:,} messages of Artemis {broker.version} in {len(data):,} bytes; "
        f"fed once: {cpu_us:.1f} µs a message",
        flush=True,
    )


def main() -> None:
    """Start the broker, and renew the recordings."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.record",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--protocol", choices=(*PROTOCOLS, "both"), default="both")
    given = parser.parse_args()
    if (why := Artemis.unavailable()) is not None:
        parser.error(why)
    try:
        Artemis.obtain()
        with Artemis() as broker:
            for protocol in PROTOCOLS if given.protocol == "both" else (given.protocol,):
                renew(broker, protocol)
    except BrokerError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
