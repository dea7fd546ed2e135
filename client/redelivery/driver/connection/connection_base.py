"""What both connections are made of: settings, adapter, driver, and a dispatcher for each consumer."""

from __future__ import annotations

import inspect
import time
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Generic, Unpack

from redelivery.classifier import checked_errors
from redelivery.core.option_values import seconds
from redelivery.driver.arguments import (
    ConnectOptions,
    ConsumerOptions,
    checked_consumer,
    checked_listener,
    known,
)
from redelivery.driver.connection.connection_parts import connection_parts, not_open
from redelivery.driver.connection.handler_registration import HandlerRegistration, RunnerT
from redelivery.driver.connection.send_request import connection_limit
from redelivery.driver.connection.stop_when_idle import IdleWatch
from redelivery.driver.consumer.dispatcher import Dispatcher
from redelivery.driver.consumer.handler_timeout import overdue_for
from redelivery.driver.consumer.ledger_dispatcher import LedgerDispatcher
from redelivery.driver.consumer.plan import planned
from redelivery.driver.consumer.worker_end import stop_consumer
from redelivery.driver.gate_arguments import checked_breaker, checked_rate
from redelivery.driver.listening import Listening
from redelivery.errors import ConfigurationError
from redelivery.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.core.breaker import Breaker
    from redelivery.core.report import Report
    from redelivery.driver.arguments import ListenOptions
    from redelivery.driver.session.session_base import SessionBase
    from redelivery.driver.session.session_state import SessionState
    from redelivery.message import Message
    from redelivery.settings import Settings

__all__ = ["ConnectionBase"]


