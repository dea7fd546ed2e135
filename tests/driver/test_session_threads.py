"""A session is for one thread: calls of other threads that are refused, and what closing waits for."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.driver.seats import POLICY, pull, seated

from redelivery import ConfigurationError, TransportError
from redelivery.message import message_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.driver.twins import Twin

PATIENCE = 10.0


class Held:
    """Handler that keeps its message until the test lets it go on, then does what the test gives."""

    def __init__(self, twin: Twin, connection: Any, session: Any, *, then: Callable[[Any], Any]) -> None:
        self.began, self.go_on, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.errors: list[Exception] = []
        self._throttle = asyncio.Event()
        self._then = then
        self._twin = twin
        session.listen("work", self._async if twin.asynchronous else self._sync)
        twin.broker.send("work", "in hand")
        twin.call(connection.start())
        self._wait(self.began)

    def _sync(self, message: Any) -> None:
        self.began.set()
        assert self.go_on.wait(PATIENCE)
        try:
            self._then(message)
        except Exception as error:  # noqa: BLE001 - looked at by the test
            self.errors.append(error)
        self.ended.set()

    async def _async(self, message: Any) -> None:
        self.began.set()
        await self._throttle.wait()
        try:
            # In a task of its own, as asyncio.wait_for makes one: it still belongs to the handler.
            if asyncio.iscoroutine(result := self._then(message)):
                await asyncio.ensure_future(result)
        except Exception as error:  # noqa: BLE001 - looked at by the test
            self.errors.append(error)
        self.ended.set()

    def _wait(self, event: threading.Event) -> None:
        for _ in range(1000):
            if self._twin.asynchronous:  # the clock of threads would wait for the handler
                self._twin.advance(0)
            if event.wait(0.01):
                return
        raise AssertionError("this has not happened")

    def finish(self) -> None:
        self.go_on.set()
        self._throttle.set()
        self._wait(self.ended)
        self._twin.advance(0)


def test_only_the_handler_settles_what_it_has_in_hand(twin: Twin) -> None:
    """Calls that settle, or send in a transaction, from another thread or task than the handler's are refused."""
    for mode, calls in (("transacted", ("commit", "rollback")), ("client", ("acknowledge", "recover"))):
        connection = twin.connect("", policies=POLICY)
        session: Any = connection.session(mode)
        kept: list[Any] = []

        def finish(message: Any, session: Any = session, mode: str = mode, kept: Any = kept) -> Any:
            kept.append(message.outcome)
            return session.commit() if mode == "transacted" else message.accept()

        held = Held(twin, connection, session, then=finish)
        for call in calls:
            with pytest.raises(ConfigurationError, match=rf"{call}\(\): a handler of this session runs"):
                twin.call(getattr(session, call)())
        if mode == "transacted":
            with pytest.raises(ConfigurationError, match=r"send\(\): a handler of this session runs"):
                twin.call(session.send("out", "x"))
        else:
            other = next(iter(session._state._given.values()))
            with pytest.raises(ConfigurationError, match=r"accept\(\): a handler of this session runs"):
                other.accept()
        held.finish()
        assert kept == [None]
        assert held.errors == []
        assert connection.report().accepted == 1
        assert twin.broker.depth("out") == 0
        twin.leave(connection)


def test_a_plain_handler_on_a_loop_settles(twin: Twin) -> None:
    """A plain handler in the pool settles its session, also by tasks that it makes on the loop."""
    if not twin.asynchronous:
        return
    connection = twin.connect("", policies=POLICY)
    session: Any = connection.session("transacted")
    ended = threading.Event()

    def handle(message: Any) -> None:
        asyncio.run_coroutine_threadsafe(session.send("out", message.text), connection._loop).result(PATIENCE)
        asyncio.run_coroutine_threadsafe(session.commit(), connection._loop).result(PATIENCE)
        ended.set()

    session.listen("work", handle)
    twin.broker.send("work", "x")
    twin.call(connection.start())
    for _ in range(1000):
        twin.advance(0)
        if ended.wait(0.01):
            break
    assert (twin.broker.depth("work"), twin.broker.depth("out")) == (0, 1)


def test_recover_leaves_what_handlers_have_in_hand(twin: Twin) -> None:
    """In modes whose handlers settle by their end, `recover` leaves messages of running handlers alone."""
    connection = twin.connect("", policies=POLICY)
    session: Any = connection.session("individual")
    held = Held(twin, connection, session, then=lambda _: None)
    twin.call(session.recover())
    held.finish()
    twin.advance(0)
    assert (connection.report().accepted, connection.report().redelivered) == (1, 0)


def test_no_receive_beside_a_listener(twin: Twin) -> None:
    """A session with a listener refuses `receive` and `consumer`, as in JMS."""
    for mode in ("client", "individual", "transacted"):
        _, session, consumer = seated(twin, mode, "1")
        session.listen("work", twin.handler(lambda _: None))
        with pytest.raises(ConfigurationError, match=r"receive\(\): its session has a listener"):
            twin.receive(consumer)
        with pytest.raises(ConfigurationError, match=r"consumer\(\): this session has a listener"):
            twin.call(session.consumer("r"))
        twin.call(session.close())


