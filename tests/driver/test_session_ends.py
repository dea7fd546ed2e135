"""Sessions that are rolled back, closed or interrupted by others, and what a session keeps."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.driver.seats import POLICY, pull, seated
from tests.driver.twins import eventually

from redelivery import AdapterError, Classifier, ConfigurationError, TransportError

if TYPE_CHECKING:
    from tests.driver.twins import Twin


def test_a_commit_after_a_drain_is_no_success(twin: Twin) -> None:
    """A drain drops a session's sends: its next commit raises, and the one after that is a new transaction."""
    connection, session, _ = seated(twin, "transacted")
    twin.call(session.send("out", "dropped"))
    twin.call(connection.drain(0))
    twin.call(session.send("out", "of the same transaction"))
    with pytest.raises(TransportError, match="rolled back when its connection was drained"):
        twin.call(session.commit())
    assert twin.broker.depth("out") == 0
    twin.call(session.send("out", "new"))
    twin.call(session.commit())
    assert [stored.body for stored in twin.broker.messages("out")] == [b"new"]


def test_one_listener_to_a_session_that_settles_together(twin: Twin) -> None:
    """A second listener of a session that settles messages together is refused."""
    connection = twin.connect("", policies=POLICY)
    for mode in ("client", "transacted"):
        session = connection.session(mode)
        session.listen("a", twin.handler(lambda _: None))
        with pytest.raises(ConfigurationError, match=f"a {mode} session has one listener"):
            session.listen("b", twin.handler(lambda _: None))
    session = connection.session("individual")
    for destination in ("a", "b"):
        session.listen(destination, twin.handler(lambda _: None))


def test_charge_is_any_iterable_of_messages(twin: Twin) -> None:
    """`charge=` may be an iterator; a single message is refused."""
    _, session, consumer = seated(twin, "transacted", "1")
    (message,) = pull(twin, consumer, 1)
    with pytest.raises(ConfigurationError, match="charge= must be a list of messages"):
        twin.call(session.rollback(charge=message))
    twin.call(session.rollback(charge=iter([message])))
    twin.advance(5)
    (again,) = pull(twin, consumer, 1)
    assert again.delivery_count == 2


def test_closing_a_session_ends_its_listeners(twin: Twin) -> None:
    """Closing a session ends its listeners, started or not: nothing could settle their messages."""
    connection = twin.connect("", policies=POLICY)
    seen: list[Any] = []
    for start in (False, True):
        session = connection.session("transacted")
        session.listen("q", twin.handler(seen.append))
        if start:
            twin.call(connection.start())
        twin.call(session.close(timeout=timedelta(seconds=1)))
    twin.call(connection.start())
    twin.broker.send("q", "1")
    twin.advance(1)
    assert not connection._driver.dispatchers
    assert not seen


