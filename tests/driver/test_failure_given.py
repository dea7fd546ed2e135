"""Ways in which the application gets an error that ends consuming: `wait`, `on_stopped`, the end of `with`."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import pytest
from tests.driver.test_failure_visible import errors, raising, waits
from tests.driver.twins import SyncTwin, eventually, threads_left

import redelivery
from redelivery.adapter import Subscribed

if TYPE_CHECKING:
    from tests.driver.twins import Twin

    from redelivery import Message
    from redelivery.testing import ManualClock, MemoryBroker

PATIENCE = 60.0  # seconds


def test_leaving_raises_what_was_not_seen(twin: Twin) -> None:
    """Leaving `with` raises an error once: not one that `wait` or `run` raised, nor over another exception."""
    for seen in (False, True):
        connection = twin.connect()
        twin.listen(connection, "q", raising(SystemExit(3)))
        twin.broker.send("q", "a")
        eventually(twin, lambda: connection.error)  # noqa: B023 - it is called at once
        if seen:
            assert isinstance(waits(twin, connection), SystemExit)
            twin.leave(connection)
        else:
            with pytest.raises(SystemExit):
                twin.leave(connection)


def test_leaving_does_not_hide_another_exception(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """Leaving `with` passes on the exception of its block."""
    twin = SyncTwin(redelivery_broker, redelivery_clock)
    connection = twin.make()

    def block() -> None:
        with connection:
            twin.listen(connection, "q", raising(SystemExit(3)))
            redelivery_broker.send("q", "a")
            eventually(twin, lambda: connection.error)
            raise LookupError

    with pytest.raises(LookupError):
        block()


def test_leaving_raises_nothing_that_a_pull_has_raised(twin: Twin) -> None:
    """Leaving `with` raises no error of a consumer that was pulled: its own calls raise it."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("q"))
    (dispatcher,) = connection._dispatchers
    connection._driver._sink(
        Subscribed(dispatcher.subscribe.consumer, redelivery.AdapterError("no", passes=False))
    )
    with pytest.raises(redelivery.AdapterError):
        twin.receive(consumer)
    assert connection.error is None
    assert connection.health().live
    twin.leave(connection)


def test_a_consumer_that_was_refused_is_no_error_of_the_connection(twin: Twin) -> None:
    """A refused consumer is raised by its call, and is no error of the connection."""
    connection = twin.connect()
    twin.listen(connection, "q", lambda _: None)
    with pytest.raises(redelivery.AdapterError):
        twin.call(connection.consumer("q", selector="no selector"))
    assert connection.error is None
    assert connection.health().live


def test_on_stopped_is_called_once_without_a_lock(twin: Twin) -> None:
    """`on_stopped` is called once, without a lock, and may call anything; leaving `with` then raises nothing."""
    calls: list[tuple[BaseException, bool]] = []

    def stopped(error: BaseException) -> None:
        calls.append((error, connection.health().live))

    connection = twin.connect(on_stopped=stopped)
    twin.listen(connection, "q", raising(SystemExit(3)), workers=3)
    twin.broker.send("q", "a")
    eventually(twin, lambda: calls)
    twin.leave(connection)
    ((error, live),) = calls
    assert error is connection.error
    assert not live


def test_on_stopped_may_close_the_connection(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """`on_stopped` may close the connection; leaving `with` waits for its end."""
    ended: list[bool] = []

    def stopped(_: BaseException) -> None:
        connection.drain(0)
        connection.close()
        ended.append(True)

    twin = SyncTwin(redelivery_broker, redelivery_clock)
    connection = twin.make(on_stopped=stopped)
    with connection:
        twin.listen(connection, "q", raising(SystemExit(3)))
        redelivery_broker.send("q", "a")
        assert connection.wait_stopped(PATIENCE)
    assert ended == [True]
    assert threads_left() == []


def test_what_on_stopped_raises_is_logged(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """Any exception of `on_stopped` is logged."""

    def stopped(_: BaseException) -> None:
        raise SystemExit("a bug")

    connection = twin.connect(on_stopped=stopped)
    twin.listen(connection, "q", raising(SystemExit(3)))
    twin.broker.send("q", "a")
    eventually(twin, lambda: any("on_stopped= failed" in line for line in errors(caplog)))
    twin.leave(connection)


@pytest.mark.parametrize("given", ["f", asyncio.sleep, AsyncMock()], ids=["text", "async", "object"])
def test_on_stopped_must_be_a_plain_function(given: Any) -> None:
    """`on_stopped` that is no plain function is refused before any I/O."""
    with pytest.raises(redelivery.ConfigurationError, match="on_stopped= must be a plain function"):
        redelivery.connect("memory://x", on_stopped=given)


# Waiting.


def test_wait_ends_at_its_time(twin: Twin) -> None:
    """`wait` returns False after its timeout by the connection's clock, if nothing has stopped."""
    connection = twin.connect()
    twin.listen(connection, "q", lambda _: None)
    for wait in (connection.wait, connection.wait_stopped):
        before = twin.clock.monotonic()
        assert twin.call(wait(3600), over=3600) is False
        assert twin.clock.monotonic() - before == pytest.approx(3600)


def test_wait_ends_with_a_stop(twin: Twin) -> None:
    """`wait` returns True after a stop or a close without an error, at once if it was before."""
    connection = twin.connect()
    twin.listen(connection, "q", lambda _: None)
    connection.stop()
    assert twin.call(connection.wait()) is True
    twin.leave(connection)
    assert twin.call(connection.wait()) is True


def test_wait_needs_an_open_connection(twin: Twin) -> None:
    """`wait` before `with` raises."""
    with pytest.raises(redelivery.ConfigurationError, match="not open yet"):
        twin.call(twin.make().wait())


def test_several_threads_may_wait(redelivery_broker: MemoryBroker, redelivery_clock: ManualClock) -> None:
    """Several threads may wait; each raises the error with a traceback of its own."""
    twin = SyncTwin(redelivery_broker, redelivery_clock)
    connection = twin.connect()
    connection.listen("q", lambda _: None)
    connection.start()
    found: list[BaseException | None] = []
    threads = [threading.Thread(target=lambda: found.append(waits(twin, connection))) for _ in range(3)]
    for thread in threads:
        thread.start()
    connection._driver._give_up(redelivery.TransportError("gone"))
    for thread in threads:
        thread.join(PATIENCE)
    assert [str(error) for error in found] == ["gone"] * 3
    assert len({id(error) for error in found}) == 3
    twin.close()


def test_several_tasks_may_wait(redelivery_broker: MemoryBroker) -> None:
    """Several tasks may wait, also with `asyncio.wait` for other tasks."""

    async def main() -> list[bool]:
        async with redelivery.connect_async(redelivery_broker.uri) as connection:
            tasks = [asyncio.ensure_future(connection.wait_stopped()) for _ in range(3)]
            await asyncio.wait(tasks, timeout=0)
            connection.stop()
            await asyncio.wait(tasks, timeout=PATIENCE)
            return [task.result() for task in tasks]

    assert asyncio.run(main()) == [True] * 3


def test_a_handler_may_wait_for_its_end(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """A long handler may wait with `wait_stopped` for the request to end; a drain wakes it."""
    inside = threading.Event()

    def handle(_: Message) -> None:
        redelivery_clock.detach()
        inside.set()
        connection.wait_stopped()
        redelivery_clock.attach()

    with redelivery.connect(redelivery_broker.uri, clock=redelivery_clock) as connection:
        connection.listen("q", handle)
        connection.start()
        redelivery_broker.send("q", "a")
        assert inside.wait(PATIENCE)
        assert connection.drain().accepted == 1
