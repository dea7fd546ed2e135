"""Common base of `Connection` and `AsyncConnection`: settings, adapter, driver, and a dispatcher for each consumer."""

from __future__ import annotations

import itertools
import os
import time
from abc import abstractmethod
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any, Generic, Unpack

from redelivery.classifier import Classifier, checked_errors
from redelivery.clock import Clock, SystemClock
from redelivery.core.application_functions import is_async_callable
from redelivery.core.dead_lettering.dead_letter_strategy import DeadLetterMap
from redelivery.core.events import Continued, Drained, Paused
from redelivery.core.option_values import seconds
from redelivery.driver.arguments import (
    ConnectOptions,
    ConsumerOptions,
    check_drops,
    checked_consumer,
    checked_dead_letters,
    checked_ledger,
    checked_listener,
    checked_on_stopped,
    checked_policies,
    checked_rate,
    checked_send_timeout,
    connection_breaker,
    known,
    session_breaker,
    single,
)
from redelivery.driver.connection.connection_driver import ConnectionDriver
from redelivery.driver.connection.connection_end import ConnectionEnd, DrainWatch, IdleWatch, in_a_thread
from redelivery.driver.connection.connection_ledger import ConnectionLedger
from redelivery.driver.connection.forked import in_another_process
from redelivery.driver.connection.health_check import HealthCheck
from redelivery.driver.connection.observing import observed_connection
from redelivery.driver.connection.sends import connection_limit
from redelivery.driver.consumer.dispatcher import Dispatcher
from redelivery.driver.consumer.handler_run import HandlerRun
from redelivery.driver.consumer.handler_timeout import overdue_for
from redelivery.driver.consumer.handler_watch import HandlerWatch, log_long
from redelivery.driver.consumer.ledger_dispatcher import LedgerDispatcher
from redelivery.driver.consumer.plan import planned
from redelivery.driver.consumer.worker import stop_consumer
from redelivery.driver.event_log import EventLog
from redelivery.driver.listener_hooks import HookCalls, HookThread, add_hooks, check_hooks, start_hooks
from redelivery.driver.listening import HandlerRegistration, Listening, RunnerT
from redelivery.driver.observers import Observers, checked_observers
from redelivery.errors import ConfigurationError, TransportError, near_miss
from redelivery.events import Unaccounted
from redelivery.log import logger
from redelivery.registry import adapter_for
from redelivery.uri.parser import parse_to_connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from redelivery.adapter import Adapter
    from redelivery.core.report import Report
    from redelivery.driver.arguments import ListenOptions
    from redelivery.driver.session.session_base import SessionBase
    from redelivery.driver.session.session_state import SessionState
    from redelivery.health import Health, ReadyWhen
    from redelivery.ledger import Ledger
    from redelivery.message import Message
    from redelivery.settings import Endpoint, Settings

__all__ = ["ConnectionBase", "connection_parts", "not_open"]


# ---- Connection parts ------------------------------------------------------------------------------------
# Parts of a connection, made from its URI and its keyword arguments. No I/O.


@dataclass(frozen=True, slots=True)
class ConnectionParts:
    """The parts of one connection."""

    settings: Settings
    adapter: Adapter
    errors: Classifier
    clock: Clock
    observers: Observers
    ledger: Ledger | None
    connection_ledger: ConnectionLedger | None
    """The ledger, if it counts the attempts of this connection; else None."""
    driver: ConnectionDriver
    on_stopped: Callable[[BaseException], object] | None
    numbers: Iterator[int]
    """Numbers of consumers; several threads may take one at the same time."""


