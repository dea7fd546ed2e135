"""Circuit breakers around handlers, with default and other options, on threads and on a loop."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.driver.twins import eventually

import redelivery
from redelivery import (
    Breaker,
    BreakerOpen,
    Classifier,
    ConfigurationError,
    Discard,
    Poison,
    RedeliveryPolicy,
)
from redelivery.testing import ManualClock, MemoryBroker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.driver.twins import Twin

    from redelivery import Message

SMALL = Breaker(failures=4, messages=2)
STOPS = Breaker(failures=4, messages=2, maximum_open=30, at_maximum="stop")
ONCE = redelivery.RedeliveryPolicyMap(
    default=RedeliveryPolicy(maximum_redeliveries=1, initial_redelivery_delay=1.0)
)


class DatabaseDown(ConnectionError):
    """Failure because a service is down."""


class Service:
    """Handler that needs a service."""

    def __init__(self, error: type[Exception] = DatabaseDown) -> None:
        self.up = False
        self.error = error
        self.calls: list[str] = []

    def __call__(self, message: Message) -> None:
        self.calls.append(message.text)
        if not self.up:
            raise self.error("connection refused")


def sent(twin: Twin, many: int) -> None:
    for number in range(many):
        twin.broker.send("orders", str(number))


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def test_an_outage_with_default_options_dead_letters_nothing(
    twin: Twin, caplog: pytest.LogCaptureFixture
) -> None:
    """500 messages, 9 minutes of outage: fewer than 200 failures are charged, and all are handled afterwards."""
    caplog.set_level(logging.INFO, "redelivery")
    sent(twin, 500)
    service, connection = Service(), twin.connect()
    twin.listen(connection, "orders", service)
    for _ in range(9):
        twin.advance(60)
    assert len(twin.broker.dead_letters()) == 0
    service.up = True
    twin.advance(15)
    eventually(twin, lambda: connection.report().accepted == 500)
    report = connection.report()
    assert (report.redelivered, report.poisoned) == (199, 0)
    assert report.spared == len(service.calls) - 199 - 500
    warnings = [line for line in lines(caplog, logging.WARNING) if "ID:" not in line]
    opened, *others = [line for line in warnings if line.startswith("queue://orders: ")]
    assert opened == (
        "queue://orders: 200 failures in a row, of 200 messages (DatabaseDown: connection refused): handling pauses, "
        "growing numbers of messages are tried at growing intervals, nothing is charged; if the messages are the "
        "cause and not a service, use errors=Classifier().retry(DatabaseDown, outage=False) or redelivery.breaker=off"
    )
    # A log without INFO shows the end of the outage.
    assert re.fullmatch(
        r".*the breaker has closed after 5[45]\d s; \d+ failures were not charged", others[-1]
    )


def test_a_named_outage_of_an_hour_charges_nobody(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """500 messages and an hour of failures that `trip` names: none is charged; the log reminds every ten minutes."""
    caplog.set_level(logging.WARNING, "redelivery")
    sent(twin, 500)
    service, connection = Service(), twin.connect(errors=Classifier().trip(DatabaseDown))
    twin.listen(connection, "orders", service)
    for _ in range(60):
        twin.advance(60)
    service.up = True
    twin.advance(15)
    eventually(twin, lambda: connection.report().accepted == 500)
    assert (connection.report().redelivered, connection.report().poisoned) == (0, 0)
    reminders = [line for line in lines(caplog, logging.WARNING) if "has been open for" in line]
    assert len(reminders) == 5


def test_bad_messages_beyond_what_may_wait_are_passed(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """More bad messages than may be parked are charged after ten minutes; then the good one behind them is handled."""
    caplog.set_level(logging.WARNING, "redelivery")
    sent(twin, 300)
    twin.broker.send("orders", "good")
    service, connection = Service(), twin.connect("?redelivery.maxParked=250", policies=ONCE)
    handled: list[str] = []

    def handle(message: Message) -> None:
        if message.text != "good":
            service(message)
        handled.append(message.text)

    twin.listen(connection, "orders", handle)
    for _ in range(9):
        twin.advance(60)
    assert not handled
    for _ in range(4):
        twin.advance(30)
    eventually(twin, lambda: handled == ["good"] and connection.report().poisoned == 300)
    charged = [line for line in lines(caplog, logging.WARNING) if "open for too long" in line]
    assert len(charged) == 1


@pytest.mark.parametrize(
    ("options", "arguments"),
    [("?redelivery.breaker=off", {}), ("", {"breaker": None}), ("?redelivery.breaker=named", {})],
)
def test_without_a_breaker_the_policy_alone_decides(
    twin: Twin, options: str, arguments: dict[str, Any]
) -> None:
    """Without a breaker, or with one for named exceptions only, all messages are dead-lettered by the policy."""
    sent(twin, 250)
    connection = twin.connect(options, policies=ONCE, **arguments)
    twin.listen(connection, "orders", Service())
    eventually(twin, lambda: connection.report().poisoned == 250)
    assert connection.report().spared == 0


def test_thirty_bad_messages_are_dead_lettered_as_the_policy_says(twin: Twin) -> None:
    """Thirty bad messages are dead-lettered by the policy: with default options that is no outage."""
    sent(twin, 30)
    connection = twin.connect()
    twin.listen(connection, "orders", Service())
    twin.advance(10)
    eventually(twin, lambda: connection.report().poisoned == 30)
    assert (connection.report().redelivered, connection.report().spared) == (180, 0)


def test_a_told_exception_opens_it_after_three(twin: Twin) -> None:
    """An exception that `trip` names is never charged, and opens a listener's breaker after three failures."""
    sent(twin, 3)
    connection = twin.connect(errors=Classifier().trip(DatabaseDown))
    consumer = twin.call(connection.consumer("orders"))
    for _ in range(3):
        assert consumer.breaker_state == "closed"
        message = twin.receive(consumer)
        assert message is not None
        message.fail(DatabaseDown("down"))
        assert (message.outcome, message.redelivery_count) == ("spared", 0)
    assert consumer.breaker_state == "open"
    assert twin.receive(consumer) is None
    twin.advance(1.2)
    message = twin.receive(consumer)
    assert message is not None
    assert consumer.breaker_state == "probing"
    message.accept()
    assert consumer.breaker_state == "ramp"


