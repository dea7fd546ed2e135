"""Base class of observers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from redelivery.events.event import Event
    from redelivery.events.observed_connection import ObservedConnection
    from redelivery.events.of_connection import Sent
    from redelivery.events.of_handling import Finished
    from redelivery.message import Message

__all__ = ["Observer"]


class Observer:
    """Interface of observers; a method that is not overridden is never called, and costs nothing."""

    event_types: ClassVar[tuple[type[Event], ...] | None] = None
    """Types of events for which `event` is called; None: all. Without `Received` a message costs 1 µs less."""

    def attached(self, connection: ObservedConnection) -> None:
        """Called first: the observer was given to a connection, or to one of its consumers."""

    def started(self, message: Message) -> object:
        """Called when a handler begins with a message, on its thread or in its task.

        Args:
            message: The message; do not settle it.

        Returns:
            Any object; `finished` gets it as `token`.
        """

    def finished(self, token: Any, result: Finished) -> None:
        """Called when a delivery has its result, on the thread, or in the task, that called `started`.

        Args:
            token: The object that `started` returned; None if it raised, and for a message that the application has
                received itself.
            result: The result of the delivery.
        """

    def sending(self, destination: str, headers: MutableMapping[str, Any]) -> object:
        """Called when a message is about to be sent.

        Args:
            destination: Destination of the message.
            headers: Its headers. The observer may add some: text, whole numbers, finite floats, booleans.

        Returns:
            Any object; `sent` gets it as `token`.
        """

    def sent(self, token: Any, result: Sent) -> None:
        """Called when a `send` has ended, on the same thread, or in the same task, as `sending`."""

    def event(self, event: Event) -> None:
        """Called with any event but `Started`, `Finished` and `Sent`."""
