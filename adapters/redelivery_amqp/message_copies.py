"""Copies of arrived messages: dead letters and delayed copies, byte for byte, with the library's own properties added.

Nothing is decoded and encoded again: proton crashes over some messages then, and would change others. An odd message
keeps its oddities in the copy. Only a section that is not a list or map where one is required is left out, because no
reader could read it. Bytes that are not a message are copied whole, as a binary body.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redelivery.core.dead_lettering.redrive import REDRIVE_HEADERS, is_stale
from redelivery.core.dead_lettering.routing import OWN_HEADERS, WHOLE
from redelivery_amqp import codec
from redelivery_amqp.message_encoding import (
    NULL,
    delay_of,
    list_of,
    map_of,
    section,
    simple,
    symbol,
    timestamp,
    ttl_of,
    ubyte,
    uint,
)
from redelivery_amqp.sections import (
    CONTENT_ENCODING,
    CONTENT_TYPE,
    CORRELATION_ID,
    CREATION,
    EXPIRY,
    GROUP_ID,
    GROUP_SEQUENCE,
    PROPERTIES_FIELDS,
    REPLY_TO,
    REPLY_TO_GROUP,
    SUBJECT,
    TO,
    USER_ID,
    entries_in,
    key_name,
    places_in,
)
from redelivery_amqp.whole_messages import body_places

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.core.commands import Forward
    from redelivery.core.outgoing import Outgoing
    from redelivery_amqp.delivery import AmqpDelivery
    from redelivery_amqp.profile_base import AmqpProfile

    Entries = dict[str, tuple[bytes, bytes]]

__all__ = ["copied", "never_copied"]

# Properties that a broker would act on: it would drop the copy as a duplicate, schedule it, or take it for the dead
# letter of another message. Artemis drops a second message with a known `_AMQ_DUPL_ID` and confirms it, also a redriven
# dead letter.
NEVER_COPIED = frozenset({
    "_AMQ_DUPL_ID", "scheduledJobId", "redeliveryDelay", "original-destination", "x-death",
})  # fmt: skip
NEVER_COPIED_PREFIXES = (
    "_AMQ_ORIG_", "AMQ_SCHEDULED_", "JMS_AMQP_MA_x-opt-ORIG-", "x-first-death-", "x-last-death-",
)  # fmt: skip
# Properties that the library writes; the original's values under these names are not copied.
OURS = OWN_HEADERS | REDRIVE_HEADERS
KEPT_FIELDS = (
    CORRELATION_ID,
    SUBJECT,
    REPLY_TO,
    USER_ID,
    CONTENT_TYPE,
    CONTENT_ENCODING,
    GROUP_ID,
    GROUP_SEQUENCE,
    REPLY_TO_GROUP,
)
# Message annotations that a broker would act on, or in which it has recorded something that is not true of the copy.
# All others are the producer's: RabbitMQ 4 has there the headers `x-…` and the `type` of AMQP 0.9.1 producers. Measured
# (docs/measured/copies.md, "Annotations"). In order: delays; records of a dead letter, and this library's notes; the
# kind of the destination; the route, where `x-cc` sends a copy to more queues; deliveries; mirrors, time of arrival.
NEVER_ANNOTATED = frozenset({
    "x-qpid-not-valid-before",
    "x-opt-ACTUAL-EXPIRY", "x-death", "x-opt-deaths",
    "x-opt-jms-dest", "x-opt-to-type", "x-opt-routing-type",
    "x-exchange", "x-routing-key", "x-cc",
    "x-acquired-count", "x-delivery-count",
    "x-opt-ingress-time",
})  # fmt: skip
NEVER_ANNOTATED_PREFIXES = (
    "x-opt-delivery-",
    "x-opt-ORIG-", "x-first-death-", "x-last-death-", "x-opt-redelivery",
    "x-opt-amq-", "x-opt-rabbitmq-",
)  # fmt: skip
_LATEST = 2**63 - 1  # milliseconds


def never_copied(name: str) -> bool:
    """Return True if no copy may have this application property."""
    return name in NEVER_COPIED or name.startswith(NEVER_COPIED_PREFIXES)


def copied(command: Forward, delivery: AmqpDelivery, profile: AmqpProfile, now: float) -> bytes:
    """Return the encoded copy of a delivery; all that an application can see keeps its type."""
    copy = command.copy
    if copy.delay is not None and copy.expires_at is not None and profile.delay_prolongs:
        copy = replace(copy, expires_at=copy.expires_at - copy.delay)
    own = () if command.back else tuple(profile.copy_properties(command))
    annotations = _own_annotations(command, profile, now)
    if not delivery.readable:
        told = {name: value for name, value in copy.headers.items() if name in OURS} | dict(own)
        if delivery.places:
            # The handler got the body only; the copy has all bytes.
            told[WHOLE] = "false"
        fields = {CONTENT_TYPE: symbol("application/octet-stream")}
        body = section(codec.DATA, simple(delivery.raw))
        return _written(copy, profile, now, annotations, fields, _entries(told), body)
    raw = delivery.raw
    # The library's own come first: a producer may have sent more than are read of a message.
    annotations = {**annotations, **_annotations(delivery, profile), **annotations}
    ours = _entries(dict(own))
    properties = {**ours, **_properties(command, delivery), **ours}
    body = b"".join(raw[begin:end] for begin, end, _ in body_places(delivery.places))
    return _written(copy, profile, now, annotations, _kept_fields(delivery, profile), properties, body)


def _written(
    message: Outgoing,
    profile: AmqpProfile,
    now: float,
    annotations: Entries,
    fields: Mapping[int, bytes],
    properties: Entries,
    body: bytes,
) -> bytes:
    header = [simple(message.persistent), ubyte(message.priority)]
    ttl = ttl_of(message, now)
    if ttl is not None:
        header.append(uint(int(ttl * 1000)))
    all_fields = {
        **fields,
        TO: simple(profile.address(message.destination)),
        CREATION: timestamp(int(now * 1000)),
    }
    if message.expires_at is not None:
        # A producer's time can be the largest that AMQP has, and be rounded above it.
        all_fields[EXPIRY] = timestamp(max(-_LATEST, min(int(message.expires_at * 1000), _LATEST)))
    parts = [section(codec.HEADER, list_of(header))]
    if annotations:
        parts.append(section(codec.MESSAGE_ANNOTATIONS, map_of(list(annotations.values()))))
    parts.append(
        section(codec.PROPERTIES, list_of([all_fields.get(n, NULL) for n in range(max(all_fields) + 1)]))
    )
    if properties:
        parts.append(section(codec.APPLICATION_PROPERTIES, map_of(list(properties.values()))))
    return b"".join([*parts, body])


def _entries(values: Mapping[str, Any]) -> Entries:
    return {name: (simple(name), simple(value)) for name, value in values.items()}


def _own_annotations(command: Forward, profile: AmqpProfile, now: float) -> Entries:
    told: dict[str, Any] = dict(delay_of(command.copy, profile, now))
    if not command.back:
        told |= dict(profile.copy_annotations(command))
    return {name: (symbol(name), simple(value)) for name, value in told.items()}


def _map_of(raw: bytes, at: int | None) -> Entries:
    """Return the encoded entries of a map, by name; the last one of two with the same name, as a decoder does."""
    found: Entries = {}
    if at is not None:
        for begin, middle, end in entries_in(raw, at):
            name = key_name(raw, begin, middle)
            if name is not None:
                found[name] = raw[begin:middle], raw[middle:end]
    return found


def _annotations(delivery: AmqpDelivery, profile: AmqpProfile) -> Entries:
    """Return the annotations of the original that its copy keeps, unchanged, including unreadable ones."""
    found = _map_of(delivery.raw, delivery.place(codec.MESSAGE_ANNOTATIONS))
    return {
        name: entry
        for name, entry in found.items()
        if not (name in NEVER_ANNOTATED or name.startswith(NEVER_ANNOTATED_PREFIXES))
        and profile.takes_annotation(name, entry[1])
    }


def _properties(command: Forward, delivery: AmqpDelivery) -> Entries:
    """Return the copy's properties: those of the original unchanged, including unreadable ones, and the library's."""
    read, wanted = delivery.headers, command.copy.headers
    found = {
        name: entry
        for name, entry in _map_of(delivery.raw, delivery.place(codec.APPLICATION_PROPERTIES)).items()
        if name not in OURS
        and (name in wanted or (name not in read and not (command.redrive and is_stale(name))))
    }
    # The dead-letter properties come first, for the same reason.
    told = _entries({name: value for name, value in wanted.items() if name not in found})
    return {name: entry for name, entry in (told | found).items() if not never_copied(name)}


def _kept_fields(delivery: AmqpDelivery, profile: AmqpProfile) -> dict[int, bytes]:
    raw, at = delivery.raw, delivery.place(codec.PROPERTIES)
    places = [] if at is None else list(places_in(raw, at, PROPERTIES_FIELDS))
    kept = {
        number: raw[places[number][0] : places[number][1]] for number in KEPT_FIELDS if number < len(places)
    }
    if profile.checks_user and delivery.field(USER_ID) != profile.user:
        kept.pop(USER_ID, None)
    return kept
