"""Messages as the broker keeps them, as a consumer gets them, and as a test looks at them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from redelivery.core.calendar_time import calendar_time
from redelivery.core.dead_lettering.routing import dead_letter_headers
from redelivery.core.delivery import Delivery

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from redelivery.core.delivery import BodyKind, Cause, Record
    from redelivery.core.outgoing import Outgoing
    from redelivery_memory.queues import Queue

__all__ = ["HeldMessage", "MemoryDelivery", "Step", "StoredMessage", "dead_letter"]


class StoredMessage:
    """One message on one queue. `number` is its place in the order of the whole broker.

    The body is kept apart from the rest, because it is dropped when the message is accepted: an engine
    remembers thousands of accepted deliveries, and with each of them all that it refers to.
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
        # What redelivery by the broker has noted.
        self.notes: Mapping[str, str | int] = {}
        # A producer of ours gives its messages an id of its own, which its `send` has returned.
        own = message.headers.get("redeliveryId")
        self.message_id: str = own if isinstance(own, str) else broker_id

    def __lt__(self, other: StoredMessage) -> bool:
        return self.number < other.number

    def key_in(self, queue: Queue) -> Hashable:
        """Return the identity of the message on this queue: each subscription of a topic has its own."""
        return (queue.name, self.broker_id)


class MemoryDelivery(Delivery):
    """One arrival of a stored message."""

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
    """Return a poisoned message as it goes to the dead-letter queue, with the properties of a forwarded copy.

    `offset` in seconds turns the record's times into times of day.
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
    """What the broker holds of one message, as a test sees it. Times are seconds since the Unix epoch."""

    message_id: str
    destination: str
    body: bytes
    headers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    delivered: bool = False
    """Whether a consumer has it now, unsettled."""
    broker_count: int = 0
    """Deliveries that ended without a settlement."""
    group: str | None = None
    persistent: bool = True
    timestamp: float = 0.0
    expires_at: float | None = None

    @classmethod
    def of(cls, stored: StoredMessage, *, delivered: bool = False) -> HeldMessage:
        """Return what is held of `stored`."""
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
        """The body decoded as UTF-8."""
        return self.body.decode()

    @property
    def cause(self) -> str | None:
        """Why it is a dead letter, or None if it is none."""
        return self.headers.get("redeliveryCause")

    @property
    def count(self) -> int | None:
        """Redeliveries that had been charged when it became a dead letter, or None if it is none."""
        count = self.headers.get("redeliveryCount")
        return None if count is None else int(count)

    @property
    def original_destination(self) -> str | None:
        """Where a dead letter comes from, or None if it is none."""
        return self.headers.get("redeliveryOriginalDestination")

    @property
    def original_id(self) -> str | None:
        """The message id that a dead letter had before, or None if it is none."""
        return self.headers.get("redeliveryOriginalId")


@dataclass(frozen=True, slots=True)
class Step:
    """One step in the life of a message at the broker.

    `action`: `sent`, `delivered`, `accepted`, `released`, `poisoned`, `forwarded`, `refused` (a settlement),
    `dropped` (an accept that was lost on the wire), `returned` (its consumer went away), `expired`.
    """

    action: str
    message_id: str
    destination: str
    at: float
    """Seconds of the broker's steady clock."""
