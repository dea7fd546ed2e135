"""One round of a plain proton `MessagingHandler` with auto-accept: URI QUEUE N. Prints JSON."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from proton import symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container, ReceiverOption

from redelivery.uri.parser import parse_uri


class Queue(ReceiverOption):
    """Option of a receiver from a queue: Artemis treats a plain name as a topic."""

    def apply(self, receiver: Any) -> None:
        """Ask for a queue."""
        receiver.source.capabilities.put_object(symbol("queue"))


class Loop(MessagingHandler):
    """Reads the body and one property."""

    def __init__(self, uri: str, queue: str, messages: int) -> None:
        super().__init__(prefetch=1000, auto_accept=True)
        self.settings = parse_uri(uri)
        self.queue, self.messages = queue, messages
        self.seen, self.started = 0, 0.0

    def on_start(self, event: Any) -> None:
        """Connect."""
        settings = self.settings
        self.connection = event.container.connect(
            f"amqp://{settings.endpoints[0].host}:{settings.endpoints[0].port}",
            user=settings.user_name,
            password=settings.password.reveal() if settings.password else None,
            allowed_mechs="PLAIN",
            heartbeat=10,
        )
        event.container.create_receiver(self.connection, self.queue, options=Queue())

    def on_message(self, event: Any) -> None:
        """Handle one message; proton accepts it when this returns."""
        if not self.seen:
            self.started = time.perf_counter()
        self.seen += 1
        if len(event.message.body) != 256 or event.message.properties["xid"] is None:
            raise ValueError("wrong message")
        if self.seen == self.messages:
            self.connection.close()

    def on_connection_closed(self, event: Any) -> None:
        """End the round: the broker has read every acceptance."""
        took = time.perf_counter() - self.started
        print(json.dumps({"rate": self.messages / took}))


if __name__ == "__main__":
    Container(Loop(sys.argv[1], sys.argv[2], int(sys.argv[3]))).run()
