"""Substitute of `JavaClient` with plain stomp.py, if JMS clients and STOMP consumers do not understand each other.

On RabbitMQ an AMQP 1.0 client's message reaches a STOMP consumer in AMQP's own encoding, and a STOMP producer's headers
do not reach an AMQP 1.0 client. This client distinguishes text and bytes by `amq-msg-type`, and sets the id of each
message.
"""

from __future__ import annotations

import re
import time
import uuid
from typing import TYPE_CHECKING

from integration.eventually import PATIENCE
from integration.java_client import JmsMessage
from integration.raw_stomp import RawStomp
from integration.running import Running
from redelivery.testing.conformance.bench import as_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from integration.brokers import Broker
    from integration.java_client import Property
    from integration.raw_stomp import Frame

QUIET = 0.3  # seconds for the release of messages of consumers that have just left


class StompClient(Running):
    """Connects for each call: it works over restarts of its broker."""

    kind = "stomp"

    def __init__(self, broker: Broker) -> None:
        """Nothing is connected."""
        self._broker = broker

    def send(
        self,
        queue: str | None,
        body: bytes = b"",
        *,
        kind: str = "text",
        topic: str | None = None,
        persistent: bool = True,
        properties: Mapping[str, Property] | None = None,
        priority: int | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        ttl: int | None = None,
        type: str | None = None,  # noqa: A002 -- the JMS name
        copies: int = 1,
    ) -> str:
        """Send text or bytes and return the id; with `copies` > 1 that of the last one, each with its `number`."""
        if kind not in ("text", "bytes"):
            raise ValueError(f"a STOMP client sends no {kind}")
        headers = {name: as_text(value) for name, value in (properties or {}).items()}
        optional = {
            "amq-msg-type": "text" if kind == "text" else None,
            "persistent": "true" if persistent else None,
            "priority": priority,
            "correlation-id": correlation_id,
            "type": type,
            "reply-to": None if reply_to is None else self._broker.destination(reply_to),
            "expiration": ttl,
            # As a JMS client does.
            "timestamp": int(time.time()),
            "expires": None if ttl is None else int(time.time() * 1000) + ttl,
        }
        headers |= {name: str(value) for name, value in optional.items() if value is not None}
        destination = f"/topic/{topic}" if queue is None else self._broker.destination(queue)
        needed = {} if queue is None else self._broker.send_headers
        identity = ""
        with RawStomp(self._broker, auto_content_length=False) as raw:
            for number in range(copies):
                identity = uuid.uuid4().hex
                own = {"amqp-message-id": identity, "content-length": str(len(body))}
                own |= {"number": str(number)} if copies > 1 else {}
                own |= {"receipt": "last"} if number == copies - 1 else {}
                raw.connection.send(destination, body, headers={**needed, **headers, **own})
            raw.confirmed("last")
        return identity

    def browse(self, queue: str, selector: str | None = None) -> list[JmsMessage]:
        """Read all messages that no consumer has, and release them; their redelivered flag is set after that."""
        return self._look(queue, selector, take=False)

    def count(self, queue: str, selector: str | None = None) -> int:
        """Return the number of messages that `browse` would return."""
        return len(self.browse(queue, selector))

    def drain(
        self,
        queue: str,
        *,
        timeout: float = QUIET,
        selector: str | None = None,
        expected: int = 0,
        to_the_end: bool = True,
    ) -> list[JmsMessage]:
        """Receive all messages, until none arrives for `timeout` seconds. `expected`: all are found in any case."""
        del expected, to_the_end
        return self._look(queue, selector, take=True, quiet=min(timeout, QUIET))

    def close(self) -> None:
        """Nothing is connected."""

    def _look(
        self, queue: str, selector: str | None, *, take: bool, quiet: float = QUIET
    ) -> list[JmsMessage]:
        """Receive all messages up to one that is sent after them, and those that are released meanwhile."""
        end = uuid.uuid4().hex.encode()
        wanted = re.fullmatch(r"(\w+) = '([^']*)'", selector) if selector else None
        with RawStomp(self._broker) as raw:
            raw.send_frame(queue, end, {})
            raw.subscribe(queue)
            frames: list[Frame] = []
            while (frame := raw.next(PATIENCE)) is not None and frame.body != end:
                frames.append(frame)
            assert frame is not None, f"what was sent to {queue} has not come"
            frames += raw.messages(quiet)
            found = [f for f in frames if wanted is None or f.headers.get(wanted[1]) == wanted[2]]
            for each in (*(found if take else ()), frame):
                raw.ack(each, wait=False)
            # RabbitMQ 4.3 forgets an acceptance that the end of the connection follows at once. It answers the end of
            # the subscription after it has taken the acceptance.
            raw.unsubscribe()
        return [_message(each) for each in found]


def _message(frame: Frame) -> JmsMessage:
    headers = frame.headers
    return JmsMessage(
        kind="text" if headers.get("amq-msg-type") == "text" else "bytes",
        body=frame.body,
        value=None,
        properties=dict(headers),
        property_types={},
        message_id=headers.get("amqp-message-id", ""),
        persistent=headers.get("persistent") == "true",
        redelivered=headers.get("redelivered") == "true",
        correlation_id=headers.get("correlation-id"),
        correlation_bytes=None,
        destination=headers["destination"],
        reply_to=headers.get("reply-to"),
        type=headers.get("type"),
        priority=int(headers.get("priority", 4)),
        timestamp=0,
        expiration=int(headers.get("expires", 0)),
    )
