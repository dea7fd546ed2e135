"""Poison whose copy is larger than a frame of its broker: a whole connection, over a socket."""

from __future__ import annotations

import re
import socket
import threading
from contextlib import suppress

import pytest
from tests.eventually import eventually
from tests.stomp.peer import PATIENCE

import redelivery
from redelivery import AdapterError


class SmallPeer:
    """A RabbitMQ on a free port with one poison message and one other. It closes on a SEND of over 100 headers."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.connections = 0
        self.accepted: list[bytes] = []
        self.port: int = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                accepted, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            with accepted, suppress(OSError):
                self._converse(accepted)

    def _converse(self, accepted: socket.socket) -> None:
        heard, shown, properties = b"", False, b"".join(b"h%d:v\n" % number for number in range(95))
        while chunk := accepted.recv(65536):
            *frames, heard = (heard + chunk).split(b"\0")
            for each in frames:
                head = each.lstrip(b"\n")
                if head.startswith(b"SEND") and head.partition(b"\n\n")[0].count(b"\n") > 100:
                    return
                if head.startswith(b"CONNECT"):
                    accepted.sendall(b"CONNECTED\nversion:1.2\nserver:RabbitMQ/4.3.6\nheart-beat:0,0\n\n\0")
                if head.startswith(b"ACK"):
                    self.accepted.append(head)
                for receipt in re.findall(rb"\nreceipt:([^\n]+)", head):
                    accepted.sendall(b"RECEIPT\nreceipt-id:%b\n\n\0\n" % receipt)
                if head.startswith(b"SUBSCRIBE") and not shown:
                    shown = True
                    (identity,) = re.findall(rb"\nid:([^\n]+)", head)
                    for body in (b"bad", b"good"):
                        accepted.sendall(
                            b"MESSAGE\n%bsubscription:%b\ndestination:/queue/orders\nack:T_%b@@s@@%b\n"
                            b"message-id:T_%b@@s@@%b\ncontent-length:%d\n\n%b\0\n"
                            % (properties, identity, identity, body, identity, body, len(body), body)
                        )

    def end(self) -> None:
        """Take no more connections."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(PATIENCE)


def test_poison_without_an_id_is_set_aside() -> None:
    """After two ends and three runs of its handler; the connection then stands, and the other message is accepted."""
    peer = SmallPeer()
    runs: list[bytes] = []

    def handle(message: redelivery.Message) -> None:
        runs.append(message.body)
        if message.body == b"bad":
            raise ValueError("no such order")

    uri = f"failover:(stomp://127.0.0.1:{peer.port})?initialReconnectDelay=10"
    uri += "&jms.redeliveryPolicy.maximumRedeliveries=0"
    connection = redelivery.connect(uri)
    connection.listen("orders", handle)
    with connection.running():
        eventually(lambda: connection.report().set_aside == 1)
        eventually(lambda: any(b"good" in each for each in peer.accepted))
        with pytest.raises(AdapterError, match="more than 100 headers, and this message needs 1"):
            connection.send("orders", "x", headers={f"h{number}": "v" for number in range(110)})
        report = connection.report()
    peer.end()
    assert (peer.connections, runs.count(b"bad"), report.poisoned) == (3, 3, 0)
