"""Errors that end consuming under `start()`: in `error`, `wait`, `on_stopped`, `health()`, one ERROR line, `with`."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.driver.gates import PATIENCE, Gate
from tests.driver.twins import SyncTwin, eventually

import redelivery
from redelivery import RedeliveryPolicy, RedeliveryPolicyMap, SqliteLedger
from redelivery.adapter import Subscribed
from redelivery.events import Finished

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.driver.twins import Twin

    from redelivery import Message
    from redelivery.events import Event
    from redelivery.testing import ManualClock, MemoryBroker


@pytest.fixture
def gate(redelivery_clock: ManualClock) -> Iterator[Gate]:
    """Return a gate for handlers; it opens at the end of the test."""
    made = Gate(redelivery_clock)
    yield made
    made.open.set()


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def waits(twin: Twin, connection: Any) -> BaseException | None:
    """Return the error that `wait` raises."""
    try:
        twin.call(connection.wait())
    except BaseException as error:  # noqa: BLE001 - it is what the test is about
        return error
    return None


def dead(connection: Any) -> str:
    """Return the reason why a connection is not live."""
    health = connection.health()
    assert not health.live
    assert not health.ready
    reason: str = health.reasons[0]
    return reason


def raising(error: BaseException) -> Callable[[Message], object]:
    def handle(_: Message) -> None:
        raise error

    return handle


# One test for each kind of end.


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=type)
@pytest.mark.parametrize("workers", [1, 3])
def test_what_ends_the_program_ends_consuming(
    twin: Twin, error: BaseException, workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    """`SystemExit` of a handler is the connection's error, raised by `wait`, and is in health and log."""
    connection = twin.connect()
    twin.listen(connection, "q", raising(error), workers=workers)
    assert connection.health().live
    twin.broker.send("q", "a")
    eventually(twin, lambda: connection.error)
    eventually(twin, lambda: errors(caplog))
    assert connection.error is error
    assert waits(twin, connection) is error
    assert dead(connection).startswith(f"consuming has ended: {type(error).__name__}")
    assert all("queue://q: a worker has ended (" in line for line in errors(caplog))
    assert twin.broker.depth("q") == 1


