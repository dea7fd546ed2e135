"""Health over HTTP of real connections: broker down, hanging handlers, errors, asyncio."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from tests.eventually import eventually
from tests.health.conftest import ask

import redelivery
from redelivery import ConfigurationError, health
from redelivery.testing import MemoryBroker


def test_without_the_texts_of_errors() -> None:
    """An error is named by its type: its text may quote a message, and is in the log."""
    with MemoryBroker() as broker, redelivery.connect(broker.uri) as connection:

        def fail(_: object) -> None:
            raise SystemExit("card 4111 1111")

        connection.listen("orders", fail)
        connection.start()
        connection.send("orders", "secret body")
        with health.serve(connection, 0) as server:
            eventually(lambda: ask(server, "/livez").status == 503)
            found = ask(server, "/livez").body.decode()
        assert connection.health().reasons[0] == "consuming has ended: SystemExit: card 4111 1111"
        with pytest.raises(SystemExit):
            connection.wait()
    assert json.loads(found)["reasons"][0] == "consuming has ended: SystemExit"
    assert "4111" not in found
    assert "secret" not in found


def test_a_handler_that_hangs_and_a_broker_that_is_down() -> None:
    """Liveness is answered with 200 all the time, readiness with 503."""
    hold, running = threading.Event(), threading.Event()

    def hang(_: object) -> None:
        running.set()
        hold.wait()

    with (
        MemoryBroker() as broker,
        redelivery.connect(broker.uri) as connection,
        health.serve(connection, 0) as server,
    ):
        connection.listen("orders", hang)
        assert ask(server, "/readyz").status == 503
        connection.start()
        connection.send("orders", "a")
        running.wait()
        assert (ask(server, "/livez").status, ask(server, "/readyz").status) == (200, 200)
        broker.refuse_connections()
        broker.cut()
        eventually(lambda: ask(server, "/readyz").status == 503)
        assert ask(server, "/livez").status == 200
        hold.set()
        connection.drain()


def test_asyncio() -> None:
    """A connection of asyncio is served, also while its loop is blocked."""
    statuses: list[int] = []

    async def main(uri: str) -> None:
        async with redelivery.connect_async(uri) as connection:
            with health.serve(connection, 0) as server:
                # On the loop's own thread: the loop does not turn meanwhile.
                statuses.append(ask(server, "/livez").status)

    with MemoryBroker() as broker:
        asyncio.run(main(broker.uri))
    assert statuses == [200]


def test_a_wrong_ready_when() -> None:
    """A wrong `ready_when` is refused before the server listens."""
    threads = threading.active_count()
    with pytest.raises(ConfigurationError, match="ready_when='consumin'"):
        health.serve(redelivery.connect("memory://x"), 0, ready_when="consumin")  # type: ignore[arg-type]
    assert threading.active_count() == threads


def test_it_is_an_attribute_of_the_package() -> None:
    """`redelivery.health.serve` is there after `import redelivery` and `connect`."""
    redelivery.connect("memory://x")
    assert redelivery.health.serve is health.serve
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        health.nothing  # noqa: B018
