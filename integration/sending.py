"""Sending over a connection that may be lost meanwhile."""

from __future__ import annotations

from typing import Any

import redelivery

__all__ = ["send_again"]


def send_again(
    connection: redelivery.Connection, queue: str, body: str, tries: int = 2, **options: Any
) -> None:
    """Send; repeat it if the connection was lost before the confirmation: the message may then be sent twice."""
    for left in reversed(range(tries)):
        try:
            connection.send(queue, body, **options)
        except redelivery.TransportError:
            if not left:
                raise
        else:
            return
