"""One round of a plain stomp.py loop that acknowledges each message: BROKER URI QUEUE N. Prints JSON."""

from __future__ import annotations

import json
import resource
import sys
import threading
import time
from typing import Any

import stomp
from stomp.listener import ConnectionListener

from redelivery.uri.parser import parse_uri

PREFETCH = {
    "artemis": {"consumer-window-size": "2048000", "subscription-type": "ANYCAST"},
    "activemq": {"activemq.prefetchSize": "1000"},
    "rabbitmq": {"prefetch-count": "1000"},
}


class Loop(ConnectionListener):
    """Reads the body and one header, and acknowledges."""

    def __init__(self, connection: Any, messages: int) -> None:
        self.connection, self.messages = connection, messages
        self.seen, self.started = 0, 0.0
        self.done, self.closed = threading.Event(), threading.Event()

    def on_message(self, frame: Any) -> None:
        """Handle one message."""
        if not self.seen:
            self.started = time.perf_counter()
        self.seen += 1
        if len(frame.body) != 256 or frame.headers["xid"] is None:
            raise ValueError("wrong message")
        self.connection.ack(frame.headers["ack"])
        if self.seen == self.messages:
            self.done.set()

    def on_receipt(self, frame: Any) -> None:
        """End the round: the broker has read every acknowledgement."""
        self.closed.set()


def main() -> None:
    """Consume, and print the rate and the CPU time of this process per message."""
    broker, uri, queue, messages = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    settings = parse_uri(uri)
    address = [(settings.endpoints[0].host, settings.endpoints[0].port)]
    connection = stomp.Connection12(address, heartbeats=(10_000, 10_000), auto_decode=False, vhost="/")
    loop = Loop(connection, messages)
    connection.set_listener("", loop)
    password = settings.password.reveal() if settings.password else None
    connection.connect(settings.user_name, password, wait=True)
    before = resource.getrusage(resource.RUSAGE_SELF)
    destination = queue if broker == "artemis" else f"/queue/{queue}"
    connection.subscribe(destination, "1", ack="client-individual", headers=PREFETCH[broker])
    loop.done.wait(120)
    connection.unsubscribe("1", receipt="end")
    loop.closed.wait(30)
    took = time.perf_counter() - loop.started
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"rate": messages / took, "cpu_us": 1e6 * cpu / messages}))


if __name__ == "__main__":
    main()