def connection_parts(
    uri: str, options: ConnectOptions, *, counts: bool = True, groups: bool = True, quiet: bool = False
) -> ConnectionParts:
    """Return the parts of a connection.

    Args:
        uri: The broker's URI, with options.
        options: Keyword arguments of `connect`.
        counts: True: the ledger counts attempts. False: it is only read.
        groups: True: log lines may be grouped; the connection must then call `observers.look` regularly.
        quiet: True: nothing is logged.

    Raises:
        ConfigurationError: An option of the URI, or an argument, is unknown or cannot be used.
    """
    known(options, ConnectOptions)
    errors = checked_errors(options.get("errors")) or Classifier()
    places = options.get("dead_letters")
    parsed = parse_to_connect(uri, places if isinstance(places, DeadLetterMap) else None)
    settings = replace(
        parsed,
        policies=checked_policies(options.get("policies"), parsed),
        dead_letters=checked_dead_letters(options.get("dead_letters"), parsed),
        breaker=connection_breaker(options, parsed),
        send_timeout=checked_send_timeout(options.get("send_timeout"), parsed),
    )
    check_drops(settings)
    adapter = adapter_for(settings.scheme)
    clock: Clock = options.get("clock") or _clock_of(adapter, settings) or SystemClock()
    log = EventLog(clock if groups and not settings.log_each else None, quiet=quiet)
    observers = Observers(checked_observers(options.get("observers")), log)
    ledger = checked_ledger(options.get("ledger"), settings)
    connection_ledger = ConnectionLedger(ledger) if ledger is not None and counts else None
    driver = ConnectionDriver(settings, adapter, clock, connection_ledger, observers)
    on_stopped = checked_on_stopped(options.get("on_stopped"))
    return ConnectionParts(
        settings,
        adapter,
        errors,
        clock,
        observers,
        ledger,
        connection_ledger,
        driver,
        on_stopped,
        itertools.count(1),
    )


def _clock_of(adapter: Adapter, settings: Settings) -> Clock | None:
    """Return the clock of a broker inside this process, or None: broker and connection must use the same clock."""
    clock_at: Callable[[Endpoint], Clock | None] | None = getattr(adapter, "clock_at", None)
    found = None if clock_at is None else (clock_at(endpoint) for endpoint in settings.endpoints)
    return None if found is None else next((clock for clock in found if clock is not None), None)


def not_open(*, closed: bool, made_by: str, awaits: bool = False) -> ConfigurationError:
    """Return the error for a call that needs an open connection. `made_by`: the function that makes the connection."""
    inside = f"use it inside `{'async ' if awaits else ''}with {made_by}(...)`"
    if closed:
        return ConfigurationError(
            f"the connection is closed; {inside}, which makes a new one: each opens only once"
        )
    return ConfigurationError(f"the connection is not open yet; {inside}")


# ---- New dispatcher --------------------------------------------------------------------------------------
# Making of a dispatcher from the arguments of a consumer, after checking them.


def new_dispatcher(
    parts: ConnectionParts,
    destination: str,
    options: ConsumerOptions,
    session_state: SessionState | None = None,
    workers: int = 0,
) -> Dispatcher:
    """Return the dispatcher of a new consumer of a connection.

    Args:
        parts: Parts of the connection.
        destination: Name of the destination.
        options: Keyword arguments of the consumer.
        session_state: State of the consumer's session; None: it has none.
        workers: Number of workers of its listener; 0: the application pulls from it.

    Raises:
        ConfigurationError: An argument is unknown or cannot be used.
        TransportError: The connection has never been up.
    """
    known(options, ConsumerOptions)
    settings, connection_ledger = parts.settings, parts.connection_ledger
    parsed = checked_consumer(settings, destination, options)
    capabilities = parts.driver.capabilities
    if capabilities is None:
        raise TransportError(f"not connected yet: {destination} cannot be consumed")
    number = next(parts.numbers)
    errors = checked_errors(options.get("errors")) or parts.errors
    transacted = session_state is not None and session_state.mode == "transacted"
    if transacted and options.get("errors") is not None:
        raise ConfigurationError(
            "errors=: in a transacted session commit() and rollback() decide, not the type of an exception",
            option="errors",
        )
    rate = checked_rate(options.get("rate"), "rate") or settings.rate
    subscribe, engine = planned(
        number, parsed, {**options, "errors": errors, "rate": rate}, settings, capabilities,
        transacted=transacted, counted=connection_ledger is not None,
        breaker=session_breaker(options, session_state, settings.breaker),
        workers=workers if session_state is None else None, alone=False,
    )  # fmt: skip
    own = checked_observers(options.get("observers"))
    common = subscribe, engine, parts.driver, parts.clock, settings.policies, parts.observers.also(own)
    dispatcher = (
        Dispatcher(*common) if connection_ledger is None else LedgerDispatcher(*common, connection_ledger)
    )
    start_hooks(own, dispatcher)
    dispatcher.session_state = session_state
    dispatcher.errors = errors
    return dispatcher


# ---- Pauses ----------------------------------------------------------------------------------------------
# Pauses of a connection's consumers, also of those that start later.


