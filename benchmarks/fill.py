"""Sends over a plain socket: bodies of 256 B or another size, two properties, non-persistent."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    from integration.brokers import Broker

__all__ = ["fill", "send_times"]

AT_ONCE = 500
# Its receipt proves that the broker has read all frames before it. On Artemis a message with a receipt of its own
# would have one more header than the others, and the Spark source reads messages with the same headers in a third of
# the time.
SEEN = b"BEGIN\ntransaction:r\n\n\0ABORT\ntransaction:r\nreceipt:r\n\n\0"


def fill(broker: Broker, queue: str, messages: int, size: int = 256) -> None:
    """Send this number of messages, and wait until the broker has confirmed them."""
    head, body = _head(broker, queue, size), b"x" * size
    with _connected(broker) as link:
        for start in range(0, messages, AT_ONCE):
            count = min(AT_ONCE, messages - start)
            frames = [
                b"%bxid:k%d\nxtype:order.created\n\n%b\0" % (head, start + i, body) for i in range(count)
            ]
            link.sendall(b"".join([*frames, SEEN]))
            _answer(link, b"RECEIPT")


def send_times(broker: Broker, queue: str, per_second: int, size: int, ended: threading.Event) -> None:
    """Send messages at this rate until `ended`; each body begins with its time of sending, in 17 characters."""
    head, began, sent = _head(broker, queue, size), time.monotonic(), 0
    with _connected(broker) as link:
        while not ended.wait(0.01):
            due = int((time.monotonic() - began) * per_second) - sent
            body = b"%017.6f" % time.time() + b"x" * (size - 17)
            link.sendall(b"%bxid:k\nxtype:order.created\n\n%b\0" % (head, body) * due)
            sent += due


def _head(broker: Broker, queue: str, size: int) -> bytes:
    own = {"artemis": b"persistent:false\ndestination-type:ANYCAST\n", "activemq": b"persistent:false\n"}
    destination = broker.destination(queue).encode()
    return b"SEND\ndestination:%b\n%bcontent-length:%d\n" % (destination, own.get(broker.name, b""), size)


@contextlib.contextmanager
def _connected(broker: Broker) -> Iterator[socket.socket]:
    with socket.create_connection((broker.host, broker.stomp_port)) as link:
        login = f"login:{broker.user}\npasscode:{broker.password}\n"
        link.sendall(f"CONNECT\naccept-version:1.2\nhost:/\n{login}\n\0".encode())
        _answer(link, b"CONNECTED")
        yield link


def _answer(link: socket.socket, command: bytes) -> None:
    received = b""
    while b"\0" not in received:
        chunk = link.recv(65536)
        if not chunk:
            raise ConnectionError(f"closed: {received!r}")
        received += chunk
    if not received.lstrip().startswith(command):
        raise ConnectionError(received.decode(errors="replace"))
