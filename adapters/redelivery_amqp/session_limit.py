"""How many sessions one connection may have, and what happens when it has them all.

Each link has a session of its own, and RabbitMQ 4 takes 64 of them on a connection. proton asks for no channel that the
broker does not have: it writes nothing more at all then, heart-beats apart, and the connection stands and does nothing.

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
    from redelivery_amqp.proton_engine import ProtonEngine
    from redelivery_amqp.sender import SenderLink

    Action = Callable[[], None]
    Refused = Callable[[RedeliveryError], None]

__all__ = ["SessionLimit"]


class SessionLimit:
    """That of one connection."""

    def __init__(self, wire: ProtonEngine, detaches: DetachQueue) -> None:
        self._wire = wire
        self._detaches = detaches
        self.retire: Callable[[], bool] = lambda: False
        """Ends the session of an unused sender, and returns whether there was one."""

    def begin(self, action: Action, refused: Refused, *, spare: int = 0) -> None:
        """Have a session begun when those that end are over, and one that is not needed ended for it if it must be.

        `spare`: how many others there must still be room for.
        """
        # No function that knows itself: the garbage collector would end proton's objects, without the lock.
        self._detaches.begin(partial(self._begin, action, refused, spare))

    def _begin(self, action: Action, refused: Refused, spare: int) -> None:
        if self._wire.sessions + spare < self._wire.most_sessions:
            action()
        elif self.retire():
            # Its channel is free when the broker has answered.
            self.begin(action, refused, spare=spare)
        else:
            refused(self._error())

    def end(self, sender: SenderLink) -> None:
        """End the session of one."""
        self._detaches.close(sender)

    def _error(self) -> RedeliveryError:
        return AdapterError(
            f"the broker takes {self._wire.most_sessions} sessions on a connection, and each consumer has one: use "
            "another connection for more of them (RabbitMQ: or raise session_max_per_connection)"
        )