class Pauses:
    """Destinations that are paused. Called from the application's threads, without a lock."""

    def __init__(self, dispatchers: Sequence[Dispatcher]) -> None:
        self._dispatchers = dispatchers
        self._all = False
        self._paused: set[str] = set()

    def change(self, destination: str | None, listeners: Iterable[str], *, paused: bool) -> None:
        """Pause or resume the consumers of a destination; None: all, and all that start later.

        `listeners`: destinations of listeners that may not be started yet.

        Raises:
            ConfigurationError: No consumer and no listener has this destination.
        """
        if destination is None:
            self._all = paused
            self._paused.clear()
            chosen = list(self._dispatchers)
        else:
            name = str(single(destination))
            chosen = [each for each in list(self._dispatchers) if each.subscribe.destination == name]
            known = {str(single(each)) for each in listeners}
            known |= {each.subscribe.destination for each in list(self._dispatchers)}
            if name not in known:
                what = "pause" if paused else "resume"
                raise ConfigurationError(
                    f"{what}({destination!r}): nothing consumes from {name}{near_miss(name, known)}",
                    option="destination",
                )
            if paused:
                self._paused.add(name)
            else:
                self._paused.discard(name)
        for dispatcher in chosen:
            dispatcher.feed(Paused() if paused else Continued())

    def begin(self, dispatcher: Dispatcher) -> None:
        """Pause a consumer that is about to start, if its destination is paused."""
        if self._all or dispatcher.subscribe.destination in self._paused:
            dispatcher.feed(Paused())


# ---- Connection base -------------------------------------------------------------------------------------