@pytest.mark.parametrize("error", [ValueError, KeyError, TypeError, Poison])
def test_what_is_about_a_value_never_opens_it(twin: Twin, error: type[Exception]) -> None:
    """Errors about values, and `Poison`, never open the breaker: none of 300 failures is spared."""
    sent(twin, 300)
    connection = twin.connect(policies=ONCE)
    twin.listen(connection, "orders", Service(error))
    eventually(twin, lambda: connection.report().poisoned == 300)
    assert connection.report().spared == 0


@pytest.mark.parametrize(
    ("error", "errors", "spared"),
    [
        (DatabaseDown, Classifier().retry(DatabaseDown, outage=False), 0),
        (ValueError, Classifier().retry(ValueError, outage=True), 1),
        (ValueError, Classifier().retry(ValueError), 0),
        (DatabaseDown, Classifier().retry(OSError), 1),
    ],
)
def test_a_registered_type_may_be_an_outage_or_not(
    twin: Twin, error: type[Exception], errors: Classifier, spared: int
) -> None:
    """`retry(…, outage=False)` charges always; `outage=True` makes an error about a value count."""
    sent(twin, 8)
    connection = twin.connect(errors=errors, breaker=SMALL)
    service = Service(error)
    twin.listen(connection, "orders", service)
    twin.advance(0.1)
    eventually(twin, lambda: len(service.calls) >= 4)
    assert connection.report().spared == spared


def stopping(message: Message) -> None:
    raise DatabaseDown("down")


async def run_async(broker: MemoryBroker, **options: Any) -> None:
    async with redelivery.connect_async(broker.uri, breaker=STOPS, **options) as connection:
        connection.listen("orders", stopping)
        await connection.run(until_idle=0.05)


