"""Fills a queue over AMQP: bodies of 256 B, two properties, non-persistent. URL USER PASSWORD QUEUE N [SIZE]."""

from __future__ import annotations

import sys
from typing import Any

from proton import Message, Terminus, symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container, SenderOption


class Queue(SenderOption):
    """Option of a sender to a durable queue.

    Artemis treats a plain name as a topic; RabbitMQ refuses a consumer of a queue that is not durable.
    """

    def apply(self, sender: Any) -> None:
        """Ask for a durable queue."""
        sender.target.durability = Terminus.DELIVERIES
        sender.target.capabilities.put_object(symbol("queue"))


class Fill(MessagingHandler):
    """Sends as fast as the broker gives credit."""

    def __init__(self, *arguments: str) -> None:
        super().__init__()
        self.url, self.user, self.password, self.queue, messages, *size = arguments
        self.body = b"x" * int(size[0] if size else 256)
        self.left = self.unconfirmed = int(messages)

    def on_start(self, event: Any) -> None:
        """Connect."""
        self.connection = event.container.connect(
            self.url, user=self.user, password=self.password, allowed_mechs="PLAIN"
        )
        event.container.create_sender(self.connection, self.queue, options=Queue())

    def on_sendable(self, event: Any) -> None:
        """Send."""
        while event.sender.credit and self.left:
            message = Message(body=self.body, durable=False)
            message.inferred = True
            message.properties = {"xid": f"k{self.left}", "xtype": "order.created"}
            event.sender.send(message)
            self.left -= 1

    def on_accepted(self, event: Any) -> None:
        """Count; close after the last one."""
        self.unconfirmed -= 1
        if not self.unconfirmed:
            self.connection.close()


if __name__ == "__main__":
    Container(Fill(*sys.argv[1:])).run()
