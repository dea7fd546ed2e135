"""Poison messages that cannot be copied: they are set aside, with a log line and a count in the report."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.driver.seats import seated
from tests.driver.twins import body_of

import redelivery
import redelivery_memory.adapter
from redelivery import AdapterError, RedeliveryPolicy, RedeliveryPolicyMap, SqliteLedger
from redelivery.core.delivery import Cause
from redelivery.core.events import Poisoned
from redelivery.driver.port import ConnectionPort

if TYPE_CHECKING:
    from pathlib import Path

    from tests.driver.twins import Twin

ONCE = RedeliveryPolicyMap(default=RedeliveryPolicy(maximum_redeliveries=0))


@pytest.fixture(autouse=True)
def no_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take poison acknowledgement and release from the broker, as Artemis over STOMP has neither."""
    able = replace(
        redelivery_memory.CAPABILITIES, poison_persistent=False, poison_non_persistent=False, release=False
    )
    monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", able)


def sent(twin: Twin) -> None:
    """Send a message whose body is incomplete, between two others."""
    twin.broker.send("orders", "a")
    twin.broker.send("orders", "part", body_kind="partial")
    twin.broker.send("orders", "b")


def lines(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    """Return the warnings with a text."""
    return [one.getMessage() for one in caplog.records if text in one.getMessage()]


def test_a_listener_goes_on(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """Other messages are handled; the log names the message once and then each hour, and it stays on the broker."""
    connection, seen = twin.connect(policies=ONCE), []

    def handle(message: redelivery.Message) -> None:
        seen.append(message.text)
        if message.text == "part":
            raise ValueError("no such order")

    sent(twin)
    with caplog.at_level(logging.WARNING, "redelivery"):
        twin.listen(connection, "orders", handle)
        twin.advance(1)
        assert sorted(seen) == ["a", "b", "part"]
        assert connection.report() == redelivery.Report(accepted=2, set_aside=1)
        (line,) = lines(caplog, "set aside, and")
        assert all(said in line for said in ("queue://orders: ", "consume this destination over AMQP"))
        assert len(lines(caplog, "(ValueError: no such order); poison, and set aside")) == 1
        for hours in (1, 2):
            twin.advance(3600)
            assert len(lines(caplog, "still set aside")) == hours
        twin.broker.cut()
        twin.advance(1)
    assert (sorted(seen), len(lines(caplog, "set aside, and"))) == (["a", "b", "part"], 1)
    assert connection.report().set_aside == 1
    twin.leave(connection)
    assert [held.text for held in twin.broker.messages("orders")] == ["part"]


def test_another_process_with_the_ledger_does_not_handle_it(twin: Twin, tmp_path: Path) -> None:
    """With a ledger another process does not handle the message: its verdict is written down."""
    sent(twin)
    for number in range(2):
        ledger = SqliteLedger(tmp_path / "ledger.db")
        connection = twin.connect(policies=ONCE, ledger=ledger)
        consumer = twin.call(connection.consumer("orders"))
        while (message := twin.receive(consumer)) is not None:
            assert number == 0
            if message.text == "part":
                message.fail("bad")
            else:
                message.accept()
        assert connection.report().set_aside == 1
        twin.leave(connection)
    assert [held.text for held in twin.broker.messages("orders")] == ["part"]


def test_the_bound_is_the_uris_or_the_consumers(twin: Twin) -> None:
    """`maximum_set_aside=` of a consumer replaces the URI's; with 0 the first such message stops the consumer."""
    connection = twin.connect("?redelivery.maximumSetAside=0", policies=ONCE)
    consumer = twin.call(connection.consumer("orders", maximum_set_aside=1))
    for number in range(2):
        twin.broker.send("orders", f"part-{number}", body_kind="partial")
    twin.receive(consumer).fail("bad")
    twin.receive(consumer).fail("bad")
    with pytest.raises(AdapterError, match=r"1 others are set aside already.*maximumSetAside"):
        twin.receive(consumer)
    assert connection.report().set_aside == 1


def test_a_bound_that_is_none_is_refused(twin: Twin) -> None:
    """A limit that makes no sense is refused before any I/O, with the name of the argument."""
    connection = twin.connect()
    with pytest.raises(redelivery.ConfigurationError, match="maximum_set_aside must be a whole number of 0"):
        twin.call(connection.consumer("orders", maximum_set_aside=-1))


def test_a_transaction_has_no_part_in_it(twin: Twin) -> None:
    """A commit accepts the other messages, and the one that is set aside stays unacknowledged."""
    connection, session, consumer = seated(twin, "transacted")
    twin.broker.send("q", "part", body_kind="partial")
    for _ in range(3):
        assert body_of(twin.receive(consumer, 10)) == "part"
        twin.call(session.rollback())
    twin.broker.send("q", "a")
    assert body_of(twin.receive(consumer, 10)) == "a"
    twin.call(session.commit())
    assert connection.report() == redelivery.Report(accepted=1, redelivered=2, set_aside=1)
    assert [held.text for held in twin.broker.messages("q")] == ["part"]


def test_a_port_stops_as_ever(twin: Twin) -> None:
    """A port's consumer stops at such a message, as for Spark and the dead-letter tools."""
    twin.broker.send("orders", "part", body_kind="partial")
    with ConnectionPort(f"{twin.broker.uri}?redelivery.maximumSetAside=5", clock=twin.clock) as port:
        consumer = port.subscribe(port.plan("orders", {}))
        delivery = consumer.take(None, 0)
        assert delivery is not None
        consumer.settle(delivery, Poisoned(delivery, Cause("bad")))
        with pytest.raises(AdapterError, match="over AMQP"):
            consumer.take(None, 0)
