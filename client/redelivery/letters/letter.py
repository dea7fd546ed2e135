"""One dead letter, as people look at it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from redelivery.core.dead_letter import arrived_whole
from redelivery.core.redrive import origin_of, redrives_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.core.delivery import Delivery

__all__ = ["UNKNOWN", "CauseOf", "DeadLetter", "kind_of_cause", "read_letter"]

UNKNOWN = "unknown"
_TYPE = re.compile(r"[A-Za-z_][\w.]*")


class CauseOf(Protocol):
    """Who remembers why a message was poisoned that carries no cause: a ledger."""

    def __call__(self, destination: str, message_id: str, /) -> str | None:
        """Return the cause of the message `message_id` of `destination` (qualified), or None if it is not known."""
        ...


def kind_of_cause(cause: str) -> str:
    """Return what a cause is counted under: the exception's type, without what it said of this one message."""
    head, colon, _ = cause.partition(":")
    return head if colon and _TYPE.fullmatch(head) else cause


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One message on a dead-letter queue. Times are aware, in UTC."""

    message_id: str | None
    """The id that it has on the dead-letter queue; None where the broker gives none."""
    original_id: str | None
    """The id that it had when it was poisoned first, or `message_id` where nobody has told."""
    queue: str
    """The dead-letter queue, qualified."""
    original_destination: str | None
    """Where it came from, qualified; None where neither its properties nor the broker tell."""
    cause: str
    """Why it died; `unknown` where nobody has told: no broker keeps the cause of its own poison acknowledgement."""
    died_at: datetime | None
    """The last failure, where that is told, else when it was sent."""
    redelivery_count: int | None
    """Redeliveries that were charged before it died, where that is told."""
    redrives: int
    """How often it has been put back before."""
    whole: bool
    """Whether its body is all that was sent: only then can it be put back."""
    headers: Mapping[str, Any]
    body: bytes
    content_type: str | None
    correlation_id: str | None
    message_type: str | None
    priority: int
    persistent: bool

    @property
    def cause_kind(self) -> str:
        """What it is counted under: the exception's type, or the whole cause."""
        return kind_of_cause(self.cause)

    @property
    def topic(self) -> bool:
        """Whether it came from a topic: put back, every subscriber gets it."""
        origin = self.original_destination
        return origin is not None and origin.startswith(("topic://", "temp-topic://"))

    @property
    def day(self) -> str:
        """The day it died on, in UTC: `2026-11-22`; `unknown` where no time is told."""
        return UNKNOWN if self.died_at is None else self.died_at.date().isoformat()


def read_letter(
    delivery: Delivery, queue: str, cause_of: CauseOf | None = None, *, empty_is_whole: bool = False
) -> DeadLetter:
    """Return a delivery from a dead-letter queue as a dead letter."""
    headers, origin = delivery.headers, origin_of(delivery)
    identity = delivery.message_id
    original = headers.get("redeliveryOriginalId") or identity
    return DeadLetter(
        message_id=identity,
        original_id=None if original is None else str(original),
        queue=queue,
        original_destination=origin,
        cause=_cause(delivery, headers, origin, cause_of),
        died_at=_time(headers.get("redeliveryLastFailure")) or delivery.timestamp,
        redelivery_count=_number(headers.get("redeliveryCount")),
        redrives=redrives_of(headers),
        whole=arrived_whole(delivery, empty_is_whole=empty_is_whole),
        headers=headers,
        body=delivery.body,
        content_type=delivery.content_type,
        correlation_id=delivery.correlation_id,
        message_type=delivery.message_type,
        priority=delivery.priority,
        persistent=delivery.persistent,
    )


def _cause(
    delivery: Delivery, headers: Mapping[str, Any], origin: str | None, cause_of: CauseOf | None
) -> str:
    told = headers.get("redeliveryCause")
    if told:
        return str(told)
    identity = delivery.message_id
    if cause_of is not None and identity is not None:
        told = cause_of(origin or delivery.destination, identity)
    return told or delivery.died_of or UNKNOWN


def _time(text: object) -> datetime | None:
    if not isinstance(text, str):
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at.astimezone(UTC) if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _number(value: object) -> int | None:
    try:
        return int(value)  # type: ignore[call-overload,no-any-return]  # text over STOMP, typed over AMQP
    except (TypeError, ValueError):
        return None
