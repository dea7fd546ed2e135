"""Connections after a fork: the child's calls are refused, and the parent's socket is not touched."""

from __future__ import annotations

import asyncio
import os
import select
import signal
from typing import TYPE_CHECKING, Any

import pytest
from tests.stomp.peer import ScriptedPeer

import redelivery
from redelivery.driver.port import ConnectionPort

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redelivery.testing import MemoryBroker

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
PATIENCE = 60.0  # seconds
REFUSED = "ConfigurationError: this connection was opened in process "


def in_a_child(function: Callable[[], object]) -> str:
    """Fork; return the result or the exception of a function in the child, which is killed if it takes a minute."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            found = str(function())
        except BaseException as error:  # noqa: BLE001 - it is what the test is about
            found = f"{type(error).__name__}: {error}"
        os.write(writing, found.encode())
        os._exit(0)
    os.close(writing)
    try:
        with os.fdopen(reading) as answer:
            return answer.read() if select.select([answer], [], [], PATIENCE)[0] else "no answer"
    finally:
        # Also if the time limit of this test is over.
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def calls(connection: redelivery.Connection) -> dict[str, Callable[[], object]]:
    return {
        "send": lambda: connection.send("q", "a"),
        "consumer": lambda: connection.consumer("q"),
        "session": connection.session,
        "start": connection.start,
        "drain": connection.drain,
        "health": connection.health,
        "wait": connection.wait,
    }


@pytest.mark.parametrize("call", ["send", "consumer", "session", "start", "drain", "health", "wait"])
def test_each_call_is_refused_in_a_child(redelivery_broker: MemoryBroker, call: str) -> None:
    """Each call in a child is refused at once, with the reason."""
    with redelivery.connect(redelivery_broker.uri) as connection:
        connection.listen("q", lambda _: None)
        assert in_a_child(calls(connection)[call]).startswith(REFUSED)
        connection.send("q", "a")


def test_an_async_connection_is_refused_in_a_child(redelivery_broker: MemoryBroker) -> None:
    """Calls of an asyncio connection in a child are refused; it can be closed there."""

    async def main() -> None:
        async with redelivery.connect_async(redelivery_broker.uri) as connection:

            def child() -> None:
                # The parent's loop runs in this thread.
                asyncio._set_running_loop(None)
                asyncio.run(connection.close())
                asyncio.run(connection.send("q", "a"))

            assert in_a_child(child).startswith(REFUSED)
            await connection.send("q", "a")

    asyncio.run(main())


def test_a_pull_is_refused_in_a_child(redelivery_broker: MemoryBroker) -> None:
    """A pull in a child is refused: it would wait for ever, because no thread reads there."""
    with redelivery.connect(redelivery_broker.uri) as connection:
        consumer = connection.consumer("q")
        assert in_a_child(consumer.receive).startswith(REFUSED)


def test_a_connection_that_was_not_open_may_be_opened_in_a_child(redelivery_broker: MemoryBroker) -> None:
    """A connection that was not open at the fork may be opened in the child, as servers do."""
    connection = redelivery.connect("memory://of-the-child")

    def child() -> str:
        with connection:
            return connection.send("q", "a")

    assert len(in_a_child(child)) == 36


@pytest.fixture
def peer() -> Iterator[ScriptedPeer]:
    """Return a broker at the other end of a socket."""
    with ScriptedPeer(lambda _: ()) as made:
        yield made


def leave(connection: Any) -> None:
    connection.__exit__(None, None, None)


@pytest.mark.parametrize("end", [leave, lambda connection: connection.close()], ids=["leave", "close"])
def test_a_child_that_ends_leaves_the_parents_socket_alone(
    peer: ScriptedPeer, end: Callable[[Any], None]
) -> None:
    """A child that ends sends no DISCONNECT, and does not shut down the parent's socket."""
    with redelivery.connect(peer.uri) as connection:
        assert in_a_child(lambda: end(connection)) == "None"
        connection.send("q", "a", timeout=10)
        assert (connection.connected, peer.connections) == (True, 1)


def test_a_child_settles_nothing_of_the_parents(peer: ScriptedPeer) -> None:
    """A message of the parent is not acknowledged by a child: its settlement is dropped there."""
    with redelivery.connect(peer.uri) as connection:

        def settle() -> None:
            connection._driver.write([])
            connection._driver.flush()

        assert in_a_child(settle) == "None"
        assert connection.connected
    assert peer.settled == []


def test_the_port_leaves_the_parents_socket_alone(peer: ScriptedPeer) -> None:
    """A port in a child does not touch the parent's socket."""
    with ConnectionPort(peer.uri) as port:
        assert in_a_child(port.close) == "None"
        assert port.connected
