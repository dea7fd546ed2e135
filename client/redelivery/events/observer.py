"""Base class of observers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping

    from redelivery.core.report import Report
    from redelivery.events.event import Event, Finished, Sent
    from redelivery.health import Health
    from redelivery.message import Message

__all__ = ["Healthy", "ObservedConnection", "Observer"]


# ---- Observer --------------------------------------------------------------------------------------------


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


# ---- Observed connection ---------------------------------------------------------------------------------
# View of a connection for its observers.


class Healthy(Protocol):
    """Interface of a connection that has a health; both kinds of connection implement it."""

    def health(self) -> Health:
        """Return the health."""
        ...


class ObservedConnection:
    """View of a connection that an observer may keep: it does not keep the connection alive.

    Any thread may call the methods, at any time. They do not wait.
    """

    def __init__(
        self,
        name: str,
        connection: Callable[[], Healthy | None],
        reports: Callable[[], Mapping[str, Report]],
        reconnects: Callable[[], int],
        over: Callable[[], bool],
    ) -> None:
        """Made by the library. `connection`: returns the connection, or None if it is closed."""
        self.name = name
        """Addresses of the URI as `host:port`, joined by commas; without user and password."""
        self._connection = connection
        self._reports = reports
        self._reconnects = reconnects
        self._over = over

    def health(self) -> Health | None:
        """Return `connection.health()`; None if the connection is closed, or in a process that was forked later."""
        connection = self._connection()
        try:
            return None if connection is None else connection.health()
        except ConfigurationError:
            return None

    def reports(self) -> Mapping[str, Report]:
        """Return the totals by destination of the consumers, ended ones included.

        Their sum is `connection.report()`, except that `running` and `unconfirmed` are 0: `health` has them. Past 1,000
        destinations of ended consumers, the rest is added up as `other`.
        """
        return self._reports()

    def reconnects(self) -> int:
        """Return the number of connections after the first one."""
        return self._reconnects()

    @property
    def over(self) -> bool:
        """True if no value can change any more: the application does not use the connection, and no handler runs."""
        return self._over()
