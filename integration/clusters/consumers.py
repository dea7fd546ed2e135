"""The consumer of a run: a connection of threads, or one of asyncio in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import redelivery
from integration.work import Running

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from redelivery.core.report import Report
    from redelivery.health import Health

    Handler = Callable[[redelivery.Message], Awaitable[None]]

__all__ = ["Consuming", "asynchronous", "threaded"]

WORKERS = 2


class Consuming(Protocol):
    """A connection that consumes; any thread may call it."""

    def health(self) -> Health:
        """Return the state of the connection and of its consumer."""

    def report(self) -> Report:
        """Return the counts so far."""

    @property
    def ended(self) -> bool:
        """True if it consumes no more."""

    @property
    def failure(self) -> BaseException | None:
        """The error that has ended it."""


class _Threads:
    """A `Connection`."""

    def __init__(self, connection: redelivery.Connection, running: Running) -> None:
        self._running = running
        self.health, self.report = connection.health, connection.report

    @property
    def ended(self) -> bool:
        return self._running.ended

    @property
    def failure(self) -> BaseException | None:
        return self._running.error


class _Loop:
    """An `AsyncConnection`, whose event loop has a thread of its own."""

    def __init__(self, uri: str, options: dict[str, Any], queue: str, work: Handler) -> None:
        self._uri, self._options, self._queue, self._work = uri, options, queue, work
        self._entered = threading.Event()
        self.failure: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name="event loop", daemon=True)

    @property
    def ended(self) -> bool:
        return not self.thread.is_alive()

    def begin(self) -> None:
        """Start, and wait until the connection is made, or not."""
        self.thread.start()
        while not self._entered.wait(0.05) and not self.ended:
            pass

    def end(self) -> None:
        """Stop, drain, and fail if that does not end."""
        if not self.ended:
            self._loop.call_soon_threadsafe(self._connection.stop)
        self.thread.join(30.0)
        assert self.ended, "run() has not ended"

    def _run(self) -> None:
        try:
            asyncio.run(self._consume())
        except BaseException as error:
            self.failure = error

    async def _consume(self) -> None:
        async with redelivery.connect_async(self._uri, **self._options) as connection:
            self._loop, self._connection = asyncio.get_running_loop(), connection
            self.health, self.report = connection.health, connection.report
            connection.listen(self._queue, self._work, workers=WORKERS)
            self._entered.set()
            await connection.run(drain_timeout=10.0)


@contextmanager
def threaded(
    uri: str, queue: str, work: Callable[[redelivery.Message], None], **options: Any
) -> Generator[Consuming]:
    """Yield a connection that consumes a queue with two threads."""
    with ExitStack() as stack:
        connection = stack.enter_context(redelivery.connect(uri, **options))
        connection.listen(queue, work, workers=WORKERS)
        yield _Threads(connection, stack.enter_context(Running(connection)))


@contextmanager
def asynchronous(uri: str, queue: str, work: Handler, **options: Any) -> Generator[Consuming]:
    """Yield a connection that consumes a queue with two tasks. Raises what the connection raises at its start."""
    loop = _Loop(uri, options, queue, work)
    loop.begin()
    if loop.failure is not None:
        raise loop.failure
    try:
        yield loop
    finally:
        loop.end()
