"""Programs that make and close a consumer for each request."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from tests.driver.twins import body_of
from tests.eventually import eventually

import redelivery
from redelivery.driver.connection.connection_end import IdleWatch

if TYPE_CHECKING:
    from tests.driver.twins import Twin


def test_a_closed_consumer_leaves_its_counts_and_nothing_else(twin: Twin) -> None:
    """A closed consumer is not kept alive, and its counts stay in the report."""
    connection = twin.connect()
    gone: list[weakref.ref[object]] = []
    for number in range(5):
        twin.broker.send("orders", str(number))
        consumer = twin.call(connection.consumer("orders"))
        message = twin.receive(consumer)
        assert body_of(message) == str(number)
        message.accept()
        twin.call(consumer.close())
        gone.append(weakref.ref(consumer._dispatcher))
    del consumer, message
    # The thread that closed the last one may still run.
    eventually(lambda: gc.collect() >= 0 and [dispatcher() for dispatcher in gone] == [None] * 5)
    assert connection._dispatchers == []
    assert connection._driver.dispatchers == {}
    assert connection._driver.shared_history._open == {}
    assert connection.report() == redelivery.Report(accepted=5)


@pytest.mark.ci("garbage collections: 0.7 s each")
def test_a_result_that_comes_after_the_close_is_counted(twin: Twin) -> None:
    """A message that is settled after its consumer's close counts; one that is never settled is not kept."""
    connection = twin.connect()
    # The first task of an `asyncio.Runner` stays, with its result, in the runner's handler of Ctrl-C.
    twin.call(connection.consumer("others"))
    consumer = twin.call(connection.consumer("orders"))
    for body in ("a", "b"):
        twin.broker.send("orders", body)
    held = [twin.receive(consumer) for _ in range(2)]
    twin.call(consumer.close())
    assert connection.report() == redelivery.Report()
    assert held.pop().accept() is False
    assert connection.report() == redelivery.Report(stale=1)
    dispatcher = weakref.ref(consumer._dispatcher)
    del consumer
    held.clear()
    # The thread that closed it may still run.
    eventually(lambda: gc.collect() >= 0 and dispatcher() is None)
    assert connection.report() == redelivery.Report(stale=1)


def test_a_closed_consumer_that_somebody_keeps_is_added_up(twin: Twin) -> None:
    """The counts of a closed consumer without running messages are final, though the application keeps the object."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "a")
    twin.receive(consumer).accept()
    twin.call(consumer.close())
    assert connection._driver.open_consumers.counts.final
    assert connection.report() == redelivery.Report(accepted=1)
    assert consumer.destination == "queue://orders"


def test_a_refused_consumer_is_not_kept(twin: Twin) -> None:
    """A consumer that the broker refuses leaves no dispatcher."""
    connection = twin.connect()
    try:
        twin.call(connection.consumer("orders", selector="a = 1"))
    except redelivery.AdapterError:
        pass
    else:
        raise AssertionError("the memory broker has no selectors")
    assert connection._dispatchers == []


def test_idleness_is_looked_for_in_open_consumers(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """The idle watch checks consumers that were made after it began, and not closed ones."""
    now = 1000.0
    monkeypatch.setattr(
        "redelivery.driver.connection.connection_end.time", SimpleNamespace(monotonic=lambda: now)
    )
    connection = twin.connect()
    watch = IdleWatch(connection._dispatchers, 1.0, lambda: True)
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "a")
    message = twin.receive(consumer)
    for _ in range(3):
        now += 2
        assert not watch.over()
    twin.call(consumer.close())
    assert not watch.over()  # the counts have changed
    now += 1
    assert watch.over()
    assert message.outcome is None


def test_draining_while_a_consumer_closes_itself(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draining reaches every consumer, even if one closes itself meanwhile."""
    connection = twin.connect()
    for _ in range(3):
        twin.call(connection.consumer("orders"))
    dispatchers = list(connection._dispatchers)
    feed = dispatchers[0].feed

    def closing(event: object) -> None:
        feed(event)
        connection._driver.open_consumers.retire(dispatchers[0])

    monkeypatch.setattr(dispatchers[0], "feed", closing)
    twin.call(connection.drain(timeout=0))
    assert all(dispatcher.closed for dispatcher in dispatchers)
