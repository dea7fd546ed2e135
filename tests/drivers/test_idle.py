"""Idleness: nothing to do for a while, on a connection that stands."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from redelivery import TransportError
from redelivery.cli.tally import Tally
from redelivery.clock import SystemClock
from redelivery.drive.idle import IdleWatch

from .twins import SyncTwin

if TYPE_CHECKING:
    import pytest

    from redelivery import Message

    from .twins import Twin


class Time:
    """Stands in for the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


def test_an_outage_is_no_idleness(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts from the moment at which the connection stands again."""
    time = Time()
    monkeypatch.setattr("redelivery.drive.idle.time", time)
    up = False
    watch = IdleWatch([], 1.0, lambda: up)
    for _ in range(3):
        time.now += 1
        assert not watch.over()
    up = True
    time.now += 0.9
    assert not watch.over()
    time.now += 0.1
    assert watch.over()


def test_run_outlasts_an_outage(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is at the broker when it comes back is handled, though nothing came for longer than `until_idle`."""
    handled: list[str] = []

    def handle(message: Message) -> None:
        handled.append(message.text)
        if message.text == "a":
            message.accept()
            monkeypatch.setattr(adapter, "open", refusing)
            twin.broker.cut()

    connection = twin.make(uri=f"failover:({twin.broker.uri})?initialReconnectDelay=20", clock=SystemClock())
    adapter = connection._keeper._adapter
    opened, refused = adapter.open, itertools.count()

    def refusing(opening: Any, sink: Any) -> Any:
        if next(refused) < 4:
            raise TransportError("down")
        return opened(opening, sink)

    connection.listen("orders", twin.handler(handle))
    twin.broker.send("orders", "a")
    twin.broker.send("orders", "b")
    if isinstance(twin, SyncTwin):
        with connection:
            report = connection.run(until_idle=0.03)
    else:

        async def go() -> object:
            async with connection:
                return await connection.run(until_idle=0.03)

        report = twin.call(go())
    assert handled == ["a", "b"]
    assert report.accepted == 2


def test_the_command_line_knows_of_outages(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--idle` starts over when the connection stands again."""
    time = Time()
    monkeypatch.setattr("redelivery.cli.tally.time", time)
    tally = Tally(idle=1.0)
    looks = iter([False, False, True, True, True])
    seen: list[float] = []

    def connected() -> bool:
        return next(looks)

    def wait(_: float) -> bool:
        time.now += 0.6
        return bool(seen)

    tally.connected = connected
    tally.stop = lambda: seen.append(time.now)
    monkeypatch.setattr(tally._ended, "wait", wait)
    tally._watch(1.0)
    assert [round(at - 1000, 1) for at in seen] == [
        2.4
    ]  # 1 s and more after the last look without a connection