class ConnectionBase(Listening, Generic[RunnerT]):
    """The part of `Connection` and `AsyncConnection` that does not wait."""

    _maker = "connect"
    _awaits = False  # handlers

    def __init__(self, uri: str, **options: Unpack[ConnectOptions]) -> None:
        parts = connection_parts(uri, options)
        self._parts = parts
        self.settings: Settings = parts.settings
        self._errors = parts.errors
        self._clock = parts.clock
        self._observers = parts.observers
        self._driver = parts.driver
        self._dispatchers = self._driver.open_consumers.dispatchers  # of the consumers that are open
        self._listeners: list[HandlerRegistration[RunnerT]] = []
        self._sessions: list[SessionBase] = []
        self._pauses = Pauses(self._dispatchers)
        self._end = ConnectionEnd(parts.on_stopped, self.stop, self._elsewhere)
        self._watch = HandlerWatch(self._clock, self._end.fail)
        self._hook_calls: HookCalls = HookThread(self._clock)
        # Dispatchers of listeners, once the broker has confirmed them.
        self._started: set[Dispatcher] = set()
        hooks = self._driver.hooks
        hooks.stopped, hooks.given_up, hooks.beat = self._consumer_stopped, self._end.fail, self._look_at_runs
        # True once the log has said that a classifier has no effect in transactions.
        self._warned = False
        # True if entering the connection waits for a broker that is down, without limit.
        self._patient = False
        # True if `run` is stopped when its work is done: a breaker that stays open ends it with an error.
        self._finite = False
        self._entered = False
        # Messages that had not come back after a loss, at the last look.
        self._unaccounted = 0
        # Id of the process that has entered the connection.
        self._process: int | None = None
        self._closed = False
        self._drained = False

    def _attach_observers(self) -> None:
        """Give the observers their connection. Call it at the end of the constructor."""
        self._observers.attach(observed_connection(self, lambda me: me._closed, self._driver, self.settings))

    def __repr__(self) -> str:
        where = ", ".join(str(endpoint) for endpoint in self.settings.endpoints)
        return f"<{type(self).__name__} {where}>"

    @property
    def connected(self) -> bool:
        """True if the connection is up at the moment."""
        return self._driver.up

    @property
    def error(self) -> BaseException | None:
        """Error that has ended consuming, or None; `run` and `wait` raise it.

        It is the first of: an error that ended a worker of a listener, an error that stopped a listener's consumer, the
        error with which the connection was given up. The error of a consumer that the application pulls from is not
        among them: `receive` raises it.
        """
        return self._end.error

    def health(self, ready_when: ReadyWhen = "consuming", *, texts: bool = True) -> Health:
        """Return the health of the connection and its consumers, from any thread, without waiting.

        Args:
            ready_when: `consuming`: a paused consumer and an open circuit breaker make the connection not ready.
                `connected`: they do not; for a web application that also consumes. Default `consuming`.
            texts: True: errors have their texts. False: only their types, for an answer that anyone may read.
                Default True.

        Returns:
            A copy of the state at this moment.

        Raises:
            ConfigurationError: `ready_when` has another value, or the connection was opened before a fork.
        """
        self._check_process()
        check = HealthCheck(
            self._driver,
            self._listeners,
            now=self._clock.monotonic(),
            entered=self._entered,
            drained=self._drained,
            closed=self._closed,
            texts=texts,
            dropped=self._hook_calls.dropped,
        )
        return check.health(ready_when, self.error, self._loop_silence())

    def pause(self, destination: str | None = None) -> None:
        """Pause the consumers and listeners of a destination, also those that start later. See `resume`.

        `Consumer.pause` describes what happens to messages.

        Args:
            destination: Name of the destination; None: all destinations. Default None.

        Raises:
            ConfigurationError: No consumer and no listener has this destination.
        """
        self._pauses.change(destination, [each.destination for each in self._listeners], paused=True)

    def resume(self, destination: str | None = None) -> None:
        """End the pause of a destination.

        Args:
            destination: Name of the destination; None: all destinations. Default None.

        Raises:
            ConfigurationError: No consumer and no listener has this destination.
        """
        self._pauses.change(destination, [each.destination for each in self._listeners], paused=False)

    def report(self) -> Report:
        """Return a copy of the connection's totals so far: how its dispatches ended, and how many still run."""
        return self._driver.open_consumers.report()

    def _patience(self, timeout: float) -> float:
        """Return the seconds that a send may wait for a reconnect."""
        return connection_limit(self.settings, timeout)

    def _check_process(self) -> None:
        """Raise ConfigurationError in a child of the process that opened the connection."""
        if self._process is not None and self._process != os.getpid():
            raise in_another_process(self._process)

    def _forked(self) -> bool:
        """True in a child of the process that opened the connection; the child's copy is closed by this call."""
        forked = self._process is not None and self._process != os.getpid()
        if forked:
            self._closed = True
        return forked

    def _check_open(self) -> None:
        self._check_process()
        if not self._entered or self._closed:
            raise not_open(closed=self._closed, made_by=f"redelivery.{self._maker}", awaits=self._awaits)

    def _check_entered(self) -> None:
        self._check_process()
        if not self._entered:
            raise not_open(closed=False, made_by=f"redelivery.{self._maker}", awaits=self._awaits)

    def _check_fresh(self) -> None:
        """Raise ConfigurationError if the connection has been drained: it would handle no message."""
        if self._drained:
            raise ConfigurationError(
                f"this connection has been drained; make a new one with redelivery.{self._maker}(...)"
            )

    def _worker_ended(self, dispatcher: Dispatcher, error: BaseException) -> None:
        """Record the error that has ended a worker, and stop its consumer; `run` and `wait` raise the first one."""
        try:
            self._end.fail(error)
        finally:
            stop_consumer(dispatcher, error)

    def _consumer_stopped(self, dispatcher: Dispatcher) -> None:
        """Record the error of a consumer that has stopped. Called with the consumer's lock held."""
        if dispatcher in self._started and dispatcher.error is not None:
            self._end.fail(dispatcher.error)

    def _began_to_consume(self, dispatcher: Dispatcher) -> None:
        """Mark the consumer of a listener as confirmed by the broker."""
        self._started.add(dispatcher)
        # The consumer may have stopped before that.
        self._consumer_stopped(dispatcher)

    def _run_of(self, listener: HandlerRegistration[RunnerT]) -> HandlerRun:
        """Return the record of handler runs for one more worker of a listener."""
        assert listener.dispatcher is not None, "it is started"
        if listener.deadline is None:
            return HandlerRun(listener.dispatcher, self._clock)
        run = HandlerRun(listener.dispatcher, self._clock, listener.deadline, self._watch)
        self._watch.add(run)
        return run

    def _look_at_runs(self, now: float) -> None:
        """Log handlers without a time-out that run for long, and messages that do not come back.

        Called on the driver's thread.
        """
        self._observers.look()
        before, self._unaccounted = self._unaccounted, self._driver.shared_history.unaccounted(now)
        if self._unaccounted > before:
            self._observers.emit((Unaccounted(self._clock.time(), self._unaccounted),))
        for listener in tuple(self._listeners):
            for runner in tuple(listener.runners):
                log_long(runner.run, now)

    def _elsewhere(self, call: Callable[[], None]) -> object:
        """Call a function where the application's own code may run; return its thread, if it has one."""
        return in_a_thread(call)

    def _loop_silence(self) -> float | None:
        """Return the seconds for which the event loop has not answered; None: the loop is closed."""
        return 0.0

    def _raise_unseen(self) -> None:
        """Raise the error of the listeners, if the application has not got it yet: no later call raises it."""
        if self._listeners:
            self._end.raise_error(unless_given=True)

    @abstractmethod
    def stop(self) -> None:
        """End `run` and `wait`, from any thread."""

    def _begin_drain(self, timeout: float, mine: Callable[[RunnerT], bool]) -> DrainWatch:
        """Stop dispatching; return the watch of the running handlers. `mine`: True for the caller's own worker."""
        self._check_process()
        timeout = seconds(timeout, "timeout")
        self._drained = True
        self.stop()
        runners = [runner for listener in self._listeners for runner in listener.runners]
        watch = DrainWatch(self._clock, timeout, runners, mine, self._observers)
        self._driver.refuse_waiting(
            TransportError("not connected, and the connection is draining: nothing was sent")
        )
        for dispatcher in list(self._dispatchers):
            dispatcher.feed(Drained())
            dispatcher.stop()
        return watch

    def _to_run(self, drain_timeout: float, until_idle: float | None) -> IdleWatch | None:
        """Check the arguments of `run`, and that there is a listener; return the watch for `until_idle`, or None."""
        seconds(drain_timeout, "drain_timeout")
        if until_idle is not None:
            seconds(until_idle, "until_idle", none="to run until it is stopped")
        self._check_fresh()
        if not self._listeners:
            raise ConfigurationError("nothing to run: register a handler with listen() first")
        if until_idle is None and not self._finite:
            return None
        idle = inf if until_idle is None else until_idle
        return IdleWatch(self._dispatchers, idle, lambda: self.connected, self._clock, self._end.fail)

    def _check_listener(self, options: ListenOptions) -> None:  # noqa: ARG002 - checked later, with the handler
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
        if is_async_callable(handler) and not self._awaits:
            name = getattr(handler, "__qualname__", type(handler).__qualname__)
            raise ConfigurationError(f"{name} is async def; use redelivery.connect_async", option="handler")
        check_hooks(options, awaits=self._awaits, mode=None if session_state is None else session_state.mode)
        add_hooks(consumer, options, self._hook_calls)
        deadline = overdue_for(options.get("timeout"), self._clock)
        listener = HandlerRegistration[RunnerT](
            destination, handler, options.get("workers", 1), consumer, deadline, session_state
        )
        self._listeners.append(listener)
        return listener

    def _began(self, session: SessionBase) -> None:
        """Keep a new session, and drop closed ones."""
        self._sessions = [each for each in self._sessions if not each.closed]
        self._sessions.append(session)
        if session.mode == "transacted" and self._errors.rules and not self._warned:
            self._warned = True
            logger.warning(
                "errors= of the connection is ignored in a transacted session: commit() and rollback() decide; "
                "use session('individual') to apply it"
            )

    def _roll_back_sessions(self) -> None:
        """Roll back the open transactions of sessions, as closing a session does."""
        for session in self._sessions:
            session.abandon()

    def _close_driver(self, timeout: float) -> None:
        """Close within `timeout` seconds, after running commits: of an interrupted one, the outcome is unknown."""
        deadline = time.monotonic() + timeout
        try:
            try:
                for session in self._sessions:
                    session.await_commits(deadline)
            # Also after Ctrl-C: no later call would close the driver.
            finally:
                self._driver.close(max(0.0, deadline - time.monotonic()))
        finally:
            self._hook_calls.close(max(0.0, deadline - time.monotonic()))
            self._observers.look(last=True)
            self._watch.close(max(0.0, deadline - time.monotonic()))
            self._end.wait_called(max(0.0, deadline - time.monotonic()))

    def _dispatcher(
        self,
        destination: str,
        options: ConsumerOptions,
        session_state: SessionState | None = None,
        workers: int = 0,
    ) -> Dispatcher:
        """Make the dispatcher of a new consumer. `workers`: of its listener; 0: the application pulls from it."""
        dispatcher = new_dispatcher(self._parts, destination, options, session_state, workers)
        self._pauses.begin(dispatcher)
        self._driver.open_consumers.add(dispatcher, self._driver.capabilities)
        return dispatcher
