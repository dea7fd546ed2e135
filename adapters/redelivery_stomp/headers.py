"""Headers of SUBSCRIBE and SEND, and checks of the values that cannot be written in them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from redelivery.core.capabilities import cannot_browse
from redelivery.core.dead_lettering.dead_letter_headers import never_copied

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redelivery.core.commands import Forward, Subscribe
    from redelivery.core.outgoing import Outgoing
    from redelivery_stomp.profile_base import StompProfile

__all__ = ["cannot_send", "cannot_subscribe", "copy_of", "send_headers", "subscribe_headers"]


def subscribe_headers(
    profile: StompProfile, command: Subscribe, identity: str
) -> Iterator[tuple[str, object]]:
    """Yield the headers of SUBSCRIBE; `identity`: the id, one for each subscription of a consumer."""
    yield "id", identity
    address = profile.standing if command.existing else profile.pattern
    yield "destination", address(command.destination)
    # A browser acknowledges nothing.
    yield "ack", "auto" if command.browse else "client-individual"
    yield "browser", "true" if command.browse else None
    yield "selector", command.selector
    yield from profile.subscribe_headers(command)


def send_headers(
    profile: StompProfile, message: Outgoing, *, dead_letter: bool = False
) -> Iterator[tuple[str, object]]:
    """Yield the headers of SEND, without receipt and transaction; `dead_letter`: the message is a dead letter."""
    yield "destination", profile.target(message)
    yield "persistent", True if message.persistent else profile.non_persistent
    yield "priority", None if message.priority == 4 else message.priority
    yield "expires", None if message.expires_at is None else int(message.expires_at * 1000)
    yield "content-type", message.content_type
    yield "correlation-id", message.correlation_id
    yield "reply-to", None if message.reply_to is None else profile.reply_address(message.reply_to)
    yield "type", message.message_type
    yield "JMSXGroupID", message.group
    yield from profile.delay_headers(message)
    yield from profile.send_headers(message)
    if message.destination.startswith("queue://") and (message.delay is None or not profile.declares):
        yield from profile.dead_letter_arguments if dead_letter else profile.queue_arguments
    yield from message.headers.items()


def cannot_send(profile: StompProfile, message: Outgoing) -> str | None:
    """Return why a message cannot be sent over STOMP, or None."""
    for name in profile.protocol_headers.intersection(message.headers):
        return f"header {name!r} belongs to STOMP and cannot be set; use another name"
    return profile.cannot_send(message)


def cannot_subscribe(profile: StompProfile, command: Subscribe) -> str | None:
    """Return why a consumer cannot start on this broker, or may lose its dead letters; else None."""
    wrong = profile.problem(command.destination)
    if command.browse and not profile.capabilities.browse:
        return cannot_browse(profile.capabilities)
    for each in command.dead_letters:
        wrong = wrong or profile.cannot_keep(each)
    return wrong


def copy_of(profile: StompProfile, command: Forward) -> Outgoing:
    """Return the copy to send, with the headers that this broker's tools expect.

    It has none of the headers that the broker acts on.
    """
    given = profile.redrive_headers(command) if command.back else profile.copy_headers(command)
    own = [(name, value) for name, value in given if value is not None]
    given_here = {name for name, _ in own}
    kept = {
        name: value
        for name, value in command.copy.headers.items()
        if name not in given_here and not never_copied(name)
    }
    copy = replace(command.copy, headers={**kept, **dict(own)})
    if copy.delay is not None and copy.expires_at is not None and profile.delay_prolongs:
        return replace(copy, expires_at=copy.expires_at - copy.delay)
    return copy
