"""Waits longer than the platform, or the calendar, allows: they go on, and raise nothing."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.eventually import eventually

import redelivery
from redelivery import clock as clocks
from redelivery.clock import SystemClock, capped, join_within
from redelivery.core.shown_values import LAST, calendar_time
from redelivery.testing import ManualClock, MemoryBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redelivery import Message

NEVER = "jms.redeliveryPolicy.initialRedeliveryDelay=9223372036854775807"
LONG = 1e12
"""Seconds: beyond `threading.TIMEOUT_MAX`."""


@pytest.fixture
def real() -> Iterator[MemoryBroker]:
    """Return a broker in real time: these tests are about waits of the machine."""
    with MemoryBroker() as broker:
        yield broker


def fails(message: Message) -> None:
    if message.text == "bad":
        raise ValueError("x")


def defers(message: Message) -> None:
    if message.text == "bad":
        raise redelivery.Defer(1e15)


@pytest.mark.parametrize(
    ("options", "handler"), [(f"?{NEVER}", fails), ("", defers)], ids=["policy", "deferral"]
)
def test_a_message_that_waits_for_ever_stops_no_other(real: MemoryBroker, options: str, handler: Any) -> None:
    """A message that is parked for ever stops no other in a worker thread; timeouts may be as long."""
    with redelivery.connect(real.uri + options) as connection:
        connection.listen("q", handler, timeout=LONG)
        real.send("q", "bad")
        connection.start()
        eventually(lambda: connection.report().redelivered + connection.report().deferred == 1)
        real.send("q", "good")
        eventually(lambda: connection.report().accepted == 1)
        assert connection.drain(LONG).running == 0
        connection.close(LONG)


@pytest.mark.parametrize(
    ("options", "handler"), [(f"?{NEVER}", fails), ("", defers)], ids=["policy", "deferral"]
)
def test_a_message_that_waits_for_ever_stops_no_other_on_a_loop(
    real: MemoryBroker, options: str, handler: Any
) -> None:
    """A message that is parked for ever stops no other in a task, also with an `async def` handler's timeout."""

    async def handle(message: Message) -> None:
        handler(message)

    async def main() -> redelivery.Report:
        async with redelivery.connect_async(real.uri + options) as connection:
            connection.listen("q", handle, timeout=LONG)
            await connection.send("q", "bad", timeout=LONG)
            await connection.start()
            await asyncio.to_thread(
                eventually, lambda: connection.report().redelivered + connection.report().deferred
            )
            real.send("q", "good")
            await asyncio.to_thread(eventually, lambda: connection.report().accepted)
            report = await connection.drain(LONG)
            await connection.close(LONG)
            return report

    assert asyncio.run(main()).accepted == 1


def test_a_pull_may_wait_for_ever(real: MemoryBroker) -> None:
    """`receive`, `send`, `run` and `close` accept timeouts that no clock reaches."""
    with redelivery.connect(f"{real.uri}?{NEVER}") as connection:
        with connection.consumer("q") as consumer:
            connection.send("q", "bad", timeout=LONG)
            message = consumer.receive(LONG)
            assert message is not None
            message.fail("x")
            sender = threading.Thread(target=real.send, args=("q", "good"))
            eventually(lambda: consumer.parked == 1)
            sender.start()
            message = consumer.receive(timedelta.max)
            assert message is not None
            assert message.text == "good"
            sender.join()
            message.accept()
            consumer.close(LONG)
        connection.listen("other", lambda _: connection.stop())
        real.send("other", "a")
        assert connection.run(drain_timeout=LONG, until_idle=LONG).running == 0


def test_a_session_may_wait_for_ever(real: MemoryBroker) -> None:
    """A commit and the close of a session accept timeouts that no clock reaches."""
    with redelivery.connect(real.uri) as connection:
        session = connection.session("transacted")
        session.send("q", "a")
        session.commit(timeout=LONG)
        session.close(LONG)
    assert real.depth("q") == 1


def test_the_clock_waits_for_a_day_at_most() -> None:
    """A clock waits for a day at most; its callers check the time, and wait on."""
    waited: list[float | None] = []

    class Noted(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            waited.append(timeout)
            return True

    for timeout in (1.0, LONG, 1e300, None):
        SystemClock().wait(Noted(), timeout)
    assert waited == [1.0, 86400.0, 86400.0, None]
    assert capped(LONG) < threading.TIMEOUT_MAX


def test_a_join_goes_on_after_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """Joining a thread ends with the thread, not with the first wait of a day."""
    monkeypatch.setattr(clocks, "LONGEST_WAIT", 0.001)
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    looks: list[float] = []
    join = thread.join

    def joined(timeout: float | None = None) -> None:
        assert timeout is not None
        looks.append(timeout)
        if len(looks) == 5:
            over.set()
        join(timeout)

    monkeypatch.setattr(thread, "join", joined)
    thread.start()
    join_within(thread, LONG)
    assert not thread.is_alive()
    assert len(looks) >= 5
    began = time.monotonic()
    join_within(thread, LONG)
    assert time.monotonic() - began < 60


def test_a_delay_for_ever_has_words(real: MemoryBroker, caplog: pytest.LogCaptureFixture) -> None:
    """The log says "100 years" instead of a delay of 292 million years in seconds."""
    caplog.set_level(logging.WARNING)
    with redelivery.connect(f"{real.uri}?{NEVER}") as connection, connection.consumer("q") as consumer:
        real.send("q", "bad")
        message = consumer.receive(60)
        assert message is not None
        message.fail("x")
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.endswith(": delivery 1 of 7 failed (x); no redelivery for 100 years")


def test_dates_that_the_calendar_does_not_have() -> None:
    """A date beyond the calendar is None, or the last date, and never an error."""
    assert calendar_time(0) == datetime(1970, 1, 1, tzinfo=UTC)
    assert [calendar_time(at) for at in (LONG, 1e20, 1e300, float("nan"), -1e20)] == [None] * 5
    clock = ManualClock(start=LONG)
    with MemoryBroker(clock=clock) as broker, redelivery.connect(broker.uri, clock=clock) as connection:
        with connection.consumer("q") as consumer:
            connection.send("q", "a", ttl=LONG)
            message = consumer.receive(0)
            assert message is not None
            assert message.expiration is None
            message.fail("x")
            clock.advance(1)
            message = consumer.receive(0)
            assert message is not None
            assert message.first_seen == LAST
            message.poison("x")
        (letter,) = broker.dead_letters()
        assert letter.headers["redeliveryFirstFailure"] == "9999-12-31T23:59:59.999Z"


def test_a_timeout_for_ever_is_never_over(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """The watch sleeps until it is woken if no clock reaches the handler's timeout."""
    redelivery_broker.send("orders", "a")
    with redelivery.connect(redelivery_broker.uri, clock=redelivery_clock) as connection:
        connection.listen("orders", lambda _: connection.stop(), timeout=1e308)
        assert connection.run().accepted == 1
        assert redelivery_clock.run_until_idle() == 0