def run(broker: MemoryBroker, **options: Any) -> None:
    with redelivery.connect(broker.uri, breaker=STOPS, **options) as connection:
        connection.listen("orders", stopping)
        connection.run(until_idle=0.05)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_it_may_stop_the_consumer(asynchronous: bool) -> None:
    """With `at_maximum="stop"` `run` raises BreakerOpen; the messages stay on the broker, uncharged."""
    with MemoryBroker(clock=ManualClock(auto_advance=True)) as broker:
        for number in range(10):
            broker.send("orders", str(number))
        with pytest.raises(BreakerOpen, match=r"nothing has succeeded for \d+ s: DatabaseDown: down"):
            asyncio.run(run_async(broker)) if asynchronous else run(broker)
        assert len(broker.messages("orders")) == 10
        assert not broker.dead_letters()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_run_that_ends_by_itself_does_not_wait_for_a_service_for_ever(
    monkeypatch: pytest.MonkeyPatch, asynchronous: bool
) -> None:
    """A breaker that is open over a named failure for a minute ends `run(until_idle=…)` with BreakerOpen."""
    named = Classifier().trip(DatabaseDown)
    monkeypatch.setattr(sys.modules[__name__], "STOPS", SMALL)
    with MemoryBroker(clock=ManualClock(auto_advance=True)) as broker:
        for number in range(10):
            broker.send("orders", str(number))
        with pytest.raises(
            BreakerOpen,
            match=r"succeeded for \d+ s: DatabaseDown: down; a run that ends by itself does not wait longer",
        ):
            asyncio.run(run_async(broker, errors=named)) if asynchronous else run(broker, errors=named)
        assert len(broker.messages("orders")) == 10


@pytest.mark.parametrize("decision", [Discard, Poison])
def test_a_run_over_decided_messages_ends_normally(decision: type[Exception]) -> None:
    """When each message is discarded or poisoned after an outage, nothing is left: the run ends without an error."""
    calls, clock = itertools.count(), ManualClock(auto_advance=True)

    def handle(message: Message) -> None:
        raise (DatabaseDown if next(calls) < 3 else decision)(message.text)

    with MemoryBroker(clock=clock) as broker:
        for number in range(10):
            broker.send("orders", str(number))
        errors = Classifier().trip(DatabaseDown)
        with redelivery.connect(broker.uri, errors=errors, clock=clock) as connection:
            connection.listen("orders", handle, workers=4)
            report = connection.run(until_idle=0.05)
        assert report.discarded + report.poisoned == 10
        assert not broker.messages("orders")


@pytest.mark.parametrize("ledger", [False, True])
def test_a_consumer_for_each_request_tries_no_message_for_ever(tmp_path: Path, *, ledger: bool) -> None:
    """Twenty uncharged tries beside successes are the most, also if each consumer sees one message only."""
    clock, tries = ManualClock(auto_advance=True), 0
    options = f"?redelivery.ledger=sqlite:///{tmp_path}/ledger.db" if ledger else ""
    errors = Classifier().trip(DatabaseDown)
    with (
        MemoryBroker(clock=clock) as broker,
        redelivery.connect(broker.uri + options, errors=errors, policies=ONCE, clock=clock) as connection,
    ):
        broker.send("orders", "bad")
        while not broker.dead_letters():
            broker.send("orders", "good")
            for _ in range(2):
                with connection.consumer("orders") as consumer:
                    message = consumer.receive(timeout=400)
                    if message is not None and message.text == "bad":
                        tries += 1
                        assert tries < 30
                        message.fail(DatabaseDown("down"))
                    elif message is not None:
                        message.accept()
    # The first failure was beside no success; the policy allows two charged ones.
    assert 20 <= tries <= 23


def test_delayed_copies_of_a_few_bad_messages_are_not_many_messages() -> None:
    """With `scheduler=broker` thirty bad messages are dead-lettered as the policy says: their copies are no others."""
    clock = ManualClock()
    with MemoryBroker(clock=clock) as broker:
        for number in range(30):
            broker.send("orders", str(number))
        uri = f"{broker.uri}?redelivery.scheduler=broker"
        with redelivery.connect(uri, clock=clock) as connection:
            connection.listen("orders", Service())
            connection.start()
            for _ in range(10):
                clock.advance(1)
            report = connection.report()
        assert (report.spared, len(broker.dead_letters())) == (0, 30)


