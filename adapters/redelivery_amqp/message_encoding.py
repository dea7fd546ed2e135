"""Messages written as AMQP: a producer's, and the copy of a poisoned one, whose body stays what it is byte for byte."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Any

import proton

from redelivery.core.dead_lettering.redrive import REDRIVE_HEADERS
from redelivery.core.dead_lettering.routing import OWN_HEADERS
from redelivery_amqp import codec
from redelivery_amqp.plain_values import plain_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redelivery.core.commands import Forward
    from redelivery.core.outgoing import Outgoing
    from redelivery_amqp.delivery import AmqpDelivery
    from redelivery_amqp.profiles import AmqpProfile

__all__ = ["copied", "encoded"]

_JMS_KINDS = {"queue": 0, "topic": 1, "temp-queue": 2, "temp-topic": 3}
# Properties that a broker would act on: the copy would be dropped as a duplicate, scheduled, or taken for another one's
# dead letter. Artemis drops the second message with an id that it knows and confirms it: a dead letter put back too.
NEVER_COPIED = ("_AMQ_DUPL_ID", "_AMQ_ORIG_", "AMQ_SCHEDULED_", "scheduledJobId", "redeliveryDelay")
OURS = OWN_HEADERS | REDRIVE_HEADERS  # never what the original had under these names
LONGEST_TTL = (2**32 - 1) / 1000  # seconds: the header's field has 32 bits of milliseconds
JMS_TYPE = proton.symbol("x-opt-jms-msg-type")
JMS_REPLY = proton.symbol("x-opt-jms-reply-to")
JMS_DESTINATION = proton.symbol("x-opt-jms-dest")


def encoded(message: Outgoing, profile: AmqpProfile, now: float) -> bytes:
    """Return a message as it goes over the wire at the wall-clock time `now`."""
    text = message.body_kind == "text"
    out = _envelope(message, profile, now)
    annotations: dict[Any, Any] = {JMS_TYPE: proton.byte(5 if text else 3)}
    if message.reply_to is not None:
        annotations[JMS_REPLY] = proton.byte(_JMS_KINDS.get(message.reply_to.partition("://")[0], 0))
    out.annotations = annotations | _delay(message, profile, now)
    out.correlation_id = message.correlation_id
    out.subject = message.message_type
    out.group_id = message.group
    if message.reply_to is not None:
        out.reply_to = profile.address(message.reply_to)
    if message.content_type is not None:
        out.content_type = message.content_type
    elif not text:
        out.content_type = "application/octet-stream"
    out.properties = dict(message.headers)
    out.inferred = True
    out.body = message.body.decode() if text else message.body
    return bytes(out.encode())


def copied(command: Forward, delivery: AmqpDelivery, profile: AmqpProfile, now: float) -> bytes:
    """Return the dead-letter copy of a delivery: typed as the original in all that the application can see."""
    original = delivery.decoded()
    copy = command.copy
    if copy.delay is not None and copy.expires_at is not None and profile.delay_prolongs:
        copy = replace(copy, expires_at=copy.expires_at - copy.delay)
    out = _envelope(copy, profile, now)
    if original is None:
        return _whole(out, command, delivery, profile, now)
    out.annotations = {
        name: value
        for name, value in (original.annotations or {}).items()
        if str(name) in ("x-opt-jms-msg-type", "x-opt-jms-reply-to")
    }
    out.annotations |= _own_annotations(command, profile) | _delay(copy, profile, now)
    for name in (
        "correlation_id",
        "subject",
        "reply_to",
        "user_id",
        "group_id",
        "group_sequence",
        "reply_to_group_id",
    ):
        value: Any = getattr(original, name)
        if value not in (None, b"", 0):
            setattr(out, name, plain_bytes(value))
    if delivery.content_type is not None:
        out.content_type = delivery.content_type
    if delivery.content_encoding is not None:
        out.content_encoding = delivery.content_encoding
    typed = original.properties or {}
    out.properties = {
        **{
            name: value if name in OURS else typed.get(name, value)
            for name, value in copy.headers.items()
            if not name.startswith(NEVER_COPIED)
        },
        **dict(_own_properties(command, profile)),
    }
    # From three bytes before a section: they say which one it is.
    body = b"".join(
        delivery.raw[begin - 3 : end] for code, begin, end in delivery.places if code in codec.BODIES
    )
    return bytes(out.encode()) + body


def _delay(message: Outgoing, profile: AmqpProfile, now: float) -> dict[Any, Any]:
    """Return the annotation that has the broker hold a message back."""
    if message.delay is None or profile.delay is None:
        return {}
    milliseconds = ceil(message.delay * 1000)
    if profile.delay_is_time:
        milliseconds += ceil(now * 1000)
    # A plain integer (an AMQP long): Classic, Artemis and Broker-J ignore one that is typed as a time.
    return {proton.symbol(profile.delay): milliseconds}


def _own_properties(command: Forward, profile: AmqpProfile) -> Iterable[tuple[str, str]]:
    return () if command.back else profile.copy_properties(command)


def _own_annotations(command: Forward, profile: AmqpProfile) -> dict[Any, Any]:
    if command.back:
        return {}
    return {proton.symbol(name): value for name, value in profile.copy_annotations(command)}


def _whole(
    out: proton.Message, command: Forward, delivery: AmqpDelivery, profile: AmqpProfile, now: float
) -> bytes:
    """Return a copy of what cannot be decoded: all its bytes are the body."""
    out.annotations = _own_annotations(command, profile) | _delay(command.copy, profile, now)
    told = {name: value for name, value in command.copy.headers.items() if name in OURS}
    out.properties = {**told, **dict(_own_properties(command, profile))}
    out.content_type = "application/octet-stream"
    out.inferred = True
    out.body = delivery.raw
    return bytes(out.encode())


def _envelope(message: Outgoing, profile: AmqpProfile, now: float) -> proton.Message:
    out = proton.Message()
    out.durable = message.persistent
    out.priority = message.priority
    out.address = profile.address(message.destination)
    out.creation_time = int(now * 1000) / 1000
    if message.expires_at is not None:
        ttl = max(0.001, message.expires_at - now)
        if ttl <= LONGEST_TTL:  # else the time of its expiry alone tells
            out.ttl = ttl
        out.expiry_time = message.expires_at
    return out
