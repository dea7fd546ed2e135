"""stomp.py's callbacks, passed on to the connection.

None may raise: stomp.py closes the connection after an exception.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from stomp.listener import ConnectionListener, HeartbeatListener

if TYPE_CHECKING:
    from stomp.transport import Transport
    from stomp.utils import Frame

    from redelivery_stomp.ports import FrameReceiver

__all__ = ["PatientHeartbeats", "StompListener"]
# Agreed intervals of silence after which the connection is lost. Classic looks once in each interval, and writes a
# heart-beat only if nothing was written since it looked before: after a frame it is silent for up to two intervals
# (docs/measured/activemq-stomp.md, Connecting). stomp.py's own 1.5 ends every second connection on which the messages
# stop for a while.
SILENT_INTERVALS = 2.5


class PatientHeartbeats(HeartbeatListener):
    """stomp.py's heart-beats, with as much patience as Classic needs."""

    def __init__(self, transport: Transport, seconds: float) -> None:
        milliseconds = int(seconds * 1000)
        super().__init__(transport, (milliseconds, milliseconds), SILENT_INTERVALS)

    def on_connected(self, frame: Frame) -> None:
        super().on_connected(frame)
        if self.running:
            # stomp.py waits twice as long for the first heart-beat: a broker that freezes early is noticed late.
            self.received_heartbeat = time.monotonic()


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
