"""How a poisoned message leaves: by the broker's own acknowledgement, by a confirmed copy, or not at all.

The rule is promise 1: where a dead letter's arrival cannot be known, a copy is sent and confirmed first.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from redelivery.core.commands import Accept, Forward, Poison, Stop
from redelivery.core.delivery import EXPIRED, Cause
from redelivery.core.outgoing import Outgoing
from redelivery.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.delivery import BodyKind, Delivery, Record

__all__ = ["OWN_HEADERS", "DeadLetters", "Route", "arrived_whole", "dead_letter_headers"]

Route = Literal["auto", "ack", "forward", "discard"]

OWN_HEADERS = frozenset({
    "redeliveryCause",
    "redeliveryCount",
    "redeliveryOriginalDestination",
    "redeliveryOriginalId",
    "redeliveryOriginalDeliveryMode",
    "redeliveryFirstFailure",
    "redeliveryLastFailure",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """What is done with poisoned and expired messages, as the user configured it.

    `destination`: None means the broker's own default. `expiration`: seconds that a forwarded copy lives, 0 for
    ever. `process_non_persistent` is true here, though Classic's own default is false: false loses messages.
    `empty_is_whole`: the user vouches that an empty body is what was sent.
    """

    route: Route = "auto"
    destination: str | None = None
    process_expired: bool = True
    process_non_persistent: bool = True
    expiration: float = 0.0
    empty_is_whole: bool = False

    def destination_on(self, capabilities: Capabilities) -> str:
        """Return the dead-letter destination in force on this broker, qualified."""
        return self.destination or capabilities.dead_letter_destination

    def may_forward(self, capabilities: Capabilities) -> bool:
        """Whether any message could be forwarded here: then the destination is checked before the first dispatch."""
        native = capabilities.poison_persistent and capabilities.poison_non_persistent
        return self.route == "forward" or (
            self.route == "auto" and (self.destination is not None or not native)
        )

    def command(
        self, delivery: Delivery, record: Record, capabilities: Capabilities, wall_offset: float, now: float
    ) -> Accept | Poison | Forward | Stop:
        """Return the one command that takes a poisoned delivery away without losing it."""
        cause = record.cause or Cause("unknown")
        dropped = (cause is EXPIRED and not self.process_expired) or (
            not delivery.persistent and not self.process_non_persistent
        )
        if self.route == "discard" or dropped:
            return Accept((delivery,))
        kept = capabilities.poison_persistent if delivery.persistent else capabilities.poison_non_persistent
        partial = not arrived_whole(delivery, empty_is_whole=self.empty_is_whole)
        # A destination of the user's choice is reached by a copy only: the broker's own acknowledgement knows its own.
        own = (kept and self.route == "auto" and self.destination is None) or (
            self.route == "ack" and (kept or capabilities.poison_on_request)
        )
        if own or (partial and kept and self.route != "forward"):
            return Poison(delivery, cause, record.count)
        if partial:
            return Stop(self._cannot_copy(delivery, delivery.body_kind, capabilities))
        copy = self._copy(delivery, record, cause, capabilities, wall_offset, now)
        return Forward(delivery, copy, cause, record.count)

    def _cannot_copy(
        self, delivery: Delivery, body_kind: BodyKind, capabilities: Capabilities
    ) -> AdapterError:
        what = "does not arrive whole over this protocol (a JMS Map or Stream)"
        vouch = ""
        if body_kind == "unknown":
            what = "is empty, and over this protocol a JMS Map or Object can arrive so"
            vouch = ", or, if its producers send empty bodies, set redelivery.emptyBody=forward"
        return AdapterError(
            f"a poison message from {delivery.destination} has a body that {what}, so no copy of it is sent to "
            f"{self.destination_on(capabilities)}; it stays unacknowledged: consume this destination over AMQP{vouch}"
        )

    def _copy(
        self,
        delivery: Delivery,
        record: Record,
        cause: Cause,
        capabilities: Capabilities,
        wall_offset: float,
        now: float,
    ) -> Outgoing:
        headers = dead_letter_headers(
            delivery.headers,
            destination=delivery.destination,
            message_id=delivery.message_id,
            persistent=delivery.persistent,
            cause=cause,
            count=record.count,
            record=record,
            wall_offset=wall_offset,
        )
        return Outgoing(
            destination=self.destination_on(capabilities),
            body=delivery.body,
            body_kind="text" if delivery.body_kind == "unknown" else delivery.body_kind,
            headers=headers,
            content_type=delivery.content_type,
            correlation_id=delivery.correlation_id,
            reply_to=delivery.reply_to,
            message_type=delivery.message_type,
            priority=delivery.priority,
            group=delivery.group,
            expires_at=now + wall_offset + self.expiration if self.expiration else None,
            persistent=True,
        )


def arrived_whole(delivery: Delivery, *, empty_is_whole: bool) -> bool:
    """Whether the body is all that was sent, so that it can be copied; `empty_is_whole`: empty ones are vouched for."""
    kind = delivery.body_kind
    return kind != "partial" and (kind != "unknown" or empty_is_whole)


def dead_letter_headers(
    headers: Mapping[str, Any],
    *,
    destination: str,
    message_id: str | None,
    persistent: bool,
    cause: Cause,
    count: int,
    record: Record | None = None,
    wall_offset: float = 0.0,
) -> dict[str, Any]:
    """Return the properties of a message as those of its dead letter, which tell where it came from, and why."""
    told: dict[str, Any] = {name: value for name, value in headers.items() if name not in OWN_HEADERS}
    told["redeliveryCause"] = cause.text
    told["redeliveryCount"] = str(count)
    told["redeliveryOriginalDestination"] = destination
    # A message that was redriven keeps the id that it had when it was first poison: by it people follow it.
    first = headers.get("redeliveryOriginalId") if "redeliveryRedrives" in headers else None
    if first is not None or message_id is not None:
        told["redeliveryOriginalId"] = first or message_id
    told["redeliveryOriginalDeliveryMode"] = "PERSISTENT" if persistent else "NON_PERSISTENT"
    if record is not None:
        for name, at in (("First", record.first_failure), ("Last", record.last_failure)):
            if at is not None:
                told[f"redelivery{name}Failure"] = _iso(at + wall_offset)
    return told


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
