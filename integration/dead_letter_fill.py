"""Fills a dead-letter queue with copies as the library makes them, of seven causes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from integration.peers import pour

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
    letters = (
        (b"%d" % number, f"ID:{queue}:{number}", properties(number, origin)) for number in range(count)
    )
    pour(broker, protocol, queue, letters)
