"""Consuming as a part of another program: inside of a `with` block, or as the lifespan of an ASGI application."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from redelivery.core.option_values import seconds
from redelivery.errors import TransportError
from redelivery.log import logger

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator
    from concurrent.futures import Future
    from contextlib import AbstractAsyncContextManager

__all__ = ["Embedded", "EmbeddedAsync", "consuming", "consuming_async", "lifespan_of"]


class Embedded(Protocol):
    """Interface of a connection with threads; `Connection` implements it."""

    def start(self) -> None:
        """Start the listeners."""

    def drain(self, timeout: float) -> object:
        """Stop dispatching, and wait for the handlers."""
        ...


class EmbeddedAsync(Protocol):
    """Interface of a connection on an event loop; `AsyncConnection` implements it."""

    async def start(self) -> None:
        """Start the listeners."""

    async def drain(self, timeout: float) -> object:
        """Stop dispatching, and wait for the handlers."""
        ...

    def running(self, drain_timeout: float, *, required: bool) -> AbstractAsyncContextManager[Any]:
        """Return a context manager that consumes inside of its block."""
        ...


@contextmanager
def consuming(connection: Embedded, drain_timeout: float) -> Generator[None]:
    """Consume inside of the block, on an open connection; drain at its end, however it ends."""
    connection.start()
    try:
        yield
    finally:
        connection.drain(drain_timeout)


@asynccontextmanager
async def consuming_async(
    connection: EmbeddedAsync,
    drain_timeout: float,
    standing: Callable[[], Future[None]] | None,
    failed: Callable[[BaseException], None],
) -> AsyncGenerator[None]:
    """Consume as `consuming` does, on an event loop.

    Args:
        connection: The connection.
        drain_timeout: Seconds that the drain waits for handlers.
        standing: None: the connection is up; start the listeners at once. Else a function that returns a future, which
            ends when the first connection is up; the listeners are started then, in the background.
        failed: Called with the error if the listeners cannot be started in the background.
    """
    starter: asyncio.Task[None] | None = None
    if standing is None:
        await connection.start()
    else:
        starter = asyncio.create_task(_start_later(connection, standing, failed))
    try:
        yield
    finally:
        if starter is not None:
            starter.cancel()
            await asyncio.wait([starter])
        await connection.drain(drain_timeout)


async def _start_later(
    connection: EmbeddedAsync, standing: Callable[[], Future[None]], failed: Callable[[BaseException], None]
) -> None:
    while True:
        try:
            # TransportError: the connection was given up or closed, and reports that itself.
            await asyncio.wrap_future(standing())
        except TransportError:
            return
        try:
            await connection.start()
        # The connection was lost meanwhile, or the broker did not answer in time.
        except TransportError as error:
            logger.warning("consuming has not started yet, trying again: %s", error)
        except Exception as error:  # noqa: BLE001 - no call of the application waits here for the error
            logger.error("consuming has not started: %s", error)  # noqa: TRY400 - `wait` raises it with its traceback
            failed(error)
            return
        else:
            return


def lifespan_of(
    connection: EmbeddedAsync, drain_timeout: float, *, required: bool
) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """Return a lifespan function for an ASGI application, which consumes while the application runs."""
    seconds(drain_timeout, "drain_timeout")

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncGenerator[None]:
        state = getattr(app, "state", None)
        if state is not None:
            state.redelivery = connection
        async with connection.running(drain_timeout, required=required):
            yield

    return lifespan
