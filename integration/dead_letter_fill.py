"""Fills a dead-letter queue with dead letters like the library's, with seven causes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from integration.peers import pour

if TYPE_CHECKING:
    from integration.brokers import Broker

__all__ = ["CAUSES", "fill", "with_cause"]

CAUSES = ("ValueError", "KeyError", "OSError", "TypeError", "ConnectionError", "crash", "TimeoutError")


def properties(number: int, origin: str) -> dict[str, str]:
    """Return the properties of a dead letter."""
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
    """Return the original ids of those among `count` dead letters with this cause."""
    return {f"original-{number}" for number in range(count) if CAUSES[number % len(CAUSES)] == cause}


def fill(broker: Broker, protocol: str, queue: str, origin: str, count: int) -> None:
    """Put this number of dead letters on a queue, over the protocol by which they will be read."""
    letters = (
        (b"%d" % number, f"ID:{queue}:{number}", properties(number, origin)) for number in range(count)
    )
    pour(broker, protocol, queue, letters)
