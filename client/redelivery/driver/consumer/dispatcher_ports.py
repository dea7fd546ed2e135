"""Interfaces that a dispatcher uses: the driver of its connection, and the session of its consumer."""

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
    """Interface of a connection's driver for its dispatchers; `ConnectionDriver` implements it."""

    protocol_poison: ProtocolPoison
    drops: Drops

    def write(self, commands: Sequence[AdapterCommand]) -> None:
        """Write commands on this thread."""

    def defer(self, commands: Sequence[AdapterCommand]) -> None:
        """Leave commands to the driver's thread."""

    def expect(self, dispatcher: Any) -> None:
        """Make the driver's thread write the settlements that a dispatcher collects."""

    def expect_alarm(self, dispatcher: Any = None) -> None:
        """Wake the driver's thread: the next timer of an engine may have moved forward. None: of any engine."""

    def stopped(self, dispatcher: Any) -> None:
        """Make the driver's thread unsubscribe a dispatcher that has an error, when its work is over."""


class ConsumerSession(Protocol):
    """Interface of a consumer's session for its dispatcher; `SessionState` implements it."""

    activity: SessionActivity

    def message(self, delivery: Delivery, dispatcher: Any, *, handled: bool) -> Message:
        """Return the message of a delivery. `handled`: True if a handler gets it."""
        ...

    def pulled(self, message: Any) -> None:
        """Record that a `receive` is about to return a message."""

    def idle(self, dispatcher: object) -> int:
        """Return the number of deliveries of this dispatcher that the session has and no handler works on."""
        ...
