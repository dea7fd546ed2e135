"""Consuming inside of other programs: `running()`, and the lifespan of an ASGI application."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import pytest
from tests.driver.gates import PATIENCE
from tests.driver.twins import threads_left

import redelivery
from redelivery.testing import MemoryBroker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    from redelivery import Message


@pytest.fixture
def broker() -> Iterator[MemoryBroker]:
    """Return a broker in real time, which servers run in."""
    with MemoryBroker() as made:
        yield made


class Application:
    """Minimal ASGI application: runs its lifespan, and answers each request with the result of a function."""

    def __init__(
        self,
        lifespan: Callable[[Any], AbstractAsyncContextManager[None]],
        answer: Callable[[Any], Awaitable[Any]],
    ) -> None:
        self.state = SimpleNamespace()
        self._lifespan = lifespan
        self._answer = answer

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            try:
                async with self._lifespan(self):
                    await send({"type": "lifespan.startup.complete"})
                    await receive()
            except Exception as error:  # noqa: BLE001 - as servers do
                await send({"type": "lifespan.shutdown.failed", "message": repr(error)})
            else:
                await send({"type": "lifespan.shutdown.complete"})
        else:
            await send({"type": "http.response.body", "body": await self._answer(self)})


class Server:
    """Server as uvicorn: runs the lifespan in one task, with requests in between."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._events: asyncio.Queue[str] = asyncio.Queue()
        self.said: list[Any] = []
        self._started = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._task = asyncio.ensure_future(
            self._application({"type": "lifespan"}, self._events.get, self._send)
        )
        await self._events.put("startup")
        await asyncio.wait_for(self._started.wait(), PATIENCE)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._events.put("shutdown")
        await asyncio.wait_for(self._task, PATIENCE)

    async def _send(self, message: dict[str, Any]) -> None:
        self.said.append(message)
        self._started.set()

    async def request(self) -> Any:
        """Return the answer to one request."""
        answers: list[Any] = []

        async def send(message: dict[str, Any]) -> None:
            answers.append(message["body"])

        await self._application({"type": "http"}, self._events.get, send)
        return answers[0]


async def until(condition: Callable[[], object]) -> None:
    """Run the loop until a condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.wait([asyncio.ensure_future(asyncio.to_thread(bool))])


async def send(application: Application) -> Any:
    return await application.state.redelivery.send("orders", "a", timeout=5)


def test_running_consumes_while_it_lasts(broker: MemoryBroker) -> None:
    """`running()` connects, starts, drains and closes."""
    handled = threading.Event()
    connection = redelivery.connect(broker.uri)
    connection.listen("orders", lambda _: handled.set())
    with connection.running(drain_timeout=5) as same:
        assert same is connection
        connection.send("orders", "a")
        assert handled.wait(PATIENCE)
        assert connection.health().ready
    assert connection.report().accepted == 1
    assert broker.connections == 0
    assert connection.health().reasons == ("the connection is closed",)
    assert threads_left() == []


def test_running_inside_of_with_leaves_the_connection_open(broker: MemoryBroker) -> None:
    """`running()` on an open connection drains at its end, leaves it open, and passes the block's exception on."""
    with redelivery.connect(broker.uri) as connection:
        connection.listen("orders", lambda _: None)
        with pytest.raises(LookupError), connection.running():
            raise LookupError
        assert connection.connected
        assert connection.health().reasons == ("draining",)


def test_running_raises_what_ended_it(broker: MemoryBroker) -> None:
    """`running()` raises the error that ended consuming, if the block did not wait for it."""

    def handle(_: Message) -> None:
        raise SystemExit(3)

    connection = redelivery.connect(broker.uri)
    connection.listen("orders", handle)

    def program() -> None:
        with connection.running():
            connection.send("orders", "a")
            assert connection.wait_stopped(PATIENCE)

    with pytest.raises(SystemExit):
        program()


def test_running_checks_its_time_before_it_connects() -> None:
    """`running()` refuses a wrong time before any I/O."""
    connection = redelivery.connect("stomp://127.0.0.1:1")
    with pytest.raises(redelivery.ConfigurationError, match="drain_timeout"), connection.running(-1):
        raise AssertionError
    other = redelivery.connect_async("stomp://127.0.0.1:1")
    with pytest.raises(redelivery.ConfigurationError, match="drain_timeout"):
        other.lifespan(-1)