class ConnectionBase(Listening, Generic[RunnerT]):
    """The part of `Connection` and `AsyncConnection` that does not wait."""

    _maker = "connect"
    _awaits = False  # handlers

    def __init__(self, uri: str, **options: Unpack[ConnectOptions]) -> None:
        parts = connection_parts(uri, options)
        self.settings: Settings = parts.settings
        self._errors = parts.errors
        self._clock = parts.clock
        self._observer = parts.observer
        self._connection_ledger = parts.connection_ledger
        self._driver = parts.driver
        self._dispatchers = self._driver.open_consumers.dispatchers  # of the consumers that are open
        self._numbers = parts.numbers
        self._listeners: list[HandlerRegistration[RunnerT]] = []
        self._sessions: list[SessionBase] = []
        self._failure: BaseException | None = None  # what ends a run
        # That a classifier has no effect in transactions.
        self._warned = False
        self._entered = False
        self._closed = False
        self._drained = False

    def __repr__(self) -> str:
        where = ", ".join(str(endpoint) for endpoint in self.settings.endpoints)
        return f"<{type(self).__name__} {where}>"

    @property
    def connected(self) -> bool:
        """Whether the connection stands at the moment."""
        return self._driver.up

    def report(self) -> Report:
        """Return what has become of all dispatches so far."""
        return self._driver.open_consumers.report()

    def _patience(self, timeout: float) -> float:
        """Return how long a send may wait for a lost connection."""
        return connection_limit(self.settings, timeout)

    def _check_open(self) -> None:
        if not self._entered or self._closed:
            raise not_open(closed=self._closed)

    def _check_fresh(self) -> None:
        """Refuse to run what has been drained: nothing would be handled any more. Raises ConfigurationError."""
        if self._drained:
            raise ConfigurationError(
                f"this connection has been drained; make a new one with redelivery.{self._maker}(...)"
            )

    def _stuck(self) -> bool:
        """Whether a handler has not ended within twice its timeout: then the run ends, with an error."""
        for listener in self._listeners:
            if listener.overdue is not None and listener.dispatcher is not None:
                error = listener.overdue.stuck(listener.dispatcher)
                if error is not None:
                    self._failure = error if self._failure is None else self._failure
                    return True
        return False

    def _worker_ended(self, dispatcher: Dispatcher, error: BaseException) -> None:
        """Take in the error that a worker has ended with: `run` raises the first one, and its consumer stops."""
        if self._failure is None:
            self._failure = error
        try:
            stop_consumer(dispatcher, error)
        finally:
            self.stop()

    @abstractmethod
    def stop(self) -> None:
        """End `run`, from any thread."""

    def _interval(self, idle: IdleWatch | None) -> float | None:
        """Return the seconds of real time after which a run must look at itself; None: it need not."""
        looks = [listener.overdue.interval for listener in self._listeners if listener.overdue is not None]
        if idle is not None:
            looks.append(idle.interval)
        return min(looks, default=None)

    def _to_run(self, drain_timeout: float, until_idle: float | None) -> IdleWatch | None:
        """Check the arguments of `run`, and that there is something to run; return what watches for idleness."""
        seconds(drain_timeout, "drain_timeout")
        if until_idle is not None:
            seconds(until_idle, "until_idle", none="to run until it is stopped")
        self._check_fresh()
        if not self._listeners:
            raise ConfigurationError("nothing to run: register a handler with listen() first")
        if until_idle is None:
            return None
        return IdleWatch(self._dispatchers, until_idle, lambda: self.connected, self._clock)

    def _check_listener(self, options: ListenOptions) -> None:  # noqa: ARG002 - its handler is needed to check them
        self._check_fresh()

    def _listening(
        self,
        destination: str,
        handler: Callable[[Message], Any],
        options: ListenOptions,
        session_state: SessionState | None = None,
    ) -> HandlerRegistration[RunnerT]:
        """Register a handler."""
        self._check_fresh()
        consumer = checked_listener(self.settings, destination, handler, options)
        if inspect.iscoroutinefunction(handler) and not self._awaits:
            raise ConfigurationError(
                f"{getattr(handler, '__qualname__', handler)} is async def; use redelivery.connect_async",
                option="handler",
            )
        overdue = overdue_for(options.get("timeout"), self._clock)
        listener = HandlerRegistration[RunnerT](
            destination, handler, options.get("workers", 1), consumer, overdue, session_state
        )
        self._listeners.append(listener)
        return listener

    def _began(self, session: SessionBase) -> None:
        """Keep a new session, and no longer those that are closed."""
        self._sessions = [each for each in self._sessions if not each.closed]
        self._sessions.append(session)
        if session.mode == "transacted" and self._errors.rules and not self._warned:
            self._warned = True
            logger.warning(
                "errors=: a transacted session settles by commit() and rollback() alone; "
                "the connection's classifier has no effect there"
            )

    def _roll_back_sessions(self) -> None:
        """Roll back what sessions have not committed, as their closing does."""
        for session in self._sessions:
            session.abandon()

    def _close_driver(self, timeout: float) -> None:
        """Close within `timeout` seconds, after commits on their way: cut off, nobody knows what became of them."""
        deadline = time.monotonic() + timeout
        for session in self._sessions:
            session.await_commits(deadline)
        self._driver.close(max(0.0, deadline - time.monotonic()))

    def _breaker(self, options: ConsumerOptions, session_state: SessionState | None) -> Breaker | None:
        """Return the breaker of a new consumer: none in the modes in which failures are not charged one by one."""
        mode = None if session_state is None else session_state.mode
        if mode not in ("client", "transacted"):
            return checked_breaker(options, self.settings.breaker)
        if options.get("breaker") is not None:
            raise ConfigurationError(
                f"breaker=: in a session of mode {mode!r} the application settles by itself; use mode='individual'",
                option="breaker",
            )
        return None

    def _dispatcher(
        self, destination: str, options: ConsumerOptions, session_state: SessionState | None = None
    ) -> Dispatcher:
        """Make the dispatcher of a new consumer, of a session perhaps."""
        known(options, ConsumerOptions)
        parsed = checked_consumer(self.settings, destination, options)
        capabilities = self._driver.capabilities
        assert capabilities is not None, "checked by _check_open"
        number = next(self._numbers)
        errors = checked_errors(options.get("errors")) or self._errors
        connection_ledger = self._connection_ledger
        transacted = session_state is not None and session_state.mode == "transacted"
        if transacted and options.get("errors") is not None:
            raise ConfigurationError(
                "errors=: in a transacted session commit() and rollback() decide, not the type of an exception",
                option="errors",
            )
        rate = checked_rate(options.get("rate"), "rate") or self.settings.rate
        subscribe, engine = planned(
            number, parsed, {**options, "errors": errors, "rate": rate}, self.settings, capabilities,
            transacted=transacted,
            counted=connection_ledger is not None, breaker=self._breaker(options, session_state),
        )  # fmt: skip
        common = subscribe, engine, self._driver, self._clock, self.settings.policies, self._observer
        dispatcher = (
            Dispatcher(*common) if connection_ledger is None else LedgerDispatcher(*common, connection_ledger)
        )
        dispatcher.session_state = session_state
        dispatcher.errors = errors
        self._driver.open_consumers.add(dispatcher)
        return dispatcher
