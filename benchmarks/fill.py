"""Fills a queue over a plain socket: 256 B bodies, two properties, non-persistent."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from integration.brokers import Broker

BODY = b"x" * 256
AT_ONCE = 500


def fill(broker: Broker, queue: str, messages: int) -> None:
    """Send so many messages, and see them confirmed."""
    own = {"artemis": b"persistent:false\ndestination-type:ANYCAST\n", "activemq": b"persistent:false\n"}
    head = b"SEND\ndestination:%b\n%bcontent-length:256\n" % (
        broker.destination(queue).encode(), own.get(broker.name, b""),
    )  # fmt: skip
    with socket.create_connection((broker.host, broker.stomp_port)) as link:
        login = f"login:{broker.user}\npasscode:{broker.password}\n"
        link.sendall(f"CONNECT\naccept-version:1.2\nhost:/\n{login}\n\0".encode())
        _answer(link, b"CONNECTED")
        for start in range(0, messages, AT_ONCE):
            count = min(AT_ONCE, messages - start)
            frames = [
                b"%bxid:k%d\nxtype:order.created\n%b\n%b\0"
                % (head, start + i, b"receipt:r\n" if i == count - 1 else b"", BODY)
                for i in range(count)
            ]
            link.sendall(b"".join(frames))
            _answer(link, b"RECEIPT")


def _answer(link: socket.socket, command: bytes) -> None:
    received = b""
    while b"\0" not in received:
        chunk = link.recv(65536)
        if not chunk:
            raise ConnectionError(f"closed: {received!r}")
        received += chunk
    if not received.lstrip().startswith(command):
        raise ConnectionError(received.decode(errors="replace"))
