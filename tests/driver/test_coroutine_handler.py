"""Handlers whose return value has yet to be run."""

from __future__ import annotations

import asyncio
import functools
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest

import redelivery

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from redelivery_memory import MemoryBroker


class Handler:
    """Object whose call is an async function."""

    async def __call__(self, message: redelivery.Message) -> None:
        """Do nothing."""


def test_coroutine_is_not_taken_for_success(redelivery_broker: MemoryBroker) -> None:
    """A handler that returns a coroutine to a synchronous connection ends the run; its message stays on the broker."""
    redelivery_broker.send("orders", "body")
    asynchronous = Handler()

    def handle(message: redelivery.Message) -> object:
        return asynchronous(message)

    with redelivery.connect(redelivery_broker.uri) as connection:
        connection.listen("orders", handle)
        with pytest.raises(redelivery.ConfigurationError, match="returned a coroutine"):
            connection.run()
    assert redelivery_broker.depth("orders") == 1


@pytest.mark.parametrize("handler", [Handler(), functools.partial(Handler()), Handler().__call__])
def test_an_asynchronous_handler_needs_an_asyncio_connection(
    handler: Callable[[redelivery.Message], object],
) -> None:
    """A synchronous connection refuses an object with an async call, or a part of it, before the first message."""
    connection = redelivery.connect("memory://any")
    with pytest.raises(redelivery.ConfigurationError, match="is async def; use "):
        connection.listen("orders", handler)


@pytest.mark.parametrize("kind", ["connection", "session"])
def test_the_decorator_without_its_destination_is_refused(redelivery_broker: MemoryBroker, kind: str) -> None:
    """`@connection.listen` would register no handler: the error names what to write."""
    with redelivery.connect(redelivery_broker.uri) as connection:
        listening: Any = connection if kind == "connection" else connection.session()
        with pytest.raises(
            redelivery.ConfigurationError, match=r'write @connection.listen\("orders"\) above handle'
        ):

            @listening.listen  # type: ignore[untyped-decorator]
            def handle(_: redelivery.Message) -> None: ...


class Request:
    """Awaitable that is no coroutine, as an HTTP client's request."""

    def __await__(self) -> Iterator[None]:
        """Fail: nothing awaits it."""
        raise AssertionError
        yield


def ends_both(
    broker: MemoryBroker,
    handler: Callable[[redelivery.Message], object],
    asynchronous: Callable[[redelivery.Message], object],
    match: str,
) -> None:
    """Assert that a handler ends the run of a connection of each kind, and that its message stays on the broker."""

    async def run_async() -> None:
        async with redelivery.connect_async(broker.uri) as connection:
            connection.listen("orders", asynchronous)
            await connection.run()

    broker.send("orders", "body")
    with redelivery.connect(broker.uri) as connection:
        connection.listen("orders", handler)
        with pytest.raises(redelivery.ConfigurationError, match=match):
            connection.run()
    with pytest.raises(redelivery.ConfigurationError, match=match):
        asyncio.run(run_async())
    assert broker.depth("orders") == 1


def test_awaitable_is_not_taken_for_success(redelivery_broker: MemoryBroker) -> None:
    """A handler that returns an awaitable ends the run on both connections; its message stays on the broker."""

    async def handle(message: redelivery.Message) -> Request:
        return Request()

    ends_both(redelivery_broker, lambda message: Request(), handle, r"an awaitable \(Request\)")


def test_future_is_not_taken_for_success(redelivery_broker: MemoryBroker) -> None:
    """A handler that returns the Future of a pool ends the run on both connections; its message stays on the broker."""
    begun = Future[None]()

    async def handle(message: redelivery.Message) -> object:
        return begun

    match = "a Future, which nothing waits for here; return its"
    ends_both(redelivery_broker, lambda message: begun, handle, match)


def generator(message: redelivery.Message) -> Iterator[None]:
    """Yield, so that calling it runs nothing."""
    yield


async def asynchronous_generator(message: redelivery.Message) -> AsyncIterator[None]:
    """Yield, so that calling it runs nothing."""
    yield


@pytest.mark.parametrize("handler", [generator, asynchronous_generator])
def test_generator_is_not_taken_for_success(
    redelivery_broker: MemoryBroker, handler: Callable[[redelivery.Message], object]
) -> None:
    """A generator as a handler ends the run on both connections; its message stays on the broker."""
    ends_both(redelivery_broker, handler, handler, "a generator")


class Unspeakable(Exception):
    """Exception without a text."""

    def __str__(self) -> str:
        """Raise."""
        raise IndexError


def test_exception_without_a_text_is_charged(redelivery_broker: MemoryBroker) -> None:
    """An exception whose text raises is a failure, named by its type."""

    def handle(message: redelivery.Message) -> None:
        raise Unspeakable

    redelivery_broker.send("orders", "body")
    uri = f"{redelivery_broker.uri}?jms.redeliveryPolicy.maximumRedeliveries=0"
    with redelivery.connect(uri) as connection:
        connection.listen("orders", handle)
        connection.run(until_idle=0.05)

    assert [letter.cause for letter in redelivery_broker.dead_letters()] == ["Unspeakable"]


@pytest.mark.parametrize("connect", [redelivery.connect, redelivery.connect_async])
def test_handler_must_take_the_message(connect: Callable[[str], redelivery.Connection]) -> None:
    """A handler that cannot be called with one argument is refused: else every message would be poison."""

    def nothing() -> None:
        """Take no argument."""

    connection = connect("memory://any")
    for handler in (nothing, lambda message, other: None, lambda *, message: None):
        with pytest.raises(redelivery.ConfigurationError, match="must accept one argument, the message"):
            connection.listen("orders", handler)  # type: ignore[type-var]
    connection.listen("orders", lambda *arguments, other=1: None)
    connection.listen("orders", print)
