"""Common base of `Session` and `AsyncSession`: all methods that do not wait."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redelivery.core.delivery import Cause
from redelivery.core.events import Failed
from redelivery.core.option_values import seconds
from redelivery.driver.connection.sends import end, observed_send, outgoing, time_limit
from redelivery.driver.listening import Listening
from redelivery.driver.session.session_state import KEPT, SessionState, checked_mode, in_doubt
from redelivery.errors import ConfigurationError, RedeliveryError, TransportError
from redelivery.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from datetime import timedelta

    from redelivery.clock import Clock
    from redelivery.driver.arguments import ListenOptions
    from redelivery.driver.connection.connection_driver import ConnectionDriver
    from redelivery.driver.connection.sends import SendOptions
    from redelivery.driver.consumer.dispatcher import Dispatcher
    from redelivery.driver.listening import HandlerRegistration
    from redelivery.driver.session.activity import Busy
    from redelivery.driver.session.session_state import Mode, SessionMessage
    from redelivery.message import Message
    from redelivery.settings import Settings

__all__ = ["CommitAttempt", "SessionBase", "SessionPort"]

_STILL: dict[Busy, str] = {
    "handler": "a handler still runs after",
    "commit": "the broker has not answered a commit within",
}


@dataclass(frozen=True, slots=True)
class CommitAttempt:
    """One commit without an answer yet. `future` ends with the broker's answer, and may be cancelled."""

    messages: list[SessionMessage]
    answer: Future[None]
    future: Future[None]
    deadline: float
    timeout: float


@dataclass(frozen=True, slots=True)
class SessionPort:
    """Parts of a connection that its sessions use; the callables are of a threaded or of an asyncio connection."""

    driver: ConnectionDriver
    clock: Clock
    settings: Settings
    check_open: Callable[[], None]
    subscribed: Callable[..., Any]
    listening: Callable[..., HandlerRegistration[Any]]
    send: Callable[..., Any]
    patience: Callable[[float], float]


