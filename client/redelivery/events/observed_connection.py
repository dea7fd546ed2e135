"""A connection as its observers have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redelivery.core.report import Report
    from redelivery.health import Health

__all__ = ["Healthy", "ObservedConnection"]


class Healthy(Protocol):
    """Interface of what has a health; both connections implement it."""

    def health(self) -> Health:
        """Return it."""
        ...


class ObservedConnection:
    """A connection as an observer may keep it: it does not keep the connection alive.

    All methods may be called from any thread, at any time. They wait for nothing.
    """

    def __init__(
        self,
        name: str,
        connection: Callable[[], Healthy | None],
        reports: Callable[[], Mapping[str, Report]],
        reconnects: Callable[[], int],
        over: Callable[[], bool],
    ) -> None:
        """Made by the library. `connection`: returns it, or None once it is closed."""
        self.name = name
        """Addresses of the URI as `host:port`, joined by commas; without user and password."""
        self._connection = connection
        self._reports = reports
        self._reconnects = reconnects
        self._over = over

    def health(self) -> Health | None:
        """Return `connection.health()`; None if it is closed, or this is a process that was forked from its own."""
        connection = self._connection()
        try:
            return None if connection is None else connection.health()
        except ConfigurationError:
            return None

    def reports(self) -> Mapping[str, Report]:
        """Return what has become of dispatches so far, by the destinations of the consumers; of ended ones, too.

        They sum up to `connection.report()`, but `running` and `unconfirmed` are 0: `health` has them. Past 1000
        destinations, those of ended consumers are together in `other`.
        """
        return self._reports()

    def reconnects(self) -> int:
        """Return the number of connections after the first one."""
        return self._reconnects()

    @property
    def over(self) -> bool:
        """True if nothing of it can change: the application has let it go, and none of its handlers runs."""
        return self._over()
