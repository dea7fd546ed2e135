"""Fills a dead-letter queue with copies as the library makes them, of seven causes."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from integration.raw_amqp import RawAmqp, proton
from integration.raw_stomp import RawStomp

if TYPE_CHECKING:
    from integration.brokers import Broker

__all__ = ["CAUSES", "fill", "with_cause"]

CAUSES = ("ValueError", "KeyError", "OSError", "TypeError", "ConnectionError", "crash", "TimeoutError")


def properties(number: int, origin: str) -> dict[str, str]:
    """What a dead letter tells of itself."""
    kind = CAUSES[number % len(CAUSES)]
    return {
        "redeliveryCause": kind if kind == "crash" else f"{kind}: order {number}",
        "redeliveryCount": "7",
        "redeliveryOriginalDestination": f"queue://{origin}",
        "redeliveryOriginalId": f"original-{number}",
        "redeliveryOriginalDeliveryMode": "PERSISTENT",
        "redeliveryLastFailure": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }


def with_cause(cause: str, count: int) -> set[str]:
    """The original ids of those among `count` that died of it."""
    return {f"original-{number}" for number in range(count) if CAUSES[number % len(CAUSES)] == cause}


def fill(broker: Broker, protocol: str, queue: str, origin: str, count: int) -> None:
    """Put so many dead letters on a queue, over the protocol that they will be read with."""
    if protocol == "stomp":
        with RawStomp(broker) as stomp:
            for number in range(count):
                headers = {**broker.send_headers, "persistent": "true", **properties(number, origin)}
                stomp.connection.send(broker.destination(queue), b"%d" % number, headers=headers)
            stomp.send(f"{queue}.end", b"")  # its receipt comes behind all of them
        return
    with RawAmqp(broker, timeout=120) as amqp:
        link, tags, last = amqp.declare(queue).link, itertools.count(), None
        for number in range(count):
            told = properties(number, origin)
            message = proton.Message(
                id=f"ID:{queue}:{number}", body=b"%d" % number, durable=True, properties=told
            )
            message.inferred = True
            if link.credit <= 0:
                amqp.connection.wait(lambda: link.credit > 0)
            last = link.delivery(f"t{next(tags)}")
            link.stream(message.encode())
            link.advance()
        amqp.connection.wait(lambda: last is None or last.remote_state)