def test_an_open_breaker_is_live_and_not_ready(twin: Twin) -> None:
    """An open breaker is live and not ready; `health` has the cause; `ready_when="connected"` ignores it."""
    sent(twin, 4)
    connection = twin.connect(breaker=SMALL)
    assert connection.health().consumers == ()
    twin.listen(connection, "orders", Service())
    eventually(twin, lambda: connection.report().spared == 1)
    twin.advance(0.5)
    health = connection.health()
    (consumer,) = health.consumers
    assert (health.live, health.ready, consumer.breaker, consumer.parked) == (True, False, "open", 4)
    (reason,) = health.reasons
    assert re.fullmatch(r"queue://orders: breaker open for \d s \(DatabaseDown: connection refused\)", reason)
    assert 0.5 <= consumer.oldest_parked_s < 10
    assert connection.health("connected").ready


def test_a_consumer_may_have_a_breaker_of_its_own(twin: Twin) -> None:
    """`breaker=` of a consumer replaces the connection's breaker; None switches it off."""
    connection = twin.connect("?redelivery.breakerFailures=4")
    sent(twin, 6)
    consumer = twin.call(connection.consumer("orders", breaker=None))
    for _ in range(6):
        message = twin.receive(consumer)
        assert message is not None
        message.fail(DatabaseDown("down"))
    assert consumer.breaker_state == "closed"
    assert connection.report().redelivered == 6


@pytest.mark.parametrize("mode", ["client", "transacted"])
def test_sessions_that_settle_by_themselves_have_none(twin: Twin, mode: str) -> None:
    """A session that settles messages together refuses `breaker=`, and spares no failure."""
    connection = twin.connect()
    session = connection.session(mode)
    with pytest.raises(ConfigurationError, match=f"breaker=: in a session of mode '{mode}'"):
        twin.call(session.consumer("orders", breaker=SMALL))


@pytest.mark.parametrize(
    ("options", "arguments", "text"),
    [
        ("", {"breaker": 3}, "breaker= must be a redelivery.Breaker, or None"),
        ("", {"breaker": Breaker}, r"did you mean redelivery.Breaker\(\)"),
        ("?redelivery.breaker=named", {"breaker": SMALL}, "give one of them"),
        (
            "?redelivery.breaker=off&redelivery.breakerFailures=1",
            {},
            "off contradicts redelivery.breakerFailures",
        ),
        (
            "?redelivery.breaker=named&redelivery.breakerFailures=9",
            {},
            "contradicts redelivery.breakerFailures",
        ),
        ("?redelivery.breakerFailure=9", {}, "did you mean 'redelivery.breakerFailures'"),
        ("?redelivery.breakerMaximumOpen=-1", {}, "redelivery.breakerMaximumOpen must be"),
    ],
)
def test_what_makes_no_sense_is_refused(
    twin: Twin, options: str, arguments: dict[str, Any], text: str
) -> None:
    """A breaker that makes no sense is refused before any I/O, with the option's name."""
    with pytest.raises(ConfigurationError, match=text):
        twin.make(options, **arguments)


def test_what_is_spared_leaves_the_ledger_as_it_was(twin: Twin, tmp_path: Path) -> None:
    """With a ledger the next process knows each charged failure, and no spared one."""
    sent(twin, 4)
    ledger = f"?redelivery.ledger=sqlite:///{tmp_path}/ledger.db"
    connection = twin.connect(ledger, breaker=SMALL)
    consumer = twin.call(connection.consumer("orders"))
    for _ in range(4):
        message = twin.receive(consumer)
        assert message is not None
        message.fail(DatabaseDown("down"))
    assert connection.report().spared == 1
    twin.leave(connection)
    consumer = twin.call(twin.connect(ledger, breaker=None).consumer("orders"))
    twin.advance(10)
    found = [message.redelivery_count for _ in range(4) if (message := twin.receive(consumer)) is not None]
    assert found == [1, 1, 1, 0]


def test_what_is_spared_is_held_here_though_the_broker_holds_what_waits(twin: Twin) -> None:
    """With `scheduler=broker` a charged failure makes a delayed copy; a spared one is parked here."""
    sent(twin, 3)
    connection = twin.connect("?redelivery.scheduler=broker", errors=Classifier().trip(DatabaseDown))
    consumer = twin.call(connection.consumer("orders"))
    for _ in range(3):
        message = twin.receive(consumer)
        assert message is not None
        message.fail(DatabaseDown("down"))
    assert consumer.parked == 3
    assert sum(held.delivered for held in twin.broker.messages("orders")) == 3
