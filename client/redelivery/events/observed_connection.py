"""View of a connection for its observers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redelivery.core.report import Report
    from redelivery.health import Health

__all__ = ["Healthy", "ObservedConnection"]


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