def test_close_waits_for_the_handler(twin: Twin) -> None:
    """`close` of any thread waits for the handler: its commit before the time-out is done, and nothing runs twice."""
    connection = twin.connect("", policies=POLICY)
    session: Any = connection.session("transacted")
    held = Held(twin, connection, session, then=lambda _: session.commit())
    closed = closing(twin, session)
    held.finish()
    closed()
    assert held.errors == []
    assert session.closed
    assert (twin.broker.depth("work"), connection.report().accepted) == (0, 1)


def test_close_says_that_a_handler_still_runs(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """`close` ends the session after its time-out: the handler's commit is refused, its message is redelivered."""
    connection = twin.connect("", policies=POLICY)
    session: Any = connection.session("transacted")
    held = Held(twin, connection, session, then=lambda _: session.commit())
    with caplog.at_level(logging.WARNING, "redelivery"):
        twin.call(session.close(timeout=0.01))
    assert "a handler still runs after 0.01 s" in caplog.text
    held.finish()
    assert "the session is closed" in str(held.errors)
    assert twin.broker.depth("work") == 1


def test_a_handler_closes_its_own_session(twin: Twin) -> None:
    """A handler that closes its own session does not wait for itself; uncommitted messages are rolled back."""
    connection = twin.connect("", policies=POLICY)
    session: Any = connection.session("transacted")
    held = Held(twin, connection, session, then=lambda _: session.close(timeout=1000))
    held.finish()
    assert held.errors == []
    assert session.closed
    assert twin.broker.depth("work") == 1


def test_close_waits_for_a_commit_in_flight(twin: Twin) -> None:
    """`close` waits for a commit of another thread or task before its consumer ends."""
    connection, session, consumer = seated(twin, "transacted", "1")
    pull(twin, consumer, 1)
    twin.call(session.send("out", "x"))
    twin.broker.stall_confirmations()
    with pytest.raises(TransportError, match="did not answer the commit within 1 s"):
        twin.call(session.commit(timeout=1), over=1)
    closed = closing(twin, session)
    assert connection._driver.dispatchers, "it waits"
    twin.broker.resume_confirmations()
    closed()
    assert (connection.report().accepted, connection.report().stale) == (1, 0)


def test_close_says_that_a_commit_has_no_answer(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """`close` ends the session after its time-out, though a commit has no answer."""
    connection, session, consumer = seated(twin, "transacted", "1")
    pull(twin, consumer, 1)
    twin.broker.stall_confirmations()
    with pytest.raises(TransportError, match="did not answer the commit within 1 s"):
        twin.call(session.commit(timeout=1), over=1)
    with caplog.at_level(logging.WARNING, "redelivery"):
        twin.call(session.close(timeout=0.01))
    assert "the broker has not answered a commit within 0.01 s" in caplog.text
    assert not connection._driver.dispatchers
    twin.broker.resume_confirmations()


def test_the_connection_closes_after_a_commit_in_flight(twin: Twin) -> None:
    """Closing the connection waits for a commit: if interrupted, its outcome would be unknown."""
    connection, session, consumer = seated(twin, "transacted", "1")
    (message,) = pull(twin, consumer, 1)
    twin.broker.stall_confirmations()
    with pytest.raises(TransportError, match="did not answer the commit within 1 s"):
        twin.call(session.commit(timeout=1), over=1)
    resuming = threading.Timer(0.05, twin.broker.resume_confirmations)
    resuming.start()
    twin.call(connection.close())
    resuming.join()
    assert message.outcome == "accepted"


def closing(twin: Twin, session: Any) -> Callable[[], None]:
    """Begin to close a session elsewhere; return a function that waits for that."""
    began, error = threading.Event(), []

    def close() -> None:
        began.set()
        try:
            session.close(timeout=PATIENCE)
        except BaseException as caught:  # noqa: BLE001 - raised by the test's own thread
            error.append(caught)

    if twin.asynchronous:

        async def begin() -> Any:
            task = asyncio.ensure_future(session.close(timeout=PATIENCE))
            await asyncio.wait([task], timeout=0.01)
            return task

        task = twin.runner.run(begin())

        def end() -> None:
            async def wait() -> None:
                await asyncio.wait_for(task, PATIENCE)

            twin.runner.run(wait())

        return end
    thread = threading.Thread(target=close)
    thread.start()
    began.wait(PATIENCE)

    def joined() -> None:
        thread.join(PATIENCE)
        assert not thread.is_alive()
        assert error == []

    return joined


@pytest.mark.parametrize(("mode", "call"), [("transacted", "commit"), ("individual", "recover")])
def test_nothing_comes_between_a_handlers_end_and_what_it_came_to(twin: Twin, mode: str, call: str) -> None:
    """A call of another thread takes no message between its handler's end and its result."""
    if twin.asynchronous:
        return
    _, session, consumer = seated(twin, mode, "interrupted")
    dispatcher, activity = consumer._dispatcher, session._state.activity
    message: Any = message_for(dispatcher.take(None, 1.0), dispatcher)
    ended = activity.ended

    def between(one: Any) -> None:
        ended(one)
        other = threading.Thread(target=getattr(session, call))
        other.start()
        other.join(PATIENCE)

    activity.ended = between
    if mode == "transacted":
        message.give_back()  # as for a handler that SystemExit has ended
    else:
        dispatcher.settle(message.delivery, message.result(None))
    activity.ended = ended
    assert twin.broker.depth("q") == (mode == "transacted")
