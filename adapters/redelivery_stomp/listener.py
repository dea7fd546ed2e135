"""stomp.py's callbacks, handed to the link. None may raise: stomp.py closes the connection over an exception."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from stomp.listener import ConnectionListener

if TYPE_CHECKING:
    from stomp.utils import Frame

    from redelivery_stomp.connection import StompConnection

__all__ = ["StompListener"]

logger = logging.getLogger("redelivery")


class StompListener(ConnectionListener):
    """Passes on what the link needs to know."""

    def __init__(self, link: StompConnection) -> None:
        self._link = link
        self._silent = False

    def on_connected(self, frame: Frame) -> None:
        self._link.on_connected(frame)

    def on_message(self, frame: Frame) -> None:
        self._link.on_message(frame)

    def on_receipt(self, frame: Frame) -> None:
        self._link.on_receipt(frame)

    def on_error(self, frame: Frame) -> None:
        self._link.on_error(frame)

    def on_heartbeat_timeout(self) -> None:
        self._link.lost("the broker's heart-beats stopped")

    def on_disconnected(self) -> None:
        self._link.lost("the connection was closed by the other side")
