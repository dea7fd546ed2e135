"""Idleness: no work for a while, on a connection that is up."""

from __future__ import annotations

import asyncio
import itertools
from math import inf
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.driver.twins import SyncTwin

import redelivery
from redelivery import (
    Breaker,
    BreakerOpen,
    RedeliveryPolicy,
    RedeliveryPolicyMap,
    Report,
    TransportError,
)
from redelivery.clock import SystemClock
from redelivery.driver.connection import connection_end
from redelivery.driver.connection.connection_end import IdleWatch
from redelivery.testing import MemoryBroker

if TYPE_CHECKING:
    from tests.driver.twins import Twin

    from redelivery import Message


class Time:
    """Replacement of the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


def test_an_outage_is_no_idleness(monkeypatch: pytest.MonkeyPatch) -> None:
    """The idle time begins anew when the connection is up again."""
    time = Time()
    monkeypatch.setattr("redelivery.driver.connection.connection_end.time", time)
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


class DueMeanwhile:
    """Counts of an engine whose only message is parked at the first reading, and ready from then on."""

    waiting = unconfirmed = 0

    def __init__(self) -> None:
        self._readings = itertools.count()

    @property
    def working(self) -> int:
        return 1 if next(self._readings) else 0

    def open_for(self, now: float) -> None: ...


def test_a_message_that_becomes_due_meanwhile_is_no_idleness(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that is parked at one reading of the counts and ready at the next one is work."""
    time = Time()
    monkeypatch.setattr("redelivery.driver.connection.connection_end.time", time)
    engine = SimpleNamespace(load=DueMeanwhile(), arrived=0)
    dispatcher: Any = SimpleNamespace(unheard=False, engine=engine, left_to_its_session=lambda: 0)
    watch = IdleWatch([dispatcher], 1.0, lambda: True)
    watch._seen = (0, 0, 0)
    time.now += 10
    assert not watch.over()


class Open:
    """Counts of an engine whose breaker is open for so long, with so many messages parked."""

    working = unconfirmed = 0
    open_because = None

    def __init__(self, open_for: float, waiting: int, *, named: bool) -> None:
        self.waiting = waiting
        self._open_for = open_for
        self._named = named

    def open_for(self, now: float) -> float:
        return self._open_for

    def is_down(self, now: float) -> bool:
        return self._named


@pytest.mark.parametrize(
    ("seconds", "open_for", "waiting", "idle", "ends"),
    [
        (5.0, 59.0, 3, 100.0, False),
        (5.0, 60.0, 3, 0.0, True),
        (90.0, 89.0, 3, 0.0, False),
        (90.0, 90.0, 3, 0.0, True),
        (5.0, 1.0, 0, 4.0, False),
        (5.0, 1.0, 0, 5.0, True),
        (inf, 59.0, 3, 1e6, False),
        (inf, 60.0, 3, 0.0, True),
        (inf, 1e6, 0, 1e6, False),
    ],
)
def test_an_open_breaker_ends_a_run_with_an_error(
    monkeypatch: pytest.MonkeyPatch, seconds: float, open_for: float, waiting: int, idle: float, *, ends: bool
) -> None:
    """A breaker that is open over a named failure for a minute, or the idle time, ends the run, and so at its end."""
    assert ended(monkeypatch, Open(open_for, waiting, named=True), seconds, idle) == ends


@pytest.mark.parametrize(("waiting", "idle", "ends"), [(3, 100.0, False), (0, 4.0, False), (0, 5.0, True)])
def test_unnamed_failures_end_no_run_before_its_end(
    monkeypatch: pytest.MonkeyPatch, waiting: int, idle: float, *, ends: bool
) -> None:
    """A breaker that is open over unnamed failures ends a run only when nothing is left here."""
    assert ended(monkeypatch, Open(599.0, waiting, named=False), 5.0, idle) == ends


def ended(monkeypatch: pytest.MonkeyPatch, load: Open, seconds: float, idle: float) -> bool:
    """Return if a run is over after a time without a change; it then ends with BreakerOpen."""
    time, errors = Time(), list[BaseException]()
    monkeypatch.setattr("redelivery.driver.connection.connection_end.time", time)
    engine = SimpleNamespace(load=load, arrived=0)
    dispatcher: Any = SimpleNamespace(unheard=False, engine=engine, left_to_its_session=lambda: 0)
    watch = IdleWatch([dispatcher], seconds, lambda: True, SystemClock(), errors.append)
    watch._seen = (0, 0, 0)
    time.now += idle
    over = watch.over()
    assert [type(error) for error in errors] == [BreakerOpen] * over
    return over


class TimeOfAnOutage(Time):
    """Time that passes during an outage, and after the last message: how fast the machine is has no effect."""

    def __init__(self, handled: list[str]) -> None:
        super().__init__()
        self._handled = handled

    def monotonic(self) -> float:
        if "b" in self._handled:
            self.now += 0.1
        return self.now


