"""One interface for both kinds of connection: a scenario is written once, and runs on threads and on a loop."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from tests.eventually import eventually as wait_for

import redelivery

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from redelivery import Message, Report
    from redelivery.testing import ManualClock, MemoryBroker

T = TypeVar("T")
# Real seconds for an event that needs no more virtual ones: only what hangs takes so long, also on a busy machine.
PATIENCE = 60.0

__all__ = ["AsyncTwin", "SyncTwin", "Twin", "body_of", "eventually", "threads_left"]


def threads_left() -> list[threading.Thread]:
    """Wait for the library's threads for a moment; return those that still run."""
    ours = [thread for thread in threading.enumerate() if thread.name.startswith("redelivery-")]
    for thread in ours:
        thread.join(PATIENCE)
    return [thread for thread in ours if thread.is_alive()]


def eventually(twin: Twin, happened: Callable[[], object]) -> None:
    """Wait for a thread of the library, with virtual time, and on a busy machine real time, too."""
    for _ in range(200):
        if happened():
            return
        twin.advance(0.01)

    def happened_by_now() -> object:
        # A loop turns only in here: a handler's thread may end later than 200 steps of virtual time take.
        twin.advance(0)
        return happened()

    wait_for(happened_by_now)


def body_of(message: Message | None) -> str | None:
    """Return the text of a message; None without a message."""
    return None if message is None else message.text


class SyncTwin:
    """`redelivery.connect`, driven by the test's own thread."""

    asynchronous = False

    def __init__(self, broker: MemoryBroker, clock: ManualClock) -> None:
        self.broker = broker
        self.clock = clock
        self.connections: list[redelivery.Connection] = []

    def make(self, options: str = "", *, uri: str | None = None, **arguments: Any) -> redelivery.Connection:
        """Return a connection that has not been entered; `uri` instead of the broker's own."""
        arguments.setdefault("clock", self.clock)
        return redelivery.connect((uri or self.broker.uri) + options, **arguments)

    def connect(self, options: str = "", **arguments: Any) -> redelivery.Connection:
        """Return a connection inside its `with`; it is left at the end of the test, or by `leave`."""
        connection = self.make(options, **arguments)
        connection.__enter__()
        self.connections.append(connection)
        return connection

    def leave(self, connection: redelivery.Connection) -> None:
        """Leave the `with` of a connection."""
        connection.__exit__(None, None, None)

    def close(self) -> None:
        """Close all connections; leaving their `with` would raise errors that the tests caused."""
        for connection in self.connections:
            connection.close()

    def call(self, result: T, *, over: float = 0) -> T:
        """Return the result of a method; on a loop it has `over` virtual seconds."""
        return result

    def advance(self, seconds: float) -> None:
        """Advance virtual time."""
        self.clock.advance(seconds)

    def receive(self, consumer: redelivery.Consumer, timeout: float | None = 0) -> Message | None:
        """Pull one message; time passes while it waits."""
        return consumer.receive(timeout)

    def inside(self, message: Message, action: Callable[[Message], object]) -> None:
        """Do something inside `with message:`."""
        with message:
            action(message)

    def bodies(self, consumer: redelivery.Consumer) -> Iterator[str]:
        """Iterate over the consumer, accepting each message."""
        for message in consumer:
            with message:
                body = message.text
            yield body

    def handler(self, function: Callable[[Message], object]) -> Callable[[Message], Any]:
        """Return a handler in the twin's own style."""
        return function

    def listen(
        self, connection: Any, destination: str, function: Callable[[Message], object], **options: Any
    ) -> None:
        """Register a handler and start it."""
        connection.listen(destination, self.handler(function), **options)
        self.call(connection.start())

    def run(self, connection: Any, **arguments: Any) -> Report:
        """Run until something stops the connection."""
        report: Report = self.call(connection.run(**arguments))
        return report


class AsyncTwin:
    """`redelivery.connect_async`, on a loop that runs only while the test asks for something."""

    asynchronous = True

    def __init__(self, broker: MemoryBroker, clock: ManualClock) -> None:
        self.broker = broker
        self.clock = clock
        self.runner = asyncio.Runner()
        self.connections: list[redelivery.AsyncConnection] = []

    def make(
        self, options: str = "", *, uri: str | None = None, **arguments: Any
    ) -> redelivery.AsyncConnection:
        """Return a connection that has not been entered; `uri` instead of the broker's own."""
        arguments.setdefault("clock", self.clock)
        return redelivery.connect_async((uri or self.broker.uri) + options, **arguments)

    def connect(self, options: str = "", **arguments: Any) -> redelivery.AsyncConnection:
        """Return a connection inside its `async with`; it is left at the end of the test, or by `leave`."""
        connection = self.make(options, **arguments)
        self.runner.run(connection.__aenter__())
        self.connections.append(connection)
        return connection

    def leave(self, connection: redelivery.AsyncConnection) -> None:
        """Leave the `async with` of a connection."""
        self.runner.run(connection.__aexit__(None, None, None))

    def close(self) -> None:
        """Close all connections and end the loop."""
        for connection in self.connections:
            self.runner.run(connection.close())
        self.runner.close()

    def call(self, result: Coroutine[Any, Any, T] | T, *, over: float = 0) -> T:
        """Return the result of a method within `over` virtual seconds."""
        if not asyncio.iscoroutine(result):
            return result
        called: T = self.runner.run(self._over(result, over) if over else result)
        return called

    async def _over(self, result: Coroutine[Any, Any, T], seconds: float) -> T:
        task = asyncio.ensure_future(result)
        await self.clock.advance_async(seconds)
        return await asyncio.wait_for(task, PATIENCE)

    def advance(self, seconds: float) -> None:
        """Advance virtual time."""
        self.runner.run(self.clock.advance_async(seconds))

    def receive(self, consumer: redelivery.AsyncConsumer, timeout: float | None = 0) -> Message | None:
        """Pull one message; time passes while it waits."""

        async def go() -> Message | None:
            task = asyncio.ensure_future(consumer.receive(timeout))
            await self.clock.advance_async(max(0, timeout or 0))
            return await task

        return self.runner.run(go())

    def inside(self, message: Message, action: Callable[[Message], object]) -> None:
        """Do something inside `async with message:`."""

        async def go() -> None:
            async with message:
                action(message)

        self.runner.run(go())

    def bodies(self, consumer: redelivery.AsyncConsumer) -> Iterator[str]:
        """Iterate over the consumer, accepting each message."""
        messages = consumer.__aiter__()
        while (message := self.runner.run(anext(messages, None))) is not None:
            self.inside(message, lambda _: None)
            yield message.text

    def handler(self, function: Callable[[Message], object]) -> Callable[[Message], Any]:
        """Return a handler in the twin's own style."""

        async def handle(message: Message) -> None:
            function(message)

        return handle

    def listen(
        self, connection: Any, destination: str, function: Callable[[Message], object], **options: Any
    ) -> None:
        """Register a handler and start it."""
        connection.listen(destination, self.handler(function), **options)
        self.call(connection.start())

    def run(self, connection: Any, **arguments: Any) -> Report:
        """Run until something stops the connection."""
        report: Report = self.call(connection.run(**arguments))
        return report


Twin = Any  # SyncTwin | AsyncTwin: their connections differ in what must be awaited, which no type can hide
