"""The view of a connection that its observers get, if they ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar
from weakref import ref

from redelivery.events import ObservedConnection
from redelivery.events.observer import Healthy

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.driver.connection.connection_driver import ConnectionDriver
    from redelivery.settings import Settings

__all__ = ["observed_connection"]

ConnectionT = TypeVar("ConnectionT", bound=Healthy)


def observed_connection(
    connection: ConnectionT,
    closed: Callable[[ConnectionT], bool],
    driver: ConnectionDriver,
    settings: Settings,
) -> ObservedConnection:
    """Return the view of a connection that its observers may keep; it does not keep connection or driver alive."""
    counts, signs, known = driver.open_consumers.counts, driver.signs, ref(connection)

    def open_one() -> ConnectionT | None:
        found = known()
        return None if found is None or closed(found) else found

    name = ",".join(str(endpoint).partition("://")[2] for endpoint in settings.endpoints)
    return ObservedConnection(
        name, open_one, counts.reports, lambda: signs.reconnects, lambda: known() is None and counts.final
    )
