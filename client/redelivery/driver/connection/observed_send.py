"""A send that observers are shown: they may add headers before it, and see its end."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from redelivery.driver.connection.send_request import checked_headers
from redelivery.events import Sent

if TYPE_CHECKING:
    from collections.abc import Generator

    from redelivery.clock import Clock
    from redelivery.core.outgoing import Outgoing
    from redelivery.driver.observers import Observers

__all__ = ["observed_send"]


@contextmanager
def observed_send(
    observers: Observers, message: Outgoing, identity: str, clock: Clock
) -> Generator[Outgoing]:
    """Give the message as the observers want it; show them the end of the block as the end of the send."""
    if not observers.watches_sends:
        yield message
        return
    began, headers = clock.monotonic(), dict(message.headers)
    tokens, error = observers.sending(message.destination, headers), None
    try:
        yield replace(message, headers={**checked_headers(headers), "redeliveryId": identity})
    except BaseException as raised:
        error = raised
        raise
    finally:
        seconds = clock.monotonic() - began
        observers.sent(tokens, Sent(clock.time(), message.destination, identity, seconds, error))
