"""One dead letter: its cause, origin and times, as the tools show it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redelivery.core.dead_lettering.header_values import count_in, moment, text_in, time_in
from redelivery.core.dead_lettering.redrive import first_id, redrives_of
from redelivery.core.dead_lettering.routing import WHOLE, arrived_whole
from redelivery.dlq.ledger_causes import LedgerCauses

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from redelivery.core.delivery import BodyKind, Delivery

__all__ = ["UNKNOWN", "DeadLetter", "kind_of_cause", "read_letter"]

UNKNOWN = "unknown"
_TYPE = re.compile(r"[A-Za-z_][\w.]*")


def kind_of_cause(cause: str) -> str:
    """Return the kind that a cause is counted under: the exception's type without its text, or the whole cause."""
    head, colon, _ = cause.partition(":")
    return head if colon and _TYPE.fullmatch(head) else cause


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One message on a dead-letter queue. Times are aware, in UTC."""

    message_id: str | None
    """Message id on the dead-letter queue; None: the broker gives none."""
    original_id: str | None
    """Message id when it was dead-lettered first; `message_id` where no property says it."""
    queue: str
    """Dead-letter queue, qualified."""
    original_destination: str | None
    """Destination it was consumed from, qualified; None: neither its properties nor the broker say it."""
    cause: str
    """Why it was dead-lettered: type and text of the exception.

    `unknown` where it is not recorded: no broker keeps the cause of a poison acknowledgement, but a ledger does.
    """
    first_failure: datetime | None
    """Time of the first failure; None: not recorded."""
    died_at: datetime | None
    """Time of the last failure; where it is not recorded, the time when the message was sent."""
    redelivery_count: int | None
    """Number of charged failures, that of the first delivery included; None: not recorded."""
    redrives: int
    """Number of earlier redrives."""
    whole: bool
    """True if its body is all that was sent. Only then can it be redriven."""
    headers: Mapping[str, Any]
    body: bytes
    content_type: str | None
    correlation_id: str | None
    message_type: str | None
    priority: int
    persistent: bool
    body_kind: BodyKind = "bytes"
    """Type of the body for a JMS consumer: `text`, `bytes`, or another one if it may not be whole."""
    reply_to: str | None = None
    """Destination for an answer, qualified; None: none."""
    group: str | None = None
    """Message group; None: none."""
    lossy: str = ""
    """Parts of the message that these fields do not keep, in words; a redrive keeps them. Empty: none."""

    @property
    def cause_kind(self) -> str:
        """Kind of the cause, for counts: the exception's type, or the whole cause."""
        return kind_of_cause(self.cause)

    @property
    def topic(self) -> bool:
        """True if it came from a topic. Every subscriber gets it when it is redriven."""
        origin = self.original_destination
        return origin is not None and origin.startswith(("topic://", "temp-topic://"))

    @property
    def day(self) -> str:
        """Day of its death in UTC, as `2026-11-22`; `unknown` where no time is recorded."""
        return UNKNOWN if self.died_at is None else self.died_at.date().isoformat()


def read_letter(
    delivery: Delivery, queue: str, memories: LedgerCauses | None = None, *, empty_is_whole: bool = False
) -> DeadLetter:
    """Return a delivery from a dead-letter queue as a dead letter."""
    # The id is read first: on Classic that reads all headers.
    identity, memories = (
        delivery.message_id,
        memories or LedgerCauses(),
    )
    headers, noted, buried = delivery.headers, delivery.noted, memories.of(delivery)
    first, last = time_in(noted, "redeliveryFirstFailure"), time_in(noted, "redeliveryLastFailure")
    count = count_in(noted, "redeliveryCount")
    if buried is not None:
        first, last = first or moment(buried.first), last or moment(buried.last or buried.at or None)
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
        body_kind=delivery.body_kind,
        reply_to=delivery.reply_to,
        group=delivery.group,
        lossy=", ".join(_not_kept(delivery)),
    )


def _not_kept(delivery: Delivery) -> Iterator[str]:
    """Yield what of a message is in no field of a dead letter."""
    yield from delivery.typed
    if delivery.content_encoding is not None:
        yield f"content-encoding {delivery.content_encoding}"
    for name, value in delivery.headers.items():
        if not isinstance(value, str | bool | int | float | None):
            yield f"the property {name}, a {type(value).__name__}"