def test_a_coroutine_that_nobody_awaits_ends_consuming(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A plain handler that returns a coroutine ends consuming: nothing has run."""

    async def work() -> None: ...

    twin = SyncTwin(redelivery_broker, redelivery_clock)
    connection = twin.connect()
    connection.listen("q", lambda _: work())
    connection.start()
    redelivery_broker.send("q", "a")
    eventually(twin, lambda: errors(caplog))
    assert isinstance(waits(twin, connection), redelivery.ConfigurationError)
    assert "returned a coroutine" in dead(connection)
    twin.close()


def test_a_ledger_that_cannot_count_ends_consuming(
    twin: Twin, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A ledger that cannot count stops its consumer, though every handler is idle."""
    ledger = SqliteLedger(tmp_path / "ledger.db")
    connection = twin.connect(ledger=ledger)
    twin.listen(connection, "q", lambda _: None)
    ledger.fail(OSError(28, "No space left on device"))
    eventually(twin, lambda: connection.error)
    assert isinstance(waits(twin, connection), redelivery.LedgerError)
    assert dead(connection).startswith("consuming has ended: LedgerError")
    assert len(errors(caplog)) == 1


def test_a_consumer_that_stops_is_seen_while_its_handler_runs(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock, gate: Gate
) -> None:
    """A consumer that stops is reported at once, while its handler still runs."""
    twin = SyncTwin(redelivery_broker, redelivery_clock)
    connection = twin.connect()
    twin.listen(connection, "q", gate)
    redelivery_broker.send("q", "a")
    assert gate.entered()
    (dispatcher,) = connection._dispatchers
    refused = Subscribed(dispatcher.subscribe.consumer, redelivery.AdapterError("not allowed", passes=False))
    connection._driver._sink(refused)
    assert isinstance(waits(twin, connection), redelivery.AdapterError)
    (consumer,) = connection.health().consumers
    assert (consumer.state, consumer.error, consumer.running) == ("stopped", "AdapterError: not allowed", 1)
    gate.open.set()
    twin.close()


def test_a_thread_of_the_connection_that_ends_is_seen(
    twin: Twin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The end of the connection's thread gives the connection up, with one log line, in health and in `wait`."""
    connection = twin.connect()
    twin.listen(connection, "q", lambda _: None)
    monkeypatch.setattr(
        connection._driver, "_part_with_stopped", lambda: (_ for _ in ()).throw(SystemExit(3))
    )
    connection._driver.expect_alarm()
    eventually(twin, lambda: connection.error)
    assert "internal error: SystemExit" in str(waits(twin, connection))
    assert "internal error: SystemExit" in dead(connection)
    eventually(twin, lambda: not connection._driver._thread.is_alive())
    assert "the connection's thread has ended" in connection.health().reasons
    assert errors(caplog) == ["the connection is given up"]


def test_a_thread_of_the_connection_that_hangs_is_seen(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that has not turned for 30 s after a probe asked is not live; it is live when it turns again."""
    connection = twin.connect()
    twin.listen(connection, "q", lambda _: None)
    entered, leave = threading.Event(), threading.Event()

    def hang() -> None:
        twin.clock.detach()
        entered.set()
        leave.wait(PATIENCE)
        twin.clock.attach()

    monkeypatch.setattr(connection._driver, "_part_with_stopped", hang)
    connection._driver.expect_alarm()
    assert entered.wait(PATIENCE)
    assert connection.health().live
    twin.advance(29)
    assert connection.health().live
    twin.advance(1)
    assert dead(connection) == "the connection's thread has not turned for 30 s"
    leave.set()
    monkeypatch.undo()
    eventually(twin, lambda: connection.health().live)


def test_a_loop_that_does_not_turn_is_seen(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """A loop that a handler blocks is not live 30 s after a probe on another thread asked, and no sooner."""
    found: list[Any] = []

    async def main() -> None:
        async with redelivery.connect_async(redelivery_broker.uri, clock=redelivery_clock) as connection:

            def probe() -> None:
                found.append(connection.health())
                redelivery_clock.advance(30)
                found.append(connection.health())

            async def handle(_: Message) -> None:
                thread = threading.Thread(target=probe)
                thread.start()
                thread.join(PATIENCE)
                connection.stop()

            connection.listen("q", handle)
            redelivery_broker.send("q", "a")
            await connection.run()
            assert connection.health().reasons == ("draining",)

    asyncio.run(main())
    assert [health.live for health in found] == [True, False]
    assert found[1].reasons == ("the event loop has not turned for 30 s",)


def test_a_faulty_policy_ends_nothing(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """A policy that raises is one line of the log; the connection stays live."""

    class Faulty(RedeliveryPolicy):
        def redelivery_delay_ms(self, *_: Any, **__: Any) -> int:
            raise RuntimeError("a bug")

    connection = twin.connect(policies=RedeliveryPolicyMap(default=Faulty()))
    twin.listen(connection, "q", raising(ValueError("no")))
    twin.broker.send("q", "a")
    eventually(twin, lambda: connection.report().redelivered)
    health = connection.health()
    assert (health.live, health.ready, connection.error) == (True, True, None)
    assert len(errors(caplog)) == 1


def test_an_observer_that_raises_no_exception_ends_consuming(
    twin: Twin, caplog: pytest.LogCaptureFixture
) -> None:
    """An observer's KeyboardInterrupt stops the consumer, and `wait` raises it; the message stays accepted."""

    def observe(event: Event) -> None:
        if isinstance(event, Finished):
            raise KeyboardInterrupt

    connection = twin.connect(observers=[observe])
    twin.listen(connection, "q", lambda _: None)
    twin.broker.send("q", "a")
    eventually(twin, lambda: connection.error)
    assert isinstance(waits(twin, connection), KeyboardInterrupt)
    assert connection.report().accepted == 1
    lines = ["queue://q: the observer failed; that has no effect on messages, but its consumer stops"]
    assert errors(caplog) == lines
    assert dead(connection) == "consuming has ended: KeyboardInterrupt"
