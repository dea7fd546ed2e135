"""Connections of `consume`: a refused log-in is an exit code, and stderr says what a drain waits for."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from redelivery.async_connection import AsyncConnection
from redelivery.cli.formatting import note
from redelivery.cli.log_in_refused import log_in_refused
from redelivery.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from redelivery.core.report import Report

__all__ = ["AsyncConsuming", "Consuming"]

# Seconds in which most handlers end: no notice is needed.
SOON = 0.3


class Consuming(Connection):
    """Connection that writes a note if draining takes a while; a refused log-in has an exit code of its own."""

    def __init__(self, uri: str, *, patient: bool, finite: bool, observers: list[Any]) -> None:
        """Make a connection.

        `patient`: entering waits for a broker that is down; the URI may set a limit. `finite`: a breaker that stays
        open ends `run` with BreakerOpen.
        """
        super().__init__(uri, observers=observers)
        self._patient, self._finite = patient, finite

    def __enter__(self) -> Self:
        """Connect."""
        with log_in_refused():
            return super().__enter__()

    def drain(self, timeout: float = 30.0) -> Report:
        """Drain."""
        with _told(self.report, timeout):
            return super().drain(timeout)


class AsyncConsuming(AsyncConnection):
    """The same for asyncio."""

    def __init__(self, uri: str, *, patient: bool, finite: bool, observers: list[Any]) -> None:
        """Make a connection, as `Consuming`."""
        super().__init__(uri, observers=observers)
        self._patient, self._finite = patient, finite

    async def __aenter__(self) -> Self:
        """Connect."""
        with log_in_refused():
            return await super().__aenter__()

    async def drain(self, timeout: float = 30.0) -> Report:
        """Drain."""
        with _told(self.report, timeout):
            return await super().drain(timeout)


@contextmanager
def _told(report: Callable[[], Report], timeout: float) -> Generator[None]:
    def tell() -> None:
        running = report().running
        if running:
            many = "handler still runs" if running == 1 else "handlers still run"
            note(f"draining: {running} {many} (at most {timeout:g} s); again to end at once")

    timer = threading.Timer(SOON, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
