"""Attributes of spans and metrics: of the broker, of destinations, of results.

Names are those of OpenTelemetry's conventions for messaging. Names that these do not have begin with
`redelivery`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from redelivery.core.destination import KINDS, Destination
from redelivery.core.policy.wildcards import is_pattern

if TYPE_CHECKING:
    from redelivery.events import DeadLettered, Finished

__all__ = [
    "OTHER",
    "Attributes",
    "Operation",
    "broker_attributes",
    "dead_letter_attributes",
    "error_type",
    "has_failed",
    "named",
    "result_attributes",
    "template_of",
]

Attributes = dict[str, str | int | float | bool]

# Most characters of a cause: it may contain a whole document that could not be read.
_TEXT = 256
# Most destinations that are kept: a producer may use a new name for each answer.
_KEPT = 1000
# Names of the conventions. They have none for Broker-J.
_SYSTEMS = {"artemis": "activemq", "qpid-broker-j": "qpid"}
# Value of the conventions for a failure without a name.
OTHER = "_OTHER"
_TEMPORARY = "(temporary)"


def broker_attributes(broker: str, address: str) -> Attributes:
    """Return the attributes of the broker, for all spans and metrics."""
    found: Attributes = {"messaging.system": _SYSTEMS.get(broker, broker)}
    # Behind the URI of a node that shares its name is the node's IP address.
    parts = urlsplit(address.partition(" ")[0])
    # The memory broker is in this process, and has no address.
    if parts.hostname and broker != "memory":
        found["server.address"] = parts.hostname
        if parts.port:
            found["server.port"] = parts.port
    return found


def named(destination: str) -> tuple[str, Attributes]:
    """Return the name that a span has for a destination, and its attributes.

    As in Java clients, the name has no kind, which is an attribute of this library. A topic may have the name
    of a queue.
    """
    kind, mark, name = destination.partition("://")
    if not mark or kind not in KINDS:
        kind, name = "queue", destination
    found: Attributes = {"messaging.destination.name": name, "redelivery.destination.kind": kind}
    if kind.startswith("temp-"):
        # One name for all temporary destinations: otherwise each answer would be a time series.
        found |= {"messaging.destination.name": _TEMPORARY, "messaging.destination.temporary": True}
        name = _TEMPORARY
    return name, found


def template_of(destination: str) -> str | None:
    """Return the destination of a consumer if it is a pattern of many destinations, or None."""
    found = Destination.parse(destination)
    return found.name if is_pattern(found) else None


class Operation:
    """Operation of the conventions: names of its spans, and the attributes that they begin with."""

    def __init__(self, name: str, common: Attributes) -> None:
        """Take `send`, `process` or `settle`, and the broker's attributes."""
        self._name = name
        self._common = {**common, "messaging.operation.name": name, "messaging.operation.type": name}
        self._known: dict[str, tuple[str, Attributes]] = {}

    def on(self, destination: str) -> tuple[str, Attributes]:
        """Return the name and the attributes for a destination. The caller must not change them."""
        found = self._known.get(destination)
        if found is None:
            name, own = named(destination)
            found = f"{self._name} {name}", self._common | own
            if len(self._known) < _KEPT:
                self._known[destination] = found
        return found


def has_failed(result: Finished) -> bool:
    """True if a handler has failed, charged or not. Defer, discard and release are not failures."""
    return result.verdict in ("failed", "poison")


def error_type(result: Finished) -> str | None:
    """Return the type of error that a delivery ended with, or None."""
    if not has_failed(result):
        return None
    error = result.error
    name = (result.cause_type or OTHER) if error is None else type(error).__name__
    return "timeout" if name == "HandlerTimeout" else name


def result_attributes(result: Finished) -> Attributes:
    """Return the attributes of the end of a delivery."""
    delivery, subscription = result.delivery, result.subscription
    found: Attributes = {"redelivery.delivery.count": result.delivery_count}
    wanted = {
        # The id of the send, if this library sent the message.
        "messaging.message.id": result.sent_as or result.message_id,
        "messaging.message.conversation_id": delivery.correlation_id,
        "messaging.destination.subscription.name": subscription,
        "redelivery.outcome": result.outcome,
        "redelivery.delivery.maximum": result.maximum,
        "redelivery.delay": result.delay,
        "redelivery.cause": None if result.cause is None else result.cause[:_TEXT],
        "error.type": error_type(result),
    }
    found.update((name, value) for name, value in wanted.items() if value is not None)
    return found


def dead_letter_attributes(event: DeadLettered) -> Attributes:
    """Return the attributes of a dead letter."""
    found: Attributes = {
        "redelivery.delivery.count": event.delivery_count,
        "redelivery.cause": event.cause[:_TEXT],
        "redelivery.outcome": "poisoned",
    }
    if (name := event.sent_as or event.message_id) is not None:
        found["messaging.message.id"] = name
    return found
