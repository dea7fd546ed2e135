"""Limit of the sessions of one connection: idle senders are ended to make room, and more consumers are refused.

Each link has its own session, and RabbitMQ 4 allows 64 of them on a connection. proton does not begin a session above
the broker's limit. It then writes nothing but heart-beats, and the connection hangs.

Every method runs under the wire's lock.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from redelivery.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.errors import RedeliveryError
    from redelivery_amqp.detach import DetachQueue
    from redelivery_amqp.io_thread import ProtonEngine
    from redelivery_amqp.sender import SenderLink

    Action = Callable[[], None]
    Refused = Callable[[RedeliveryError], None]

__all__ = ["SessionLimit"]


class SessionLimit:
    """Session limit of one connection."""

    def __init__(self, wire: ProtonEngine, detaches: DetachQueue) -> None:
        self._wire = wire
        self._detaches = detaches
        self.retire: Callable[[], bool] = lambda: False
        """Ends the session of an idle sender; returns True if there was one."""

    def begin(self, action: Action, refused: Refused, *, spare: int = 0) -> None:
        """Begin a session after the end of those that are ending; at the limit, end an idle sender first.

        Args:
            action: Begins the session.
            refused: Called with the error if there is no room.
            spare: Number of sessions that must still be possible afterwards.
        """
        # Not a closure that refers to itself: the garbage collector would delete proton's objects without the lock.
        self._detaches.begin(partial(self._begin, action, refused, spare))

    def _begin(self, action: Action, refused: Refused, spare: int) -> None:
        if self._wire.sessions + spare < self._wire.most_sessions:
            action()
        elif self.retire():
            # The channel is free after the broker's answer.
            self.begin(action, refused, spare=spare)
        else:
            refused(self._error())

    def end(self, sender: SenderLink) -> None:
        """End the session of a sender."""
        self._detaches.close(sender)

    def _error(self) -> RedeliveryError:
        return AdapterError(
            f"the broker allows {self._wire.most_sessions} sessions on a connection, and each consumer needs one; open "
            "another connection (RabbitMQ: or raise session_max_per_connection)"
        )