class SessionBase(Listening):
    """Methods of `Session` and `AsyncSession` that do not wait."""

    def __init__(self, port: SessionPort, mode: str) -> None:
        self._state = SessionState(checked_mode(mode, port.driver.capabilities))
        self._port = port
        self._dispatchers: list[Dispatcher] = []
        self._listeners: list[HandlerRegistration[Any]] = []
        self._closing = False  # close() has been called
        self._closed = False

    @property
    def mode(self) -> Mode:
        """Acknowledgement mode: `auto`, `client`, `individual`, `transacted` or `dups_ok`."""
        return self._state.mode

    @property
    def closed(self) -> bool:
        """True if the session is closed."""
        return self._closed

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.mode}>"

    def _check_open(self) -> None:
        if self._closed:
            raise _is_closed()
        self._port.check_open()

    def _only(self, modes: tuple[Mode, ...], call: str) -> None:
        self._check_open()
        if self.mode not in modes:
            raise ConfigurationError(
                f"{call}() is for sessions of the mode {' or '.join(modes)}, and this one is {self.mode}",
                option="mode",
            )

    def _check_listener(self, options: ListenOptions) -> None:
        self._check_open()
        if options.get("workers", 1) != 1:
            raise ConfigurationError(
                f"workers={options.get('workers')}: a session delivers one message at a time; make a session for each",
                option="workers",
            )
        if self._closing:
            raise _is_closed()
        # A commit by one listener's handler would accept the message that the other one handles.
        if self._listeners and self.mode in KEPT:
            raise ConfigurationError(
                f"a {self.mode} session has one listener: it settles all messages of its session together; make a "
                "session for each",
                option="mode",
            )

    def _check_consumer(self) -> None:
        self._check_open()
        if self._closing:
            raise _is_closed()
        self._state.activity.check_pull("consumer")

    def _listening(self, destination: str, handler: Callable[[Message], Any], options: ListenOptions) -> None:
        """Register a handler."""
        listener = self._port.listening(destination, handler, options, self._state)
        self._state.activity.listens = True
        self._listeners.append(listener)

    def _consuming(self, dispatcher: Dispatcher) -> None:
        """Keep a new consumer's dispatcher, and drop those of closed consumers."""
        open_dispatchers = self._port.driver.dispatchers
        self._dispatchers = [c for c in self._dispatchers if open_dispatchers.get(c.subscribe.consumer) is c]
        self._dispatchers.append(dispatcher)

    def _acknowledge(self) -> None:
        self._only(("client",), "acknowledge")
        self._state.acknowledge("acknowledge")

    def _recover(self) -> None:
        self._only(("client", "individual", "auto", "dups_ok"), "recover")
        for message in self._state.take_settled_alone():
            message.conclude(Failed(message.delivery, Cause("recovered"), weight="own"))

    def _roll_back(self, charge: Collection[Message] | None = None) -> None:
        self._only(("transacted",), "rollback")
        self._state.roll_back(Cause("rolled back"), charge)

    def _keep(self, destination: str, body: bytes | str, options: SendOptions) -> str:
        # Only checked: the timeout of the commit is the one that counts.
        time_limit(options, self._port.settings)
        identity, message = outgoing(destination, body, options, self._port.clock)
        # Observers get the end of this send now; the commit that sends the message has its own result.
        with observed_send(self._port.driver.observers, message, identity, self._port.clock) as message:
            self._state.send(message)
        return identity

    def _commits(self, timeout: float | timedelta) -> tuple[float, float]:
        """Check that a commit is possible; return its deadline, and the time until which it waits for a reconnect."""
        self._only(("transacted",), "commit")
        limit, now = seconds(timeout, "timeout"), self._port.clock.monotonic()
        patience = self._port.patience(limit)
        return now + limit, now if self._port.driver.up or not self._state.anything else now + patience

    def _begin_commit(self, deadline: float, timeout: float | timedelta) -> CommitAttempt | None:
        # The session may have been closed while it waited for the reconnect.
        self._only(("transacted",), "commit")
        messages, sends = self._state.take_to_commit()
        if not messages and not sends:
            return None
        try:
            answer = self._port.driver.commit([message.delivery for message in messages], sends)
        except BaseException:
            # An interrupt, for example Ctrl-C: the commit may be written or not. Received messages stay unsettled.
            self._state.activity.answered()
            raise
        future: Future[None] = Future()
        answer.add_done_callback(lambda done: end(future, _error(done)))
        return CommitAttempt(messages, answer, future, deadline, seconds(timeout, "timeout"))

    def _conclude(self, attempt: CommitAttempt, error: RedeliveryError | None) -> None:
        """Settle the messages by the broker's answer. Raises the answer if it is an error."""
        self._settled(attempt, error)
        if error is not None:
            raise in_doubt(error) from None

    def _settled(self, attempt: CommitAttempt, error: RedeliveryError | None) -> None:
        try:
            self._state.conclude(attempt.messages, error)
        finally:
            self._state.activity.answered()

    def _late(self, attempt: CommitAttempt) -> TransportError:
        """Settle the messages when a late answer arrives; return the error that `commit` raises now."""

        def conclude(done: Future[None]) -> None:
            # Not on the thread that reads from the broker: settling the messages may have to write.
            threading.Thread(
                target=self._settled, args=(attempt, _error(done)), name="redelivery-commit", daemon=True
            ).start()

        self._port.driver.give_up(attempt.answer)
        self._state.late(attempt.messages)
        attempt.answer.add_done_callback(conclude)
        return TransportError(
            f"the broker did not answer the commit within {attempt.timeout:g} s, and may still carry it out: its "
            "messages are settled when the answer arrives, and are redelivered if the connection is lost before"
        )

    def _begin_end(self) -> bool:
        """Start no further handler; return True at the first call."""
        with self._state.activity.lock:
            first, self._closing = not self._closing, True
        for listener in self._listeners if first else ():
            listener.ended = True
            if listener.dispatcher is not None:
                listener.dispatcher.stop()
        return first

    def _finish(self, own: object, timeout: float) -> None:
        """End the session and its consumers, after waiting for handlers and commits for `timeout` seconds together.

        `own`: the message of the caller's own handler, for which it does not wait.
        """
        deadline = time.monotonic() + timeout
        try:
            busy = self._state.activity.wait_quiet(deadline, own)
            if busy is not None:
                logger.warning("%r is closed, but %s %g s", self, _STILL[busy], timeout)
        finally:
            self.abandon(own)
            self._closed = True
            dispatchers, self._dispatchers = self._dispatchers, []
            dispatchers += [each.dispatcher for each in self._listeners if each.dispatcher is not None]
            for dispatcher in dispatchers:
                self._port.driver.unsubscribe(dispatcher, max(0.0, deadline - time.monotonic()))

    def await_commits(self, deadline: float) -> None:
        """Wait until the broker has answered all commits, or until `deadline`."""
        self._state.activity.wait_answered(deadline)

    def abandon(self, own: object = None) -> None:
        """Roll back the open transaction, as closing does, without messages that another handler works on.

        The broker takes those messages back.
        """
        if self.mode == "transacted" and not self._closed:
            cause = self._state.cause or Cause("the session was closed before its commit")
            self._state.abandon(cause, own)


def _is_closed() -> ConfigurationError:
    return ConfigurationError("the session is closed; make a new one with connection.session(...)")


def _error(done: Future[None]) -> RedeliveryError | None:
    error = done.exception()
    assert error is None or isinstance(error, RedeliveryError), "adapters answer with no other"
    return error
