"""Connections that do not last: back-off goes on over them."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from redelivery.core.commands import Subscribe
from redelivery.driver.connection.pending_sends import end
from redelivery.errors import TransportError

if TYPE_CHECKING:
    import pytest
    from tests.driver.twins import Twin

    from redelivery.testing import ManualClock

FAILOVER = "?initialReconnectDelay=1000&maxReconnectDelay=8000"


def test_back_off_goes_on_over_connections_that_do_not_last(
    twin: Twin, redelivery_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that ends each connection at its SUBSCRIBE is tried ever more seldom."""
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
    twin.advance(3)  # the last attempt comes after 8 s more: this connection will stand
    assert tried[5:] == [23]
    twin.advance(5)
    twin.broker.cut()
    twin.advance(0)
    assert tried[6:] == [28]  # it has stood for 5 s: again at once


def test_a_short_connection_costs_one_pause(twin: Twin, redelivery_clock: ManualClock) -> None:
    """Lost a second time within 5 s: the first pause, and no attempt before it."""
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
    """Whoever waited may have cancelled between any look and the answer."""

    class Late(Future[None]):
        """Says that it is waited for, though it was cancelled."""

        def done(self) -> bool:
            return False

    for error in (None, TransportError("lost")):
        future = Late()
        future.cancel()
        end(future, error)
        assert future.cancelled()
