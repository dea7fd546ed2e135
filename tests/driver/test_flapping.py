"""Connections that are short-lived: the back-off goes on."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from redelivery.core.commands import Subscribe
from redelivery.driver.connection.sends import end
from redelivery.errors import TransportError

if TYPE_CHECKING:
    import pytest
    from tests.driver.twins import Twin

    from redelivery.testing import ManualClock

FAILOVER = "?initialReconnectDelay=1000&maxReconnectDelay=8000"


def test_back_off_goes_on_over_connections_that_do_not_last(
    twin: Twin, redelivery_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that ends each connection at its SUBSCRIBE is connected to with longer and longer delays."""
    connection = twin.connect(uri=f"failover:({twin.broker.uri}){FAILOVER}")
    twin.call(connection.consumer("orders"))
    adapter = connection._driver._adapter
    execute = adapter.execute
    tried: list[float] = []
    flapping = True

    def cutting(commands: Any) -> None:
        if any(isinstance(command, Subscribe) for command in commands):
            tried.append(round(redelivery_clock.monotonic() - began, 3))
            execute(commands)
            if flapping:
                twin.broker.cut()
        else:
            execute(commands)

    monkeypatch.setattr(adapter, "execute", cutting)
    began = redelivery_clock.monotonic()
    twin.broker.cut()
    twin.advance(20)
    assert tried == [0, 1, 3, 7, 15]  # at once, then after 1, 2, 4 and 8 s
    flapping = False
    twin.advance(3)  # the last attempt is 8 s later: this connection will stay up
    assert tried[5:] == [23]
    twin.advance(5)
    twin.broker.cut()
    twin.advance(0)
    assert tried[6:] == [28]  # it was up for 5 s: reconnected at once


def test_a_short_connection_costs_one_pause(twin: Twin, redelivery_clock: ManualClock) -> None:
    """A second loss within 5 s costs the first delay, and no attempt before it."""
    twin.connect(uri=f"failover:({twin.broker.uri}){FAILOVER}")
    twin.broker.cut()
    twin.advance(0)
    assert twin.broker.connections == 1
    twin.broker.cut()
    twin.advance(0.999)
    assert twin.broker.connections == 0
    twin.advance(0.001)
    assert twin.broker.connections == 1


def test_an_answer_to_nobody_is_no_fault() -> None:
    """An answer to a cancelled future is no fault, at whatever moment it was cancelled."""

    class Late(Future[None]):
        """Future that says that it is not cancelled, though it is."""

        def done(self) -> bool:
            return False

    for error in (None, TransportError("lost")):
        future = Late()
        future.cancel()
        end(future, error)
        assert future.cancelled()
