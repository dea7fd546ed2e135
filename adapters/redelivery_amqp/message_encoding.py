"""Encoding of the application's messages as AMQP."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

import proton

if TYPE_CHECKING:
    from redelivery.core.outgoing import Outgoing
    from redelivery_amqp.profile_base import AmqpProfile

__all__ = ["delay_of", "encoded", "ttl_of"]

_JMS_KINDS = {"queue": 0, "topic": 1, "temp-queue": 2, "temp-topic": 3}
# Seconds: the header's field has 32 bits of milliseconds.
LONGEST_TTL = (2**32 - 1) / 1000
JMS_TYPE = proton.symbol("x-opt-jms-msg-type")
JMS_REPLY = proton.symbol("x-opt-jms-reply-to")
JMS_DESTINATION = proton.symbol("x-opt-jms-dest")


def encoded(message: Outgoing, profile: AmqpProfile, now: float) -> bytes:
    """Return the encoded message, sent at the wall-clock time `now`."""
    text = message.body_kind == "text"
    out = _envelope(message, profile, now)
    annotations: dict[Any, Any] = {JMS_TYPE: proton.byte(5 if text else 3)}
    if message.reply_to is not None:
        annotations[JMS_REPLY] = proton.byte(_JMS_KINDS.get(message.reply_to.partition("://")[0], 0))
    out.annotations = annotations | {
        proton.symbol(name): value for name, value in delay_of(message, profile, now).items()
    }
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


def delay_of(message: Outgoing, profile: AmqpProfile, now: float) -> dict[str, int]:
    """Return the annotation with which the broker delays a message; empty without a delay."""
    if message.delay is None or profile.delay is None:
        return {}
    milliseconds = ceil(message.delay * 1000)
    if profile.delay_is_time:
        milliseconds += ceil(now * 1000)
    # A plain integer (an AMQP long): Classic, Artemis and Broker-J ignore one that is typed as a time.
    return {profile.delay: milliseconds}


def ttl_of(message: Outgoing, now: float) -> float | None:
    """Return the seconds until a message expires; None: it does not, or they exceed the header's 32 bits."""
    if message.expires_at is None:
        return None
    ttl = max(0.001, message.expires_at - now)
    # A longer life is in the `absolute-expiry-time` only.
    return ttl if ttl <= LONGEST_TTL else None


def _envelope(message: Outgoing, profile: AmqpProfile, now: float) -> proton.Message:
    out = proton.Message()
    out.durable = message.persistent
    out.priority = message.priority
    out.address = profile.address(message.destination)
    out.creation_time = int(now * 1000) / 1000
    ttl = ttl_of(message, now)
    if ttl is not None:
        out.ttl = ttl
    if message.expires_at is not None:
        out.expiry_time = message.expires_at
    return out