def test_an_application_consumes_for_its_life(broker: MemoryBroker) -> None:
    """An application's requests find the connection, and running handlers finish at its end."""
    handled: list[str] = []

    async def handle(message: Message) -> None:
        await asyncio.wait([asyncio.ensure_future(asyncio.to_thread(bool))])
        handled.append(message.text)

    async def main() -> None:
        connection = redelivery.connect_async(broker.uri)
        connection.listen("orders", handle)
        async with Server(Application(connection.lifespan(), send)) as server:
            assert len(await server.request()) == 36
            await until(lambda: handled)
        assert [message["type"] for message in server.said] == [
            "lifespan.startup.complete",
            "lifespan.shutdown.complete",
        ]
        assert connection.report().accepted == 1

    asyncio.run(main())
    assert broker.connections == 0
    assert threads_left() == []


def test_an_application_starts_without_its_broker(
    broker: MemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """An application starts without its broker, live and not ready; it consumes, with a WARNING, once that is up."""
    handled: list[str] = []

    async def handle(message: Message) -> None:
        handled.append(message.text)

    async def main() -> None:
        broker.refuse_connections()
        connection = redelivery.connect_async(broker.uri)
        connection.listen("orders", handle)
        async with Server(Application(connection.lifespan(), send)) as server:
            health = connection.health()
            assert (health.live, health.ready, health.reasons) == (True, False, ("not connected",))
            assert health.consumers[0].state == "starting"
            with pytest.raises(redelivery.TransportError, match="cannot be consumed"):
                await connection.consumer("orders")
            request = asyncio.ensure_future(server.request())
            await asyncio.wait([request], timeout=0.05)
            broker.accept_connections()
            assert len(await request) == 36
            await until(lambda: handled)
            assert connection.health().ready

    asyncio.run(main())
    assert caplog.messages[-1].startswith("connected to memory://"), (
        "a log without INFO ends with the outage's end"
    )
    assert threads_left() == []


def test_an_application_ends_without_its_broker(broker: MemoryBroker) -> None:
    """An application that never connected ends at once; a request that waits for the broker ends with the drain."""

    async def main() -> None:
        broker.refuse_connections()
        connection = redelivery.connect_async(broker.uri, send_timeout=3600)
        connection.listen("orders", lambda _: None)
        async with connection.running(required=False):
            sending = asyncio.ensure_future(connection.send("orders", "a"))
            await asyncio.wait([sending], timeout=0.05)
        with pytest.raises(redelivery.TransportError, match="nothing was sent"):
            await sending

    asyncio.run(asyncio.wait_for(main(), PATIENCE))
    assert threads_left() == []


def test_a_broker_may_be_required(broker: MemoryBroker) -> None:
    """With `required=True` the application does not start without its broker."""

    async def main() -> None:
        broker.refuse_connections()
        connection = redelivery.connect_async(broker.uri)
        connection.listen("orders", lambda _: None)
        with pytest.raises(redelivery.TransportError):
            async with connection.lifespan(required=True)(SimpleNamespace()):
                raise AssertionError

    asyncio.run(main())
    assert threads_left() == []


def test_a_log_in_that_is_refused_keeps_an_application_from_starting(broker: MemoryBroker) -> None:
    """A refused log-in keeps an application from starting: it would not succeed later."""

    async def main() -> None:
        broker.refuse_connections(lambda: redelivery.AdapterError("wrong password"))
        connection = redelivery.connect_async(broker.uri)
        with pytest.raises(redelivery.AdapterError):
            async with connection.running(required=False):
                raise AssertionError

    asyncio.run(main())
    assert threads_left() == []


def test_a_consumer_that_is_refused_in_the_background_is_an_error(
    broker: MemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """A consumer that is refused in the background is logged, ends liveness, and is raised at the end."""

    async def main() -> None:
        broker.refuse_connections()
        connection = redelivery.connect_async(broker.uri)
        connection.listen("orders", lambda _: None, selector="no selector")
        async with connection.running(required=False):
            broker.accept_connections()
            with pytest.raises(redelivery.AdapterError):
                await asyncio.wait_for(connection.wait(), PATIENCE)
            assert not connection.health().live

    asyncio.run(main())
    assert any("consuming has not started: " in record.getMessage() for record in caplog.records)
