"""Sends with observers: they may add headers before a send, and get its end as an event."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redelivery.driver.connection.send_request import checked_headers
from redelivery.errors import ConfigurationError
from redelivery.events import Sent
from redelivery.log import logger

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from redelivery.clock import Clock
    from redelivery.core.outgoing import Outgoing
    from redelivery.driver.observers import Observers

__all__ = ["observed_send"]


def _added(headers: Mapping[str, Any], message: Outgoing) -> dict[str, str | int | float]:
    """Return the headers that observers have added, without those that no broker can carry; these are logged."""
    found: dict[str, str | int | float] = {}
    for name, value in headers.items():
        if name in message.headers:
            continue
        try:
            found |= checked_headers({name: value})
        except ConfigurationError as error:
            logger.warning("%s: an observer's header is left out: %s", message.destination, error)
    return found


def observed_send(
    observers: Observers, message: Outgoing, identity: str, clock: Clock
) -> AbstractContextManager[Outgoing]:
    """Context manager: gives the message with the observers' headers; its end is the end of the send for them."""
    return _observed(observers, message, identity, clock) if observers.watches_sends else nullcontext(message)


@contextmanager
def _observed(observers: Observers, message: Outgoing, identity: str, clock: Clock) -> Generator[Outgoing]:
    began, headers = clock.monotonic(), dict(message.headers)
    tokens, error = observers.sending(message.destination, headers), None
    try:
        yield replace(message, headers={**_added(headers, message), **message.headers})
    except BaseException as raised:
        error = raised
        raise
    finally:
        seconds = clock.monotonic() - began
        observers.sent(tokens, Sent(clock.time(), message.destination, identity, seconds, error))
