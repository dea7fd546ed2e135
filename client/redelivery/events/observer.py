"""The base of observers."""

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
        """The observer was given to a connection, or to a consumer of it; before anything else of it is called."""

    def started(self, message: Message) -> object:
        """A handler begins with a message, on this thread or in this task.

        Returns:
            Anything: `finished` gets it.
        """

    def finished(self, token: Any, result: Finished) -> None:
        """A delivery has its result; on the thread, or in the task, that called `started`.

        Args:
            token: What `started` returned; None if it raised, and for a message that the application has received
                itself.
            result: What has become of the delivery.
        """

    def sending(self, destination: str, headers: MutableMapping[str, Any]) -> object:
        """A message is about to be sent. Headers may be added: text, whole numbers, finite floats, truth values.

        Returns:
            Anything: `sent` gets it.
        """

    def sent(self, token: Any, result: Sent) -> None:
        """A `send` has ended; on the same thread, or in the same task."""

    def event(self, event: Event) -> None:
        """Something else has happened: any event but `Started`, `Finished` and `Sent`."""
