"""Log handlers of the application: lines are written without a lock, and a handler may close the connection."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.eventually import eventually

import redelivery
import redelivery_memory.adapter
from redelivery import RedeliveryPolicy, RedeliveryPolicyMap, SqliteLedger

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from tests.driver.twins import Twin

    from redelivery.events import Event
    from redelivery.testing import MemoryBroker

ONCE = RedeliveryPolicyMap(default=RedeliveryPolicy(maximum_redeliveries=0))
# Seconds to wait for a lock; no thread holds one for so long.
PATIENCE = 1.0


class Faulty:
    """Policy that raises."""

    maximum_redeliveries = 1

    def redelivery_delay_ms(self, redelivery: int, random: object = None) -> int:
        raise RuntimeError("a bug")

    def delays_ms(self, n: int, random: object = None) -> list[int]:
        return [1] * n

    def worst_case_ms(self) -> int | None:
        return 1


class Calls(logging.Handler):
    """Log handler that calls a function with each line."""

    def __init__(self, function: Callable[[str], object]) -> None:
        super().__init__(logging.INFO)
        self.function = function

    def emit(self, record: logging.LogRecord) -> None:
        self.function(record.getMessage())


@pytest.fixture
def log() -> Generator[logging.Logger]:
    """Return the library's logger at INFO; the test's handlers are removed afterwards."""
    logger = logging.getLogger("redelivery")
    level, handlers = logger.level, list(logger.handlers)
    logger.setLevel(logging.INFO)
    yield logger
    logger.setLevel(level)
    logger.handlers = handlers


class Locks:
    """Function that tries the locks of a connection's consumers at each line."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.lines: list[str] = []
        # Lines during which a lock was held.
        self.locked: list[str] = []

    def __call__(self, line: str) -> None:
        """Try the locks."""
        self.lines.append(line)
        for dispatcher in list(self.connection._driver.dispatchers.values()):
            if dispatcher._lock.acquire(timeout=PATIENCE):
                dispatcher._lock.release()
            else:
                self.locked.append(line)


def spent(twin: Twin, consumer: Any) -> None:
    twin.broker.send("orders", "a")
    twin.broker.send("orders", "b")
    held = twin.receive(consumer)
    assert twin.receive(consumer, 1) is None
    held.accept()


def full(twin: Twin, consumer: Any) -> None:
    twin.broker.send("orders", "a")
    twin.broker.send("orders", "b")
    twin.receive(consumer).fail("no stock")
    assert twin.receive(consumer, 0.5) is None


def stale(twin: Twin, consumer: Any) -> None:
    twin.broker.send("orders", "a")
    message = twin.receive(consumer)
    twin.broker.cut()
    message.accept()


def unseen(twin: Twin, consumer: Any) -> None:
    twin.broker.send("orders", "a")
    message = twin.receive(consumer)
    twin.broker.drop_accepts(1)
    message.accept()
    twin.broker.drop_accepts(0)
    twin.broker.cut()
    twin.advance(1)


def failed(twin: Twin, consumer: Any) -> None:
    twin.broker.send("orders", "a")
    twin.receive(consumer).fail("no stock")


def partial(twin: Twin, consumer: Any) -> None:
    twin.broker.send("orders", "part", body_kind="partial")
    failed(twin, consumer)


def expired(twin: Twin, consumer: Any) -> None:
    twin.broker.send("orders", "late", expires_at=twin.clock.time() + 1)
    twin.advance(2)
    assert twin.receive(consumer) is None


def observe(event: Event) -> None:
    if event.name == "finished":
        raise RuntimeError("a bug")


STRICT = "?redelivery.maximumSetAside=0"
DISCARD = "?redelivery.deadLetterStrategy=discarding&redelivery.reportInterval=1"
SCENES: dict[str, tuple[Callable[[Any, Any], None], str, dict[str, Any]]] = {
    "the application has its whole credit": (spent, "?redelivery.credit=1", {}),
    "messages are parked, set aside": (full, "?redelivery.credit=9&redelivery.maxParked=1", {}),
    "a result is stale": (stale, "", {}),
    "accepted without being handled": (unseen, "", {}),
    "the policy Faulty: redelivery_delay_ms(1) raised": (
        failed, "", {"policies": RedeliveryPolicyMap(default=Faulty())},
    ),
    "1 message dropped so far instead of dead-lettered": (failed, DISCARD, {"policies": ONCE}),
    "set aside, and other messages are handled as usual": (partial, "", {"policies": ONCE}),
    "the consumer stops": (partial, STRICT, {"policies": ONCE}),
    "given up (expired": (expired, "", {}),
    "the observer failed": (failed, "", {"observers": [observe]}),
}  # fmt: skip


@pytest.mark.parametrize("text", SCENES)
def test_a_line_is_written_without_the_consumers_lock(
    twin: Twin, text: str, log: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log handler may call the connection, and wait for other threads that do, at every line."""
    scene, options, arguments = SCENES[text]
    if scene is partial:
        able = replace(redelivery_memory.CAPABILITIES, poison_persistent=False, release=False)
        monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", able)
    connection = twin.connect(options, **arguments)
    locks = Locks(connection)
    log.addHandler(Calls(locks))
    scene(twin, twin.call(connection.consumer("orders")))
    assert [line for line in locks.lines if text in line] != []
    assert locks.locked == []


def test_a_ledger_that_fails_is_logged_without_the_lock(
    twin: Twin, tmp_path: Path, log: logging.Logger
) -> None:
    """Consumers of a ledger that fails are logged without a lock, in the driver's thread or another."""
    ledger = SqliteLedger(tmp_path / "ledger.db")
    connection = twin.connect(ledger=ledger)
    locks = Locks(connection)
    log.addHandler(Calls(locks))
    consumer = twin.call(connection.consumer("orders"))
    ledger.fail(OSError(28, "No space left on device"))
    with pytest.raises(redelivery.LedgerError):
        twin.receive(consumer, 1)
    assert [line for line in locks.lines if "the consumer stops" in line] != []
    assert locks.locked == []


def test_a_log_handler_may_close_the_connection(redelivery_broker: MemoryBroker, log: logging.Logger) -> None:
    """A log handler on a worker's thread may close the connection: the failed message is released, nothing hangs."""
    ended: list[bool] = []

    def close(line: str) -> None:
        if "the policy Faulty" in line:
            # On another thread, for which it waits: if it hung on this one, the test would say less.
            closing = threading.Thread(target=connection.close)
            closing.start()
            closing.join(PATIENCE)
            ended.append(not closing.is_alive())

    log.addHandler(Calls(close))
    policies = RedeliveryPolicyMap(default=Faulty())
    with redelivery.connect(redelivery_broker.uri, policies=policies) as connection:
        connection.listen("orders", fail)
        connection.start()
        redelivery_broker.send("orders", "a")
        eventually(lambda: ended)
    assert ended == [True]
    assert [held.delivered for held in redelivery_broker.messages("orders")] == [False]


def fail(_: object) -> None:
    """Fail as a handler."""
    raise ValueError("no stock")
