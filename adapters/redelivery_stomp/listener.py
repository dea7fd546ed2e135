"""stomp.py's callbacks, passed on to the connection.

None may raise: stomp.py closes the connection after an exception.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stomp.listener import ConnectionListener

if TYPE_CHECKING:
    from stomp.utils import Frame

    from redelivery_stomp.ports import FrameReceiver

__all__ = ["StompListener"]


class StompListener(ConnectionListener):
    """Passes on the frames and the ends that a connection needs."""

    def __init__(self, receiver: FrameReceiver) -> None:
        self._receiver = receiver

    def on_connected(self, frame: Frame) -> None:
        self._receiver.on_connected(frame)

    def on_receipt(self, frame: Frame) -> None:
        self._receiver.on_receipt(frame)

    def on_error(self, frame: Frame) -> None:
        self._receiver.on_error(frame)

    def on_heartbeat_timeout(self) -> None:
        self._receiver.lost("the broker's heart-beats stopped", by_broker=False)

    def on_disconnected(self) -> None:
        self._receiver.lost("the connection was closed by the other side")
