"""Observers that want their connection, some types of events only, or results of sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.driver.twins import eventually

import redelivery
from redelivery.events import Connected, ConsumerStarted, Event, Finished, ObservedConnection, Observer

if TYPE_CHECKING:
    import pytest
    from tests.driver.twins import Twin

    from redelivery import Message


class Runs(Observer):
    """Observer that keeps results."""

    def __init__(self) -> None:
        self.ended: list[Finished] = []

    def finished(self, token: Any, result: Finished) -> None:
        self.ended.append(result)


def handle(_: Message) -> None:
    """Succeed."""


def test_an_observer_names_the_events_that_it_wants(twin: Twin) -> None:
    """`event` is called only for the types in `event_types`; `Received` is not made unless an observer wants it."""

    class Few(Observer):
        event_types = (ConsumerStarted, Connected)

        def event(self, event: Event) -> None:
            seen.append(type(event))

    seen: list[type[Event]] = []
    connection = twin.connect(observers=[Few()])
    twin.listen(connection, "orders", handle)
    twin.broker.send("orders", "a")
    eventually(twin, lambda: connection.report().accepted)
    assert seen == [Connected, ConsumerStarted]


class Attached(Observer):
    """Observer that keeps its connections."""

    def __init__(self) -> None:
        self.connections: list[ObservedConnection] = []

    def attached(self, connection: ObservedConnection) -> None:
        self.connections.append(connection)


def test_an_observer_has_its_connection_before_it_is_open(twin: Twin) -> None:
    """An observer can read name, health and counters at any time; after the close the counters remain."""
    one, own = Attached(), Attached()
    connection = twin.make(observers=[one])
    [known] = one.connections
    assert known.name == twin.broker.uri.partition("://")[2]
    health = known.health()
    assert health is not None
    assert not health.connection.connected
    assert (known.reports(), known.reconnects(), known.over) == ({}, 0, False)
    twin.call(connection.__aenter__() if twin.asynchronous else connection.__enter__())
    twin.listen(connection, "orders", handle, observers=[own])
    twin.broker.send("orders", "a")
    eventually(twin, lambda: connection.report().accepted)
    assert own.connections == one.connections
    twin.call(connection.close())
    assert known.health() is None
    assert known.reports() == {"queue://orders": redelivery.Report(accepted=1)}


def test_what_attached_raises_is_logged(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """An exception in `attached` is logged, and the connection is made."""

    class Broken(Observer):
        def attached(self, connection: ObservedConnection) -> None:
            raise RuntimeError("x")

    connection = twin.connect(observers=[Broken()])
    assert connection.connected
    assert caplog.messages[0] == "the observer failed; that has no effect on messages"


def test_a_commit_after_its_handler_has_a_result_of_its_own(twin: Twin) -> None:
    """A commit after the handler's end is a result of its own; the run before ends without an outcome."""
    spans = Runs()
    connection = twin.connect(observers=[spans])
    session = connection.session("transacted")
    session.listen("orders", twin.handler(handle))
    twin.call(connection.start())
    for _ in range(2):
        twin.broker.send("orders", "a")
        eventually(twin, lambda: spans.ended[-1:] and spans.ended[-1].outcome is None)
        twin.call(session.commit())
    assert [x.outcome for x in spans.ended] == [None, "accepted", None, "accepted"]
