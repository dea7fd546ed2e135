"""Messages of the memory broker: as it stores them, as a consumer gets them, and as a test reads them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from redelivery.core.dead_lettering.routing import dead_letter_headers
from redelivery.core.delivery import Delivery
from redelivery.core.shown_values import calendar_time

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from redelivery.core.delivery import BodyKind, Cause, Record
    from redelivery.core.outgoing import Outgoing
    from redelivery_memory.queues import Queue

__all__ = ["HeldMessage", "MemoryDelivery", "Step", "StoredMessage", "dead_letter"]


class StoredMessage:
    """One message on one queue. `number` is its position in the order of the whole broker.

    The body is a field of its own, because it is dropped when the message is accepted: an engine remembers thousands of
    accepted deliveries, and with each of them all that it refers to.
    """

    __slots__ = ("body", "broker_id", "count", "message", "message_id", "notes", "number", "timestamp")

    def __init__(self, broker_id: str, number: int, message: Outgoing, timestamp: float) -> None:
        self.broker_id = broker_id
        self.number = number
        self.body = message.body
        self.message = replace(message, body=b"", delay=None)
        self.timestamp = timestamp
        # Deliveries that ended without a settlement.
        self.count = 0
        # Notes of a redelivery that the broker scheduled.
        self.notes: Mapping[str, str | int] = {}
        # This library's `send` gives a message its own id, and returns it.
        own = message.headers.get("redeliveryId")
        self.message_id: str = own if isinstance(own, str) else broker_id

    def __lt__(self, other: StoredMessage) -> bool:
        return self.number < other.number

    def key_in(self, queue: Queue) -> Hashable:
        """Return the key of the message on this queue; on each subscription of a topic it has another one."""
        return (queue.name, self.broker_id)


class MemoryDelivery(Delivery):
    """One delivery of a stored message."""

    __slots__ = ("_count", "kept", "queue")

    def __init__(self, consumer: int, epoch: int, queue: Queue, stored: StoredMessage) -> None:
        super().__init__(consumer, epoch, stored.body)
        self.queue = queue
        self.kept = stored
        self._count = stored.count

    def stored(self) -> tuple[bytes, bytes]:
        kept, queue = self.kept, self.queue
        message = {each.name: getattr(kept.message, each.name) for each in fields(kept.message)}
        message["headers"], message["body"] = dict(message["headers"]), None
        head = {
            "broker_id": kept.broker_id, "number": kept.number, "timestamp": kept.timestamp, "notes": dict(kept.notes),
            "count": self._count, "queue": queue.name, "address": queue.address, "message": message,
        }  # fmt: skip
        return json.dumps(head, default=str).encode(), self.body

    @property
    def key(self) -> Hashable:
        return self.kept.key_in(self.queue)

    @property
    def strong(self) -> bool:
        return True

    @property
    def identity(self) -> str:
        return str(self.kept.broker_id)

    @property
    def destination(self) -> str:
        return self.kept.message.destination

    @property
    def redelivered(self) -> bool:
        return self._count > 0

    @property
    def broker_count(self) -> int:
        return self._count

    @property
    def expires_at(self) -> float | None:
        return self.kept.message.expires_at

    @property
    def group(self) -> str | None:
        return self.kept.message.group

    @property
    def persistent(self) -> bool:
        return self.kept.message.persistent

    @property
    def body_kind(self) -> BodyKind:
        return self.kept.message.body_kind

    @property
    def message_id(self) -> str:
        return self.kept.message_id

    @property
    def noted(self) -> Mapping[str, Any]:
        return {**self.headers, **self.kept.notes} if self.kept.notes else self.headers

    @property
    def headers(self) -> Mapping[str, Any]:
        return self.kept.message.headers

    @property
    def content_type(self) -> str | None:
        return self.kept.message.content_type

    @property
    def correlation_id(self) -> str | None:
        return self.kept.message.correlation_id

    @property
    def reply_to(self) -> str | None:
        return self.kept.message.reply_to

    @property
    def message_type(self) -> str | None:
        return self.kept.message.message_type

    @property
    def priority(self) -> int:
        return self.kept.message.priority

    @property
    def timestamp(self) -> datetime:
        return datetime.fromtimestamp(self.kept.timestamp, UTC)

    @property
    def expiration(self) -> datetime | None:
        at = self.kept.message.expires_at
        return None if at is None else calendar_time(at)


def dead_letter(
    stored: StoredMessage,
    destination: str,
    cause: Cause,
    count: int,
    record: Record | None = None,
    offset: float = 0.0,
) -> Outgoing:
    """Return the dead letter of a poison message, with the properties of a forwarded copy.

    `offset`: seconds that turn the record's times into times since the Unix epoch.
    """
    message = stored.message
    headers = dead_letter_headers(
        message.headers,
        destination=message.destination,
        message_id=stored.message_id,
        persistent=message.persistent,
        cause=cause,
        count=count,
        record=record,
        wall_offset=offset,
    )
    return replace(
        message,
        body=stored.body,
        destination=destination,
        headers=headers,
        persistent=True,
        expires_at=None,
        delay=None,
    )


@dataclass(frozen=True, slots=True)
class HeldMessage:
    """A message of the memory broker, for tests. Times are seconds since the Unix epoch."""

    message_id: str
    destination: str
    body: bytes
    headers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    delivered: bool = False
    """True if a consumer has the message unsettled."""
    broker_count: int = 0
    """Deliveries that ended without a settlement."""
    group: str | None = None
    persistent: bool = True
    timestamp: float = 0.0
    expires_at: float | None = None

    @classmethod
    def of(cls, stored: StoredMessage, *, delivered: bool = False) -> HeldMessage:
        """Return the test's view of a stored message."""
        message = stored.message
        return cls(
            stored.message_id,
            message.destination,
            stored.body,
            message.headers,
            delivered=delivered,
            broker_count=stored.count,
            group=message.group,
            persistent=message.persistent,
            timestamp=stored.timestamp,
            expires_at=message.expires_at,
        )

    @property
    def text(self) -> str:
        """Body decoded as UTF-8."""
        return self.body.decode()

    @property
    def cause(self) -> str | None:
        """Cause of a dead letter; None: not a dead letter."""
        return self.headers.get("redeliveryCause")

    @property
    def count(self) -> int | None:
        """Redeliveries that were charged before the message became a dead letter; None: not a dead letter."""
        count = self.headers.get("redeliveryCount")
        return None if count is None else int(count)

    @property
    def original_destination(self) -> str | None:
        """Destination that a dead letter was consumed from; None: not a dead letter."""
        return self.headers.get("redeliveryOriginalDestination")

    @property
    def original_id(self) -> str | None:
        """Message id of the original of a dead letter; None: not a dead letter."""
        return self.headers.get("redeliveryOriginalId")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a message at the broker.

    `action`: `sent`, `delivered`, `accepted`, `released`, `poisoned`, `forwarded`, `refused` (a settlement),
    `dropped` (an accept that was lost), `returned` (its consumer ended), `expired`.
    """

    action: str
    message_id: str
    destination: str
    at: float
    """Time in seconds of the broker's steady clock."""
