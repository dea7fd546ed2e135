"""How a poisoned message leaves: by the broker's own acknowledgement, by a confirmed copy, or not at all.

The rule is promise 1: where a dead letter's arrival cannot be known, a copy is sent and confirmed first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from redelivery.core.calendar_time import LAST, calendar_time
from redelivery.core.commands import Accept, Forward, PoisonAck, SetAside, Stop
from redelivery.core.dead_lettering.origin import CONTROLS, comes_with_origin
from redelivery.core.delivery import EXPIRED, UNKNOWN, Cause
from redelivery.core.destination import Destination
from redelivery.core.outgoing import Outgoing
from redelivery.core.policy.classic_wildcards import covers, is_pattern
from redelivery.errors import AdapterError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.dead_lettering.strategies import DiscardingStrategy, IndividualStrategy
    from redelivery.core.delivery import BodyKind, Delivery, Record
    from redelivery.core.policy.policy_map import RedeliveryPolicyMap

__all__ = [
    "COPY",
    "DEFERRALS",
    "DUE",
    "OWN_HEADERS",
    "WHOLE",
    "DeadLetterRouting",
    "Route",
    "arrived_whole",
    "copy_of",
    "dead_letter_headers",
    "told_of",
]

Route = Literal["auto", "ack", "forward", "discard"]

COPY = "redeliveryCopy"
"""The property that names a delayed copy, and the queue that it was sent to; a dead letter has none."""
DUE = "redeliveryDue"
"""Milliseconds since the Unix epoch at which a delayed copy is to come."""
DEFERRALS = "redeliveryDeferrals"
"""Deferrals of a delayed copy that were not charged."""
WHOLE = "redeliveryWhole"
"""`false` on a dead letter whose body is not the message's, but all the bytes of one that could not be read."""
# Kinds of a body that is empty, or did not come; and, if it was empty, the kind of its copy.
_EMPTY: dict[BodyKind, BodyKind] = {"unknown": "text", "unknown-bytes": "bytes"}
# The broker's own acknowledgement drops a message that is not persistent.
VOUCH = ", or, if no producer gives a message a property named `persistent`, set redelivery.deadLetter=ack"
OWN_HEADERS = frozenset({
    COPY,
    DUE,
    DEFERRALS,
    WHOLE,
    "redeliveryCause",
    "redeliveryCount",
    "redeliveryOriginalDestination",
    "redeliveryOriginalId",
    "redeliveryOriginalDeliveryMode",
    "redeliveryFirstFailure",
    "redeliveryLastFailure",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class DeadLetterRouting:
    """What is done with poisoned and expired messages of one consumer, as the user configured it.

    `destination`: None means the broker's own default. `individual`, `discarding`: the strategy, if not the shared one.
    `expiration`: seconds that a forwarded copy lives, 0 for ever. `process_non_persistent` is true here, though
    Classic's own default is false: false loses messages. `empty_is_whole`: the user vouches that an empty body is what
    was sent. `send_exhausted`: whether what has used up its redeliveries is dead-lettered. `policies`: whose entries
    decide, if what no entry serves is dropped. `source`: what is consumed; `subscriber`: `clientID:name` of its durable
    subscription. `scheduled`: what fails comes again as a delayed copy; the broker's own poison acknowledgement would
    leave the dead letter with what the last copy told, so that is a copy too. `maximum_set_aside`: so many messages
    that can leave by no way are set aside; one more stops the consumer.
    """

    route: Route = "auto"
    destination: str | None = None
    individual: IndividualStrategy | None = None
    discarding: DiscardingStrategy | None = None
    process_expired: bool = True
    process_non_persistent: bool = True
    expiration: float = 0.0
    empty_is_whole: bool = False
    send_exhausted: bool = True
    policies: RedeliveryPolicyMap | None = None
    source: Destination | None = None
    subscriber: str | None = None
    scheduled: bool = False
    maximum_set_aside: int = 100

    def destination_on(self, capabilities: Capabilities) -> str | None:
        """Return the dead-letter destination in force on this broker, qualified; None: it depends on the message."""
        if self.individual is None:
            return self.destination or capabilities.dead_letter_destination
        if self.source is None or self.source.kind == "native" or is_pattern(self.source):
            return None
        return str(self.individual.destination_for(self.source, capabilities, self.subscriber))

    def destination_for(self, destination: str, capabilities: Capabilities) -> str:
        """Return where the dead letters of a message's own destination go, qualified.

        As on Classic it is the queue that is consumed which names them, not the address that the message was sent to;
        the two differ where a queue is fed by a topic or a divert.
        """
        found = self.destination_on(capabilities)
        if found is not None or self.individual is None:
            return found or capabilities.dead_letter_destination
        own = Destination.parse(destination)
        if is_pattern(own) or (len(own.members) > 1 and own != self.source):
            # Of which queue it was nobody knows, and a broker would send to all of such a name.
            return capabilities.dead_letter_destination
        try:
            return str(self.individual.destination_for(own, capabilities, self.subscriber))
        except ConfigurationError:
            # A producer's address, to which a pattern of the broker's own applies, may be the name of no queue.
            return capabilities.dead_letter_destination

    def copies_always(self) -> bool:
        """Whether only a copy comes to where the user wants it, with what he wants: then none is left to the broker."""
        chosen = self.destination is not None or self.individual is not None or bool(self.expiration)
        chosen = chosen or self.scheduled
        return self.route == "forward" or (self.route == "auto" and chosen)

    def may_forward(self, capabilities: Capabilities) -> bool:
        """Whether any message could be forwarded here: then the destination is checked before the first dispatch."""
        if self.discarding is not None and self.discarding.everything:
            return False
        native = capabilities.poison_persistent and capabilities.poison_non_persistent
        return self.copies_always() or (self.route == "auto" and not native)

    def _dropped(self, delivery: Delivery, record: Record) -> bool:
        """Whether the message is accepted without a dead letter."""
        if self.route == "discard":
            return True
        if record.cause is EXPIRED:
            if not self.process_expired:
                return True
        elif (record.exhausted and not self.send_exhausted) or (
            self.policies is not None and self.policies.pattern_for(delivery.destination) is None
        ):
            return True
        if not self.process_non_persistent and not _was_persistent(delivery):
            return True
        return self.discarding is not None and self.discarding.drops(Destination.parse(delivery.destination))

    def command(
        self, delivery: Delivery, record: Record, capabilities: Capabilities, wall_offset: float, now: float
    ) -> Accept | PoisonAck | Forward | SetAside | Stop:
        """Return the one command that takes a poisoned delivery away without losing it; or what sets it aside."""
        cause = record.cause or UNKNOWN
        if self._dropped(delivery, record):
            return Accept((delivery,))
        vouched = self.route == "ack"
        kept = capabilities.poisons(persistent=delivery.persistent, asked=vouched) and delivery.original
        asked = vouched and capabilities.poison_on_request and delivery.original
        partial = not arrived_whole(delivery, empty_is_whole=self.empty_is_whole)
        # A destination of the user's choice is reached by a copy only: the broker's own acknowledgement knows its own.
        own = asked or (kept and (vouched or (self.route == "auto" and not self.copies_always())))
        # What its producer wrote there would stay on the dead letter: a copy is written anew.
        if own and kept and not partial and comes_with_origin(delivery):
            own = False
        # What has expired and cannot be copied is the broker's, which does with it what it does with all that expires.
        left = kept or (cause is EXPIRED and capabilities.poison_persistent and delivery.original)
        if own or (partial and left and self.route != "forward"):
            return PoisonAck(delivery, cause, record.count)
        destination = self.destination_for(delivery.destination, capabilities)
        if partial:
            unproven = delivery.persistent and not capabilities.poisons(persistent=True)
            vouch = VOUCH if unproven and capabilities.poisons(persistent=True, asked=True) else ""
            return SetAside(delivery, _cannot_copy(delivery, delivery.body_kind, destination, vouch))
        if self._consumes(destination):
            return Stop(_own_dead_letter(delivery, destination))
        copy = self._copy(destination, delivery, record, cause, wall_offset, now)
        return Forward(delivery, copy, cause, record.count)

    def _consumes(self, destination: str) -> bool:
        """Whether the copy would come back to the consumer that it is made for."""
        # A backstop: the driver has refused such a consumer where it could see that beforehand.
        return (
            self.individual is not None
            and self.source is not None
            and covers(self.source, Destination.parse(destination))
        )

    def _copy(
        self,
        destination: str,
        delivery: Delivery,
        record: Record,
        cause: Cause,
        wall_offset: float,
        now: float,
    ) -> Outgoing:
        headers = told_of(delivery, record, cause, wall_offset)
        expires_at = now + wall_offset + self.expiration if self.expiration else None
        return copy_of(delivery, destination, headers, expires_at)


def copy_of(
    delivery: Delivery, destination: str, headers: Mapping[str, Any], expires_at: float | None = None
) -> Outgoing:
    """Return a copy of a message with other properties: always persistent, and no name has a line end in it."""
    if any(CONTROLS.search(str(name)) for name in headers):
        headers = {
            **{name: value for name, value in headers.items() if not CONTROLS.search(str(name))},
            **{CONTROLS.sub("?", str(n)): str(v) for n, v in headers.items() if CONTROLS.search(str(n))},
        }
    return Outgoing(
        destination=destination,
        body=delivery.body,
        body_kind=_EMPTY.get(delivery.body_kind, delivery.body_kind),
        headers=headers,
        content_type=delivery.content_type,
        correlation_id=delivery.correlation_id,
        reply_to=delivery.reply_to,
        message_type=delivery.message_type,
        priority=delivery.priority,
        group=delivery.group,
        expires_at=expires_at,
    )


def _cannot_copy(delivery: Delivery, body_kind: BodyKind, destination: str, vouch: str) -> AdapterError:
    what = "does not arrive whole over this protocol (a JMS Map or Stream)"
    if body_kind in _EMPTY:
        what = "is empty, and over this protocol a JMS Map or Object can arrive so"
        vouch = f", or, if its producers send empty bodies, set redelivery.emptyBody=forward{vouch}"
    return AdapterError(
        f"a poison message from {delivery.destination} has a body that {what}, so no copy of it is sent to "
        f"{destination}; it stays unacknowledged: consume this destination over AMQP, or take the message off the "
        f"queue with the broker's console{vouch}"
    )


def _own_dead_letter(delivery: Delivery, destination: str) -> AdapterError:
    return AdapterError(
        f"a poison message from {delivery.destination} would go to {destination}, which this consumer gets too: it "
        "would go round for ever; it stays unacknowledged: consume destinations that are no dead-letter queues"
    )


def arrived_whole(delivery: Delivery, *, empty_is_whole: bool) -> bool:
    """Whether the body is all that was sent, so that it can be copied; `empty_is_whole`: empty ones are vouched for."""
    kind = delivery.body_kind
    return kind != "partial" and (kind not in _EMPTY or empty_is_whole)


def told_of(delivery: Delivery, record: Record, cause: Cause, wall_offset: float) -> dict[str, Any]:
    """Return the properties of a copy of a delivery: its own, and what is known of it."""
    return dead_letter_headers(
        delivery.headers,
        destination=delivery.destination,
        message_id=delivery.message_id,
        persistent=delivery.persistent,
        cause=cause,
        count=record.count,
        record=record,
        wall_offset=wall_offset,
    )


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
    # Of a delayed copy these are told as they were of the message that failed first.
    before: Mapping[str, Any] = headers if COPY in headers else {}
    # Never as the message says: anybody can send what looks like a delayed copy, and choose where it is redriven.
    told["redeliveryOriginalDestination"] = destination
    # A message that was redriven keeps the id that it had when it was first poison: by it people follow it.
    first = headers.get("redeliveryOriginalId") if before or "redeliveryRedrives" in headers else None
    if first is not None or message_id is not None:
        told["redeliveryOriginalId"] = first or message_id
    mode = "PERSISTENT" if persistent else "NON_PERSISTENT"
    told["redeliveryOriginalDeliveryMode"] = before.get("redeliveryOriginalDeliveryMode") or mode
    if record is not None:
        for name, at in (("First", record.first_failure), ("Last", record.last_failure)):
            if at is not None:
                told[f"redelivery{name}Failure"] = _iso(at + wall_offset)
    return told


def _was_persistent(delivery: Delivery) -> bool:
    """Whether the producer asked for it: a delayed copy is always persistent, and tells."""
    if not delivery.persistent:
        return False
    headers = delivery.headers
    return COPY not in headers or headers.get("redeliveryOriginalDeliveryMode") != "NON_PERSISTENT"


def _iso(seconds: float) -> str:
    return (calendar_time(seconds) or LAST).isoformat(timespec="milliseconds").replace("+00:00", "Z")
