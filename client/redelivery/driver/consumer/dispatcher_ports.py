"""What a dispatcher needs of others: of the driver of its connection, and of the session that it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.commands import AdapterCommand
    from redelivery.core.delivery import Delivery
    from redelivery.core.protocol_poison import ProtocolPoison
    from redelivery.driver.consumer.drops import Drops
    from redelivery.driver.session.activity import SessionActivity
    from redelivery.message import Message

__all__ = ["ConsumerSession", "DriverPort"]


class DriverPort(Protocol):
    """The driver of a connection, as its dispatchers see it; `ConnectionDriver` implements it."""

    protocol_poison: ProtocolPoison
    drops: Drops

    def write(self, commands: Sequence[AdapterCommand]) -> None:
        """Write commands on this thread."""

    def defer(self, commands: Sequence[AdapterCommand]) -> None:
        """Leave commands to the driver's thread."""

    def expect(self, dispatcher: Any) -> None:
        """Have the driver's thread flush the settlements that a dispatcher has collected."""

    def expect_alarm(self, dispatcher: Any = None) -> None:
        """Wake the driver's thread: an engine's next timer may have moved forward; without a dispatcher, any one's."""

    def stopped(self, dispatcher: Any) -> None:
        """Have the driver's thread unsubscribe a dispatcher that has an error, once all is over."""


class ConsumerSession(Protocol):
    """The session of a consumer, as its dispatcher sees it; `SessionState` implements it."""

    activity: SessionActivity

    def message(self, delivery: Delivery, dispatcher: Any, *, handled: bool) -> Message:
        """Return the message of a delivery. `handled`: a handler gets it."""
        ...

    def pulled(self, message: Any) -> None:
        """Take note that a `receive` is about to return a message."""

    def idle(self, dispatcher: object) -> int:
        """Return how many deliveries of this dispatcher the session holds and no handler works on."""
        ...
