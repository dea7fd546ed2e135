"""Commits while there is no connection, or with a broker that does not answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.driver.seats import POLICY, pull, seated
from tests.driver.twins import eventually

from redelivery import TransactionRolledBack, TransportError
from redelivery.driver.session.session_state import COMMIT_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.driver.twins import Twin


def test_a_commit_waits_for_the_connection(twin: Twin) -> None:
    """A transaction without received messages is committed on the next connection."""
    connection = twin.connect("", policies=POLICY)
    session = connection.session("transacted")
    twin.call(session.send("out", "x"))
    twin.broker.refuse_connections()
    twin.broker.cut()
    twin.clock.call_later(5, twin.broker.accept_connections)
    twin.call(session.commit(), over=6)
    assert twin.broker.depth("out") == 1


def test_a_transaction_of_a_lost_connection_is_rolled_back(twin: Twin) -> None:
    """A transaction with messages of a lost connection is rolled back; `commit` says so after the reconnect."""
    _, session, consumer = seated(twin, "transacted", "1")
    pull(twin, consumer, 1)
    twin.call(session.send("out", "x"))
    twin.broker.refuse_connections()
    twin.broker.cut()
    twin.clock.call_later(5, twin.broker.accept_connections)
    before = twin.clock.monotonic()
    with pytest.raises(
        TransactionRolledBack, match="1 of its 1 messages came over a connection that is lost"
    ):
        twin.call(session.commit(), over=6)
    assert twin.clock.monotonic() >= before + 5
    twin.advance(1)
    (again,) = pull(twin, consumer, 1)
    assert again.delivery_count == 1
    twin.call(session.commit())
    assert (twin.broker.depth("q"), twin.broker.depth("out")) == (0, 0)


def test_a_commit_does_not_wait_for_ever(twin: Twin) -> None:
    """A commit that gets no connection within its time-out rolls back, and says so."""
    connection = twin.connect("", policies=POLICY)
    session = connection.session("transacted")
    for given, limit in (({}, COMMIT_TIMEOUT), ({"timeout": 5}, 5)):
        twin.call(session.send("out", "x"))
        twin.broker.refuse_connections()
        twin.broker.cut()
        before = twin.clock.monotonic()
        with pytest.raises(TransactionRolledBack, match="not connected"):
            twin.call(session.commit(**given), over=limit)
        assert twin.clock.monotonic() == pytest.approx(before + limit)
        twin.broker.accept_connections()
        twin.advance(60)
        twin.call(session.commit())  # empty
        assert twin.broker.depth("out") == 0


def test_a_broker_that_answers_nothing_is_not_asked_in_a_hot_loop(
    twin: Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past the limit of abandoned sends received messages are redelivered later each time, and uncharged."""
    monkeypatch.setattr("redelivery.driver.connection.sends.MOST_ABANDONED", 100)
    _, session, consumer = seated(twin, "transacted", "1", options="?redelivery.maximumDeferrals=2")
    twin.broker.stall_confirmations()
    twin.call(session.send("out", b"x" * 100))
    with pytest.raises(TransportError, match="may still carry it out"):
        twin.call(session.commit(timeout=1), over=1)
    delays = []
    for _ in range(7):
        before = twin.clock.monotonic()
        message = twin.receive(consumer)
        while message is None:
            twin.advance(0.5)
            message = twin.receive(consumer)
        delays.append(twin.clock.monotonic() - before)
        assert message.delivery_count == 1
        with pytest.raises(TransactionRolledBack, match="nothing was sent"):
            twin.call(session.commit())
    assert delays == [0, 1, 2, 4, 8, 16, 30]
    twin.broker.resume_confirmations()
    twin.advance(30)
    pull(twin, consumer, 1)
    twin.call(session.commit())
    assert twin.broker.depth("q") == 0


def test_a_handler_that_is_interrupted_in_its_commit(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message whose handler is interrupted in its commit is settled by the broker's answer, not released."""
    connection = twin.connect("", policies=POLICY)
    session: Any = connection.session("transacted")
    done: list[str] = []
    connection._driver._adapter.execute = noting(connection._driver._adapter.execute, done)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    async def cancelled(_: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_soon(task.cancel)
        await session.commit()

    twin.broker.stall_confirmations()
    monkeypatch.setattr("redelivery.session.answer_by", interrupted)
    session.listen("work", cancelled if twin.asynchronous else lambda _: session.commit())
    twin.broker.send("work", "1")
    twin.call(connection.start())
    eventually(twin, lambda: "Commit" in done)
    twin.advance(1)
    assert "Release" not in done
    twin.broker.resume_confirmations()
    eventually(twin, lambda: connection.report().accepted == 1)


def noting(execute: Callable[[Any], Any], names: list[str]) -> Callable[[Any], Any]:
    """Record which commands are executed."""

    def noted(commands: Any) -> Any:
        names.extend(type(command).__name__ for command in commands)
        return execute(commands)

    return noted