def test_a_commit_that_is_interrupted_is_settled_by_its_answer(
    twin: Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The messages of an interrupted commit are settled when the broker answers."""
    connection, session, consumer = seated(twin, "transacted", "1")
    pull(twin, consumer, 1)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    for module in ("session.answer_by", "async_session.answer_on_loop"):
        monkeypatch.setattr(f"redelivery.{module}", interrupted)
    with pytest.raises(KeyboardInterrupt):
        twin.call(session.commit())
    eventually(twin, lambda: connection.report().accepted == 1)


def test_what_cannot_be_written_is_refused(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that the protocol cannot carry is an AdapterError of the commit; received messages are charged."""
    connection, session, consumer = seated(twin, "transacted", "1")
    pull(twin, consumer, 1)
    twin.call(session.send("out", "x"))

    def overflows(_: object) -> None:
        raise OverflowError("int too big to convert")

    with monkeypatch.context() as patch:
        patch.setattr(connection._driver._adapter, "execute", overflows)
        for call in (session.commit, lambda: connection.send("out", "x")):
            with pytest.raises(AdapterError, match="cannot be written: OverflowError: int too big"):
                twin.call(call())
    twin.advance(5)
    (again,) = pull(twin, consumer, 1)
    assert again.delivery_count == 2


def test_a_close_that_is_cancelled_ends_all_consumers(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A close that is cancelled still ends all consumers of the session."""
    if not twin.asynchronous:
        return
    connection, session, _ = seated(twin, "transacted")
    twin.call(session.consumer("r"))
    finish, begun, cancelled = session._finish, threading.Event(), threading.Event()

    def held_up(*arguments: Any) -> None:
        begun.set()
        cancelled.wait()
        finish(*arguments)

    monkeypatch.setattr(session, "_finish", held_up)

    async def cancel() -> None:
        closing = asyncio.ensure_future(session.close())
        await asyncio.to_thread(begun.wait)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing

    twin.runner.run(cancel())
    cancelled.set()
    eventually(twin, lambda: not connection._driver.dispatchers)


def test_what_is_closed_is_not_kept(twin: Twin) -> None:
    """Closed sessions and consumers are not kept, though a program may make one for each request."""
    connection = twin.connect("", policies=POLICY)
    lasting = connection.session("client")
    for _ in range(10):
        twin.call(connection.session("transacted").close())
        twin.call(twin.call(lasting.consumer("q")).close())
    assert len(connection._sessions) <= 2
    assert len(lasting._dispatchers) <= 1


def test_a_classifier_has_no_effect_in_transactions(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """A connection's classifier is ignored in a transacted session, with one warning; a consumer's is refused."""
    connection: Any = twin.connect("", errors=Classifier().poison(ValueError))
    connection.session("client")
    assert "is ignored in a transacted session" not in caplog.text
    for _ in range(2):
        session = connection.session("transacted")
        with pytest.raises(ConfigurationError, match="errors=: in a transacted session"):
            twin.call(session.consumer("q", errors=Classifier()))
    assert caplog.text.count("errors= of the connection is ignored in a transacted session") == 1


def test_a_session_outlives_its_connection(twin: Twin) -> None:
    """Calls of a session on a closed connection are refused; its close is quiet, its message is redelivered."""
    connection, session, consumer = seated(twin, "transacted", "1")
    pull(twin, consumer, 1)
    twin.call(connection.close())
    for call in (session.commit, session.rollback, lambda: session.send("out", "x")):
        with pytest.raises(ConfigurationError, match="the connection is closed"):
            twin.call(call())
    twin.call(session.close())
    other = twin.connect("", policies=POLICY)
    assert twin.receive(twin.call(other.consumer("q"))).text == "1"


def test_a_fault_in_a_commit_does_not_hang_its_closing(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault in an adapter's commit is an AdapterError, and closing does not wait for an answer."""
    connection, session, consumer = seated(twin, "transacted", "1")
    pull(twin, consumer, 1)

    def faulty(_: object) -> None:
        raise KeyError("an unknown type")

    with monkeypatch.context() as patch:
        patch.setattr(connection._driver._adapter, "execute", faulty)
        with pytest.raises(AdapterError, match="cannot be written: KeyError"):
            twin.call(session.commit())
    assert session._state.activity.wait_quiet(0, None) is None


def test_two_sessions_of_a_connection_settle_apart(twin: Twin) -> None:
    """A commit, rollback or close of one session does not affect another of the connection."""
    connection, first, consumer = seated(twin, "transacted", "1", "2")
    second = connection.session("transacted")
    pull(twin, consumer, 1)
    others = twin.call(second.consumer("r"))
    twin.broker.send("r", "3")
    (mine,) = pull(twin, others, 1)
    twin.call(second.send("out", "x"))
    twin.call(first.commit())
    twin.call(first.close())
    assert (mine.outcome, twin.broker.depth("out")) == (None, 0)
    twin.call(second.commit())
    assert (mine.outcome, twin.broker.depth("out"), twin.broker.depth("r")) == ("accepted", 1, 0)


def test_a_cancelled_commit_and_receive_lose_nothing(twin: Twin) -> None:
    """A cancelled `receive` has taken nothing; a cancelled commit that waits for a connection has committed nothing."""
    if not twin.asynchronous:
        return
    connection, session, consumer = seated(twin, "transacted")

    async def cancelled(call: Any) -> None:
        task = asyncio.ensure_future(call)
        await asyncio.wait([task], timeout=0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    twin.runner.run(cancelled(consumer.receive()))
    twin.broker.send("q", "1")
    twin.advance(0)
    pull(twin, consumer, 1)
    twin.call(session.commit())
    twin.call(session.send("out", "x"))
    twin.broker.refuse_connections()
    twin.broker.cut()
    twin.runner.run(cancelled(session.commit()))
    twin.broker.accept_connections()
    twin.advance(60)
    assert twin.broker.depth("out") == 0
    twin.call(session.commit())
    assert (twin.broker.depth("out"), connection.report().accepted) == (1, 1)
