"""Routes of poison messages: the broker's own acknowledgement, a confirmed copy, or discarding.

Rule: where the arrival of a dead letter in the broker's queue is not certain, a copy is sent and confirmed first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from redelivery.core.commands import Accept, Forward, PoisonAck, SetAside, Stop
from redelivery.core.dead_lettering.dead_letter_headers import CONTROLS, comes_with_origin
from redelivery.core.dead_lettering.dead_letter_strategy import DeadLetterMap, follows_broker
from redelivery.core.delivery import EXPIRED, UNKNOWN, Cause
from redelivery.core.destination import Destination
from redelivery.core.outgoing import Outgoing
from redelivery.core.policy.wildcards import covers, is_pattern
from redelivery.core.shown_values import LAST, calendar_time
from redelivery.errors import AdapterError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.dead_lettering.dead_letter_strategy import DeadLetterStrategy
    from redelivery.core.delivery import BodyKind, Delivery, Record
    from redelivery.core.policy.policy_map import RedeliveryPolicyMap

__all__ = [
    "COPY",
    "DEFERRALS",
    "DUE",
    "EXPIRES",
    "OWN_HEADERS",
    "WHOLE",
    "DeadLetterRouting",
    "Way",
    "arrived_whole",
    "copy_of",
    "dead_letter_headers",
    "told_of",
]

COPY = "redeliveryCopy"
"""Property of a delayed copy with its name and the queue that it was sent to; a dead letter has none."""
DUE = "redeliveryDue"
"""Property with the due time of a delayed copy: milliseconds since the Unix epoch."""
EXPIRES = "redeliveryExpires"
"""Property with the time at which a delayed copy expires, as `DUE`: Classic moves the expiry of what it delays."""
DEFERRALS = "redeliveryDeferrals"
"""Property with the number of uncharged deferrals of a delayed copy."""
WHOLE = "redeliveryWhole"
"""`false` on a dead letter whose body is not the message's, but all the bytes of an unreadable message."""
# Body kinds of a body that is empty, or did not arrive; and the kind of its copy if it was sent empty.
_EMPTY: dict[BodyKind, BodyKind] = {"unknown": "text", "unknown-bytes": "bytes"}
OWN_HEADERS = frozenset({
    COPY,
    DUE,
    EXPIRES,
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


class Way(NamedTuple):
    """Where dead letters go: a place, or a pattern of places; and the option or argument that names it."""

    place: Destination
    by: str


@dataclass(frozen=True, slots=True)
class DeadLetterRouting:
    """Handling of poison and expired messages of one consumer, as the user configured it.

    Args:
        strategies: Strategies by destination.
        chosen: Dead-letter destination of this consumer alone, before those of the strategies; None: theirs.
        also: Dead-letter destinations that a classifier may choose by exception, before all others.
        empty_is_whole: The user guarantees that an empty body was sent empty.
        send_exhausted: False: messages whose redeliveries are used up are dropped.
        policies: If set, messages that no entry of this map serves are dropped.
        source: Destination that is consumed.
        subscriber: `clientID:name` of its durable subscription; None: not durable.
        scheduled: Failed messages are redelivered as delayed copies. The broker's own poison acknowledgement would
            leave the dead letter with the properties of the last copy; therefore it is a copy, too.
        maximum_set_aside: Number of messages without any route that are set aside; one more stops the consumer.
    """

    strategies: DeadLetterMap = DeadLetterMap()  # noqa: RUF009 - immutable
    chosen: str | None = None
    also: tuple[str, ...] = ()
    empty_is_whole: bool = False
    send_exhausted: bool = True
    policies: RedeliveryPolicyMap | None = None
    source: Destination | None = None
    subscriber: str | None = None
    scheduled: bool = False
    maximum_set_aside: int = 100

    def serving(self) -> tuple[DeadLetterStrategy, ...]:
        """Return the strategies that can serve messages of this consumer: several behind a wildcard."""
        return tuple(strategy for _, strategy in self.entries(self.source))

    def entries(self, source: Destination | None) -> Iterator[tuple[str | None, DeadLetterStrategy]]:
        """Yield the strategies that can serve messages of a destination, with the map's pattern; None: the default."""
        default = [(None, self.strategies.default)]
        found = default if source is None else self.strategies.entries_serving(source)
        yield from ((pattern, self._own(strategy)) for pattern, strategy in found)

    def _own(self, strategy: DeadLetterStrategy) -> DeadLetterStrategy:
        """Return a strategy with the destination that was chosen for this consumer."""
        return strategy if self.chosen is None else strategy.to(self.chosen)

    def _serves(self, destination: str) -> DeadLetterStrategy:
        """Return the strategy for messages sent to `destination`.

        As on Classic, the consumed queue counts, not the address that the message was sent to. The two differ where a
        topic or a divert feeds a queue.
        """
        if self.source is None:
            return self._own(self.strategies.default)
        return self._own(
            self.strategies.strategy_for(destination if is_pattern(self.source) else self.source)
        )

    def place_of(self, strategy: DeadLetterStrategy, capabilities: Capabilities) -> str | None:
        """Return the dead-letter destination of a strategy here, qualified; None: it depends on the message."""
        if not strategy.individual:
            return strategy.destination or capabilities.dead_letter_destination
        if self.source is None or self.source.kind == "native" or is_pattern(self.source):
            return None
        return str(strategy.individual_place(self.source, capabilities, self.subscriber))

    def ways(
        self, capabilities: Capabilities, arrived: Destination | None = None, *, told: bool = True
    ) -> Iterator[Way]:
        """Yield where dead letters of this consumer go, and what names the place.

        `arrived`: of those that came to this destination; None: of all. `told`: True: the place that the broker's own
        settings decide is known, and in the capabilities.
        """
        yield from (Way(Destination.parse(place), "errors=") for place in self.also)
        source = self.source
        if source is None:
            return
        own = arrived if arrived is not None and is_pattern(source) else source
        for pattern, strategy in self.entries(own):
            if strategy.keeps_nothing or (strategy.strategy == "discarding" and strategy.drops(own)):
                continue
            if strategy.individual and own.kind != "native":
                place = strategy.individual_place(own, capabilities, self.subscriber)
            elif strategy.individual or (not told and self.follows(strategy, capabilities)):
                continue
            else:
                place = Destination.parse(strategy.destination or capabilities.dead_letter_destination)
            yield Way(place, self.named_by(pattern, strategy, capabilities))

    def named_by(self, pattern: str | None, strategy: DeadLetterStrategy, capabilities: Capabilities) -> str:
        """Return the option or argument that names the place of an entry of `entries`."""
        if self.chosen is not None:
            return "dead_letter="
        if pattern is not None:
            option = "strategy=individual" if strategy.individual else "destination"
            return f"redelivery.deadLetterMap.{pattern}.{option}"
        if strategy.individual:
            return "redelivery.deadLetterStrategy=individual"
        if strategy.destination is not None:
            return "redelivery.deadLetterDestination"
        return capabilities.own_dead_letters or "by default"

    def destination_for(self, destination: str, capabilities: Capabilities) -> str:
        """Return the dead-letter destination of messages sent to `destination`, qualified."""
        return self._place(self._serves(destination), destination, capabilities)

    def _place(self, strategy: DeadLetterStrategy, destination: str, capabilities: Capabilities) -> str:
        found = self.place_of(strategy, capabilities)
        if found is not None:
            return found
        own = Destination.parse(destination)
        if is_pattern(own) or (len(own.members) > 1 and own != self.source):
            # The message's own queue is not known, and a broker would send to all queues of such a name.
            return capabilities.dead_letter_destination
        try:
            return str(strategy.individual_place(own, capabilities, self.subscriber))
        except ConfigurationError:
            # A producer's address, to which a pattern of the broker applies, may not be a valid queue name.
            return capabilities.dead_letter_destination

    def places(self, capabilities: Capabilities) -> tuple[str, ...]:
        """Return the destinations that copies can be sent to, as far as they are known before the messages.

        They are checked before the first dispatch.
        """
        found = [
            self.place_of(each, capabilities)
            for each in self.serving()
            if self._may_copy(each, capabilities) and not self.follows(each, capabilities)
        ]
        return tuple(dict.fromkeys([*(each for each in found if each is not None), *self.also]))

    def follows_broker(self, capabilities: Capabilities) -> bool:
        """Return True if copies go where the broker's own settings for the consumed queue put its dead letters.

        Those settings have to be asked for before the first dispatch; without an answer no place is right.
        """
        return any(
            self._may_copy(each, capabilities) and self.follows(each, capabilities) for each in self.serving()
        )

    def follows(self, strategy: DeadLetterStrategy, capabilities: Capabilities) -> bool:
        """Return True if no option names a place, and the broker can be asked: for one queue or topic."""
        source = self.source
        if source is None or not follows_broker(strategy, capabilities):
            return False
        return not (source.is_temporary or is_pattern(source) or len(source.members) > 1)

    def _copies_always(self, strategy: DeadLetterStrategy) -> bool:
        """Return True if only a copy can reach the configured destination, with the configured properties."""
        chosen = strategy.destination is not None or strategy.individual or bool(strategy.lifetime)
        return strategy.dead_letter == "forward" or (
            strategy.dead_letter == "auto" and (chosen or self.scheduled)
        )

    def _may_copy(self, strategy: DeadLetterStrategy, capabilities: Capabilities) -> bool:
        """Return True if a message with this strategy could be copied."""
        if strategy.keeps_nothing:
            return False
        native = capabilities.poison_persistent and capabilities.poison_non_persistent
        return self._copies_always(strategy) or (strategy.dead_letter == "auto" and not native)

    def _dropped(self, delivery: Delivery, record: Record, strategy: DeadLetterStrategy) -> bool:
        """Return True if the message is accepted without a dead letter."""
        if strategy.dead_letter == "discard":
            return True
        if self.chosen is not None:
            return False
        if record.cause is EXPIRED:
            if not strategy.process_expired:
                return True
        elif (record.exhausted and not self.send_exhausted) or (
            self.policies is not None and self.policies.pattern_for(delivery.destination) is None
        ):
            return True
        if not strategy.process_non_persistent and not _was_persistent(delivery):
            return True
        return strategy.strategy == "discarding" and strategy.drops(Destination.parse(delivery.destination))

    def command(
        self, delivery: Delivery, record: Record, capabilities: Capabilities, wall_offset: float, now: float
    ) -> Accept | PoisonAck | Forward | SetAside | Stop:
        """Return the one command that removes a poison delivery without losing it; or the one that sets it aside."""
        cause = record.cause or UNKNOWN
        strategy = self._serves(delivery.destination)
        if cause.place is not None:
            strategy = strategy.to(cause.place)
        if cause.place is None and self._dropped(delivery, record, strategy):
            return Accept((delivery,))
        partial = not arrived_whole(delivery, empty_is_whole=self.empty_is_whole)
        if self._left_to_broker(strategy, delivery, capabilities, cause, partial=partial):
            usual = (
                f"{capabilities.dead_letter_destination}, by default"
                if capabilities.own_poison != "first"
                else ""
            )
            return PoisonAck(delivery, cause, record.count, capabilities.own_dead_letters or usual)
        destination = self._place(strategy, delivery.destination, capabilities)
        if partial:
            return SetAside(delivery, _cannot_copy(delivery, delivery.body_kind, destination))
        # A safeguard: the driver has refused such a consumer at its start where that could be known.
        if self.consumes(destination):
            return Stop(_own_dead_letter(delivery, destination))
        expires_at = now + wall_offset + strategy.lifetime if strategy.lifetime else None
        copy = copy_of(delivery, destination, told_of(delivery, record, cause, wall_offset), expires_at)
        own = destination == capabilities.dead_letter_destination
        marks = capabilities.dead_letter_properties if own else ()
        return Forward(delivery, copy, cause, record.count, marks=marks)

    def _left_to_broker(
        self,
        strategy: DeadLetterStrategy,
        delivery: Delivery,
        capabilities: Capabilities,
        cause: Cause,
        *,
        partial: bool,
    ) -> bool:
        """Return True if the broker's own poison acknowledgement takes the message; `partial`: it cannot be copied."""
        # A place of a consumer or an exception is reached by a copy only.
        named = self.chosen is not None or cause.place is not None
        if named or strategy.dead_letter == "forward" or not delivery.original:
            return False
        asked = strategy.dead_letter == "ack"
        if asked and capabilities.poison_on_request:
            return True
        kept = capabilities.poisons(persistent=delivery.persistent, asked=asked)
        # The broker handles all expired messages alike.
        kept = kept or (partial and cause is EXPIRED and capabilities.poison_persistent)
        # Origin properties written by the producer would stay on the dead letter: a copy has them written anew.
        if not kept or delivery.fanned_out or comes_with_origin(delivery):
            return False
        # A destination chosen by the user is reached by a copy only: the broker's own acknowledgement has its own.
        return partial or asked or (capabilities.own_poison == "first" and not self._copies_always(strategy))

    def consumes(self, place: str | Destination) -> bool:
        """Return True if a copy sent to this place would be delivered to the consumer that sends it.

        A native address can be the queue of that name; and on Artemis a queue's address sends to all of its queues.
        """
        source, parsed = self.source, Destination.parse(place)
        if source is None:
            return False
        address, mark, _ = source.name.partition("::")
        return (
            covers(source, parsed)
            or ("native" in (source.kind, parsed.kind) and _queue_of(source) == _queue_of(parsed))
            or (bool(mark) and parsed.name == address and parsed.kind in ("native", "topic"))
        )


def _queue_of(destination: Destination) -> str:
    """Return the name of a queue, also of one that is named with its address as Artemis does (`address::queue`)."""
    return destination.name.rpartition("::")[2]


def copy_of(
    delivery: Delivery, destination: str, headers: Mapping[str, Any], expires_at: float | None = None
) -> Outgoing:
    """Return a copy of a message with other properties: always persistent, and without a line end in any name."""
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


def _cannot_copy(delivery: Delivery, body_kind: BodyKind, destination: str) -> AdapterError:
    what = "does not arrive whole over this protocol (a JMS Map or Stream)"
    vouch = ""
    if body_kind in _EMPTY:
        what = "is empty, and over this protocol a JMS Map or Object can arrive so"
        vouch = ", or, if its producers send empty bodies, set redelivery.emptyBody=forward"
    return AdapterError(
        f"a poison message from {delivery.destination} has a body that {what}. No copy of it is sent to {destination}; "
        "the message stays on the broker, unacknowledged: consume this destination over AMQP, or remove the message "
        f"with the broker's console{vouch}"
    )


def _own_dead_letter(delivery: Delivery, destination: str) -> AdapterError:
    return AdapterError(
        f"a poison message from {delivery.destination} would be dead-lettered to {destination}, which this consumer "
        "consumes too, without an end. The message stays on the broker, unacknowledged: consume no dead-letter queues"
    )


def arrived_whole(delivery: Delivery, *, empty_is_whole: bool) -> bool:
    """Return True if the body arrived whole and can be copied; `empty_is_whole`: empty ones were sent empty."""
    kind = delivery.body_kind
    return kind != "partial" and (kind not in _EMPTY or empty_is_whole)


def told_of(delivery: Delivery, record: Record, cause: Cause, wall_offset: float) -> dict[str, Any]:
    """Return the properties of a copy of a delivery: its own, and those from its record."""
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
    """Return the properties of a message as those of its dead letter, with its original destination and cause."""
    told: dict[str, Any] = {name: value for name, value in headers.items() if name not in OWN_HEADERS}
    told["redeliveryCause"] = cause.text
    told["redeliveryCount"] = str(count)
    # A delayed copy keeps these from the message that failed first.
    before: Mapping[str, Any] = headers if COPY in headers else {}
    # Never the message's own value: a producer could imitate a delayed copy, and choose where it is redriven to.
    told["redeliveryOriginalDestination"] = destination
    # A redriven message keeps the id that it had when it was first poison: operators find it by that id.
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
    """Return True if the producer asked for persistence; a delayed copy is always persistent, and has a note of it."""
    if not delivery.persistent:
        return False
    headers = delivery.headers
    return COPY not in headers or headers.get("redeliveryOriginalDeliveryMode") != "NON_PERSISTENT"


def _iso(seconds: float) -> str:
    return (calendar_time(seconds) or LAST).isoformat(timespec="milliseconds").replace("+00:00", "Z")