def test_run_outlasts_an_outage(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """`run` handles messages after an outage that was longer than `until_idle`."""
    handled: list[str] = []
    time = TimeOfAnOutage(handled)
    monkeypatch.setattr("redelivery.driver.connection.connection_end.time", time)

    def handle(message: Message) -> None:
        handled.append(message.text)
        if message.text == "a":
            message.accept()
            monkeypatch.setattr(adapter, "open", refusing)
            twin.broker.cut()

    connection = twin.make(uri=f"failover:({twin.broker.uri})?initialReconnectDelay=20", clock=SystemClock())
    adapter = connection._driver._adapter
    opened, refused = adapter.open, itertools.count()

    def refusing(opening: Any, sink: Any) -> Any:
        if next(refused) < 4:
            time.now += 60
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


def test_a_run_gets_past_more_unnamed_bad_messages_than_may_be_parked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`run(until_idle=)` waits until unnamed failures are charged: the good messages behind them are handled."""
    monkeypatch.setattr(connection_end, "OPEN", 0.1)
    handled: list[str] = []

    def handle(message: Message) -> None:
        if message.text.startswith("bad"):
            raise OSError(message.text)
        handled.append(message.text)

    policies = RedeliveryPolicyMap(
        default=RedeliveryPolicy(maximum_redeliveries=1, initial_redelivery_delay=0.001)
    )
    breaker = Breaker(failures=2, messages=2, probe=0.02, maximum_probe=0.02, maximum_unnamed=0.3)
    with MemoryBroker() as broker:
        for body in [*(f"bad {n}" for n in range(6)), "good"]:
            broker.send("orders", body)
        uri = f"{broker.uri}?redelivery.maxParked=3"
        with redelivery.connect(uri, policies=policies, breaker=breaker) as connection:
            connection.listen("orders", handle)
            report = connection.run(until_idle=0.05)
        assert (handled, report.poisoned) == (["good"], 6)


def idle_run(twin: Twin, prepare: Any, options: str = "") -> Any:
    """Run a connection until it is idle; return its report. Late answers arrive before the close."""
    connection = twin.make(options, clock=SystemClock())
    arguments = {"until_idle": 0.03, "drain_timeout": 0.05}
    if isinstance(twin, SyncTwin):
        with connection:
            prepare(connection)
            report = connection.run(**arguments)
            twin.broker.resume_confirmations()
        return report

    async def go() -> Any:
        async with connection:
            if asyncio.iscoroutine(prepared := prepare(connection)):
                await prepared
            report = await connection.run(**arguments)
            twin.broker.resume_confirmations()
        return report

    return twin.call(go())


def test_what_a_session_holds_does_not_keep_a_run(twin: Twin) -> None:
    """A session's unacknowledged messages do not keep a run from ending; the report counts them."""
    for mode, left in (("client", Report(running=2)), ("transacted", Report(redelivered=2))):
        seen: list[str] = []
        for body in ("1", "2"):
            twin.broker.send(mode, body)

        def prepare(connection: Any, mode: str = mode, seen: list[str] = seen) -> None:
            connection.session(mode).listen(mode, twin.handler(lambda message: seen.append(message.text)))

        report = idle_run(twin, prepare)
        assert (seen, report) == (["1", "2"], left)
        assert twin.broker.depth(mode) == 2


def test_what_nobody_may_receive_does_not_keep_a_run(twin: Twin) -> None:
    """Messages for a consumer beside its session's listener, which cannot be received, do not keep a run."""
    twin.broker.send("other", "1")

    def prepare(connection: Any) -> Any:
        session = connection.session("individual")

        async def later(consumer: Any) -> None:
            await consumer
            session.listen("q", twin.handler(lambda _: None))

        consumer = session.consumer("other")
        if twin.asynchronous:
            return later(consumer)
        return session.listen("q", lambda _: None)

    assert idle_run(twin, prepare) == Report(released=1)


def test_a_dead_letter_without_an_answer_does_not_keep_a_run(twin: Twin) -> None:
    """An unconfirmed dead letter does not keep a run; the drain waits for it, and the report counts it."""
    twin.broker.send("q", "bad")
    twin.broker.stall_confirmations()

    def bad(_: Message) -> None:
        raise ValueError("bad")

    def prepare(connection: Any) -> None:
        connection.listen("q", twin.handler(bad))

    report = idle_run(
        twin, prepare, "?redelivery.deadLetter=forward&jms.redeliveryPolicy.maximumRedeliveries=0"
    )
    assert report == Report(unconfirmed=1)


def test_a_commit_without_an_answer_does_not_keep_a_run(twin: Twin) -> None:
    """A commit without an answer does not keep a run, when no call waits for it any longer."""
    twin.broker.send("q", "1")
    twin.broker.stall_confirmations()

    def prepare(connection: Any) -> None:
        session = connection.session("transacted")

        async def commit(_: Message) -> None:
            await session.commit(timeout=0.01)

        session.listen("q", commit if twin.asynchronous else lambda _: session.commit(timeout=0.01))

    report = idle_run(twin, prepare)
    assert report == Report(running=1)
