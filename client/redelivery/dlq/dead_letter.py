"""One dead letter, as people look at it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redelivery.core.dead_lettering.header_values import count_in, moment, text_in, time_in
from redelivery.core.dead_lettering.redrive import first_id, redrives_of
from redelivery.core.dead_lettering.routing import WHOLE, arrived_whole
from redelivery.dlq.ledger_causes import LedgerCauses

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from redelivery.core.delivery import Delivery

__all__ = ["UNKNOWN", "DeadLetter", "kind_of_cause", "read_letter"]

UNKNOWN = "unknown"
_TYPE = re.compile(r"[A-Za-z_][\w.]*")


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
    """Why it died; `unknown` where nobody has told: no broker keeps the cause of its own poison acknowledgement, but a
    ledger does."""
    first_failure: datetime | None
    """When it failed first, where that is told."""
    died_at: datetime | None
    """The last failure, where that is told, else when it was sent."""
    redelivery_count: int | None
    """Failures that were charged before it died, the first delivery's too, where that is told."""
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
    delivery: Delivery, queue: str, memories: LedgerCauses | None = None, *, empty_is_whole: bool = False
) -> DeadLetter:
    """Return a delivery from a dead-letter queue as a dead letter."""
    # The id first: Classic's has all headers read.
    identity, memories = (
        delivery.message_id,
        memories or LedgerCauses(),
    )
    headers, noted, buried = delivery.headers, delivery.noted, memories.of(delivery)
    first, last = time_in(noted, "redeliveryFirstFailure"), time_in(noted, "redeliveryLastFailure")
    count = count_in(noted, "redeliveryCount")
    if buried is not None:
        first, last = first or moment(buried.first), last or moment(buried.last or buried.at)
        count = buried.count if count is None else count
    told = text_in(noted, "redeliveryCause") or memories.cause(delivery) or delivery.died_of or UNKNOWN
    return DeadLetter(
        message_id=identity,
        original_id=first_id(delivery),
        queue=queue,
        original_destination=memories.origin(delivery),
        cause=told,
        first_failure=first,
        died_at=last or delivery.timestamp,
        redelivery_count=count,
        redrives=redrives_of(headers),
        whole=arrived_whole(delivery, empty_is_whole=empty_is_whole) and headers.get(WHOLE) != "false",
        headers=headers,
        body=delivery.body,
        content_type=delivery.content_type,
        correlation_id=delivery.correlation_id,
        message_type=delivery.message_type,
        priority=delivery.priority,
        persistent=delivery.persistent,
    )
