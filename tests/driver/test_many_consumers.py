"""Many consumers on one connection: the work of one costs the others nothing."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.eventually import eventually

import redelivery
import redelivery_memory
from redelivery import SqliteLedger
from redelivery.core.commands import Accept
from redelivery.driver.consumer.dispatcher import Dispatcher
from redelivery.errors import AdapterError
from redelivery.testing import MemoryBroker

if TYPE_CHECKING:
    from pathlib import Path

MANY = 30


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, str]]:
    """Count the checks of each dispatcher, by method and destination."""
    monkeypatch.setattr(
        redelivery_memory.adapter, "CAPABILITIES", replace(redelivery_memory.CAPABILITIES, batch=True)
    )
    counted = Counter[tuple[str, str]]()

    def count(name: str, method: Any) -> Any:
        def looked(self: Dispatcher, *arguments: Any) -> Any:
            counted[name, str(self.subscribe.destination)] += 1
            return method(self, *arguments)

        return looked

    for name in ("pending", "tick", "next_alarm"):
        monkeypatch.setattr(Dispatcher, name, count(name, getattr(Dispatcher, name)))
    return counted


def test_only_those_that_collect_are_looked_at(looks: Counter[tuple[str, str]]) -> None:
    """The driver writes the settlements of one consumer without taking another dispatcher's lock."""
    with MemoryBroker() as broker, redelivery.connect(broker.uri) as connection:
        consumers = [connection.consumer(f"q{number}") for number in range(MANY)]
        connection._driver.expect_alarm()
        eventually(lambda: not connection._driver._alarmed)
        looks.clear()
        for _ in range(20):
            broker.send("q0", "x")
            message = consumers[0].receive(timeout=60)
            assert message is not None
            message.accept()
        eventually(lambda: broker.messages("q0") == [])
        assert {place for _, place in looks} <= {"queue://q0"}


def test_closing_one_flushes_its_own(
    redelivery_broker: MemoryBroker, looks: Counter[tuple[str, str]]
) -> None:
    """Closing a consumer writes its own settlements, and checks no other."""
    with redelivery.connect(redelivery_broker.uri) as connection:
        consumers = [connection.consumer(f"q{number}") for number in range(MANY)]
        redelivery_broker.send("q3", "x")
        message = consumers[3].receive(timeout=60)
        assert message is not None
        connection._driver.expect_alarm()
        eventually(lambda: not connection._driver._alarmed)
        looks.clear()
        message.accept()
        consumers[3].close()
        assert redelivery_broker.messages("q3") == []
        assert {place for _, place in looks} <= {"queue://q3"}
        dispatcher = consumers[3]._dispatcher
        driver = connection._driver
        assert not {dispatcher} & (driver._collecting | driver._alarmed | driver._stopped)


def test_what_is_collected_while_it_is_written_is_not_forgotten(redelivery_broker: MemoryBroker) -> None:
    """A dispatcher that collects again between the write and the check stays in the set."""
    with redelivery.connect(redelivery_broker.uri) as connection:
        dispatcher, driver = connection.consumer("q")._dispatcher, connection._driver
        more = [(Accept([]),), ()]

        def pending(_: float) -> Any:
            written = more.pop(0)
            if written:
                dispatcher._settlements._accepts.append(None)  # type: ignore[arg-type]
            return written

        dispatcher.pending = pending  # type: ignore[assignment,method-assign]
        driver._collecting.add(dispatcher)
        driver._write_collected(0.0)
        assert dispatcher in driver._collecting
        dispatcher._settlements._accepts.clear()
        driver._write_collected(0.0)
        assert dispatcher not in driver._collecting


def test_who_flushes_waits_for_one_that_is_looked_at(redelivery_broker: MemoryBroker) -> None:
    """No other thread can flush while a dispatcher is out of the set: it would be missed."""
    with redelivery.connect(redelivery_broker.uri) as connection:
        dispatcher, driver = connection.consumer("q")._dispatcher, connection._driver
        free: list[bool] = []

        def pending(_: float) -> Any:
            assert dispatcher not in driver._collecting
            other = threading.Thread(target=lambda: free.append(driver._writing.acquire(blocking=False)))
            other.start()
            other.join()
            return ()

        dispatcher.pending = pending  # type: ignore[assignment,method-assign]
        driver._collecting.add(dispatcher)
        driver._write_collected(0.0)
        del dispatcher.pending
        assert free == [False]


def test_one_that_stops_before_it_is_subscribed(redelivery_broker: MemoryBroker) -> None:
    """A dispatcher that stops before it is subscribed is unsubscribed by the driver's thread, and dropped."""
    with redelivery.connect(redelivery_broker.uri) as connection:
        driver = connection._driver
        dispatcher = connection.consumer("q")._dispatcher
        driver.unsubscribe(dispatcher)
        dispatcher.stop(AdapterError("stopped early"))
        driver.expect_alarm()
        eventually(lambda: dispatcher not in driver._stopped)
        driver.subscribe(dispatcher).exception(timeout=60)
        driver.expect_alarm()
        eventually(lambda: dispatcher.subscribe.consumer not in driver.dispatchers)
        eventually(lambda: dispatcher not in driver._stopped)


def test_another_consumer_forgets_what_a_closed_one_has_left(
    redelivery_broker: MemoryBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger entry that outlives its consumer is removed in time by another consumer of the connection."""
    forgotten: list[bytes] = []
    monkeypatch.setattr(SqliteLedger, "bury", lambda _, key, __: forgotten.append(key))
    with redelivery.connect(redelivery_broker.uri, ledger=SqliteLedger(tmp_path / "a.db")) as connection:
        first, second = connection.consumer("a"), connection.consumer("b")
        ledger, driver = connection._driver._connection_ledger, connection._driver
        assert ledger is not None
        ledger._verdicts[b"k" * 16] = driver._clock.monotonic() + 5
        driver.expect_alarm(first._dispatcher)
        first.close()
        assert second.receive(timeout=60) is None
        assert forgotten == [b"k" * 16]
