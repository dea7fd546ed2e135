"""Synchronous connection: consumers, listeners and sends of threads."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Self, Unpack

from redelivery.adapter_support.keyboard_interrupts import closed, opened
from redelivery.clock import join_within
from redelivery.consumer import Consumer
from redelivery.core.option_values import seconds
from redelivery.driver.arguments import ConnectOptions, ConsumerOptions, shows
from redelivery.driver.connection.connection_base import ConnectionBase
from redelivery.driver.connection.connection_driver import CLOSE_TIMEOUT
from redelivery.driver.connection.connection_end import Signals, Stopping
from redelivery.driver.connection.embedding import consuming
from redelivery.driver.connection.sends import SendOptions, observed_send, outgoing, time_limit
from redelivery.driver.consumer.worker import Worker
from redelivery.driver.session.session_base import SessionPort
from redelivery.driver.waiting import await_confirmed, await_connected, await_subscription
from redelivery.errors import ConfigurationError, RedeliveryError
from redelivery.log import brief
from redelivery.session import Session

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextlib import AbstractContextManager
    from datetime import timedelta
    from types import TracebackType

    from redelivery.core.report import Report
    from redelivery.driver.consumer.dispatcher import Dispatcher
    from redelivery.driver.session.session_state import SessionState


__all__ = ["Connection", "connect"]


@shows(ConnectOptions)
def connect(uri: str, **options: Unpack[ConnectOptions]) -> Connection:
    """Return a connection to a broker, not yet connected.

    It connects when its `with` block is entered. No I/O happens before.

    Args:
        uri: `memory://name`, `stomp://host:port`, `stomp+ssl://…`, `amqp://…`, `amqps://…` or `failover:(…)`,
            with options.
        policies: Redelivery policies by destination; refused if the URI has policies, too. None: those of the
            URI.
        dead_letters: Dead-letter strategies by destination; refused if the URI has options of them, too. None:
            those of the URI.
        errors: `redelivery.Classifier` that decides by the type of an exception what becomes of the message.
            None: every exception follows the policy.
        breaker: `redelivery.Breaker` that pauses consumers while every message fails; refused if the URI has
            options of a breaker, too. On by default; None: never pause.
        ledger: `redelivery.SqliteLedger`, or its URL, that counts attempts durably; refused if the URI names
            one, too. None: `redelivery.ledger` of the URI.
        observers: Observers (`redelivery.events.Observer`), or functions of one event, called in this order
            with each event of the connection. No lock is held during a call. They must not block. An
            exception of an observer is logged and has no other effect.
        send_timeout: Seconds, or a timedelta, that a `send` may take. None: `redelivery.sendTimeout` of the
            URI, default 30.
        on_stopped: Function called once with `connection.error` when an error ends consuming. It runs on its
            own thread; with `connect_async`, on the event loop. An exception that it raises is logged.
        clock: `redelivery.testing.ManualClock` in tests. None: the clock of the machine.

    Returns:
        The connection, not yet open.

    Raises:
        ConfigurationError: An option or an argument cannot be honoured.
        TypeError: There is no keyword argument of that name.
    """
    try:
        return Connection(uri, **options)
    except RedeliveryError as error:
        raise brief(error) from None


class Connection(ConnectionBase[Worker]):
    """Connection with its consumers, listeners and sessions, for threads.

    Made by `connect`; use it in a `with` block.

    Leaving the block closes the connection. Then it raises `error`, unless `run`, `wait` or `on_stopped`
    reported that error already.
    """

    def __init__(self, uri: str, **options: Unpack[ConnectOptions]) -> None:
        super().__init__(uri, **options)
        self._stopping = Stopping()
        self._attach_observers()

    def __enter__(self) -> Self:
        """Connect. Each address is tried once, unless `startupMaxReconnectAttempts` says otherwise.

        Returns:
            The connection.

        Raises:
            ConfigurationError: The connection was entered before; or a setting cannot work with this broker.
            TransportError: No address answered.
            BrokerUnavailable: A broker refused the log-in for now, and none took it.
            AdapterError: A broker refused the log-in.
            LedgerError: The ledger cannot count attempts.
        """
        if self._entered:
            raise ConfigurationError(
                "a connection is entered once; make a new one with redelivery.connect(...)"
            )
        try:
            self._driver.open(patient=self._patient)
        except RedeliveryError as error:
            raise brief(error) from None
        self._entered, self._process = True, os.getpid()
        opened(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close; then raise the listeners' `error`, unless it was raised or given to `on_stopped` before."""
        self.close()
        if error is None and not self._forked():
            self._end.wait_called(CLOSE_TIMEOUT)
            self._raise_unseen()

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Close the connection. The broker takes back the unsettled messages.

        Waits until the broker has confirmed the dead letters and commits that were sent. In a child process
        after a fork, the connection of the parent stays open.

        Args:
            timeout: Seconds for all of it. Default 5.

        Raises:
            ConfigurationError: `timeout` is not a duration.
        """
        timeout = seconds(timeout, "timeout")
        if self._forked():
            closed(self)
        elif self._entered and not self._closed:
            self._closed = True
            try:
                try:
                    self._stopping.set()
                    self._roll_back_sessions()
                finally:
                    self._close_driver(timeout)
            finally:
                closed(self)

    # Consuming.

    def consumer(self, destination: str, **options: Unpack[ConsumerOptions]) -> Consumer:
        """Start a consumer that the application pulls messages from.

        Args:
            destination: Name of a queue, or `queue://`, `topic://`; `native://` is an address of the broker,
                sent unchanged.
            selector: JMS selector, evaluated by the broker. None: all messages.
            subscription: Name of a durable topic subscription; needs `jms.clientID` in the URI. None: not
                durable.
            credit: Messages that may be unsettled here at a time. None: the URI's; its default `auto` is 16,
                and up to 1000 while more messages are parked or the handling rate is high.
            ordering: `non_blocking`, `blocking` or `per_group`. None: the URI's.
            errors: `redelivery.Classifier` instead of the connection's.
            breaker: `redelivery.Breaker` instead of the connection's; None: no breaker.
            rate: Most messages to handle: a `redelivery.Rate`, or a number a second. None: the URI's.
            observers: Observers of this consumer's events, called after the connection's; see
                `redelivery.events`.
            dead_letter: Destination of this consumer's dead letters, before that of the connection, also if the
                connection keeps none. None: the connection's.
            maximum_set_aside: Most poison messages that may be set aside because they cannot be
                dead-lettered. None: the URI's, default 100.

        Returns:
            The consumer, which the broker has confirmed.

        Raises:
            ConfigurationError: The arguments cannot be honoured, or the connection is not open.
            AdapterError: The broker refused the subscription.
            TransportError: The broker did not confirm the subscription in time.
            TypeError: There is no keyword argument of that name.
        """
        self._check_open()
        dispatcher = self._subscribed(destination, options)
        dispatcher.pulled = True
        return Consumer(dispatcher, self._driver.unsubscribe)

    def session(self, mode: str = "individual") -> Session:
        """Return a session: consumers, listeners and sends whose messages are settled together.

        Args:
            mode: `auto`, `client`, `individual`, `transacted` or `dups_ok`; see docs/sessions.md.

        Returns:
            The session.

        Raises:
            ConfigurationError: There is no such mode, the broker has no transactions over this protocol, or
                the connection is not open.
        """
        self._check_open()
        front = self.settings, self._check_open, self._subscribed, self._listening, self.send, self._patience
        self._began(session := Session(SessionPort(self._driver, self._clock, *front), mode))
        return session

    def _subscribed(
        self,
        destination: str,
        options: ConsumerOptions,
        session_state: SessionState | None = None,
        workers: int = 0,
    ) -> Dispatcher:
        """Start a consumer and wait until the broker has confirmed it; remove the consumer if that fails."""
        try:
            dispatcher = self._dispatcher(destination, options, session_state, workers)
            await_subscription(self._driver, dispatcher, self._clock)
        except RedeliveryError as error:
            raise brief(error) from None
        return dispatcher

    def start(self) -> None:
        """Start the threads of the listeners and return. `run` calls it, too.

        Raises:
            ConfigurationError: The connection is not open, or it was drained.
            AdapterError: The broker refused a subscription.
            TransportError: The broker did not confirm a subscription in time.
        """
        self._check_open()
        self._check_fresh()
        for listener in self._listeners:
            if listener.dispatcher is None and not listener.ended:
                listener.dispatcher = self._subscribed(
                    listener.destination, listener.options, listener.session_state, listener.workers
                )
                listener.runners = [
                    Worker(self._run_of(listener), listener.handler, self._clock, self._worker_ended)
                    for _ in range(listener.workers)
                ]
                self._began_to_consume(listener.dispatcher)

    def run(self, *, drain_timeout: float = 30.0, until_idle: float | None = None) -> Report:
        """Run the listeners until `stop`, SIGTERM or SIGINT (in the main thread); then drain and report.

        Draining ends the credit, lets running handlers finish for `drain_timeout` seconds, and releases the
        other messages; their delivery count does not change.

        Args:
            drain_timeout: Seconds that running handlers get at the end. Default 30.
            until_idle: Seconds after which `run` also ends if no message arrived, ran or was parked
                meanwhile. None: no such end. While the connection is down it does not end, because the
                messages at the broker are unknown then. Two kinds of messages do not keep it running, and the
                report counts both: messages of a session without a running handler, and dead letters that the
                broker has not confirmed.

        Returns:
            Counters of all consumers of the connection.

        Raises:
            ConfigurationError: There is no listener, an argument is not a duration, or the connection was
                drained.
            AdapterError: The broker ended a consumer.
            TransportError: The connection was lost, and reconnecting was given up.
            LedgerError: The ledger cannot count attempts.
            BreakerOpen: No message succeeded for too long; with `until_idle` that is a minute, or that time,
                over failures that the classifier names.
            HandlerTimeout: A handler did not end within twice its timeout.
        """
        idle = self._to_run(drain_timeout, until_idle)
        with Signals(self.stop):
            self.start()
            while not self._stopping.wait(None if idle is None else idle.interval):
                if idle is not None and idle.over():
                    break
        report = self.drain(drain_timeout)
        self._end.raise_error()
        return report

    def stop(self) -> None:
        """End `run` and `wait`. Callable from any thread and from a signal handler."""
        self._stopping.set()

    def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Wait until consuming is stopped by `stop`, `drain`, `close` or an error. Several threads may wait.

        A handler may wait, too: it wakes when the connection asks it to end.

        Args:
            timeout: Seconds, or a timedelta; None: for ever.

        Returns:
            True if consuming was stopped, False if the time was over first.

        Raises:
            ConfigurationError: The connection was never open, or the process was forked after that.
            Exception: `connection.error`, as `run` raises it.
        """
        stopped = self.wait_stopped(timeout)
        if stopped:
            self._end.raise_error()
        return stopped

    def wait_stopped(self, timeout: float | timedelta | None = None) -> bool:
        """Wait as `wait` does, but do not raise `connection.error`.

        Args:
            timeout: Seconds, or a timedelta; None: for ever.

        Returns:
            True if consuming was stopped, False if the time was over first.

        Raises:
            ConfigurationError: The connection was never open, or the process was forked after that.
        """
        limit = None if timeout is None else seconds(timeout, "timeout", none="to wait for ever")
        self._check_entered()
        return self._stopping.wait_by(self._clock, limit)

    def running(self, drain_timeout: float = 30.0) -> AbstractContextManager[Self]:
        """Return a context manager that connects and starts the listeners, and drains and closes at its end.

        Inside of the connection's own `with` block it only starts and drains. It installs no signal handlers:
        the program decides about signals.

        Args:
            drain_timeout: Seconds that running handlers get at its end. Default 30.

        Returns:
            The context manager; its value is the connection. It raises what `with`, `start` and `drain`
            raise.

        Raises:
            ConfigurationError: `drain_timeout` is not a duration.
        """
        return self._running(seconds(drain_timeout, "drain_timeout"))

    @contextmanager
    def _running(self, drain_timeout: float) -> Generator[Self]:
        with ExitStack() as stack:
            if not self._entered:
                stack.enter_context(self)
            stack.enter_context(consuming(self, drain_timeout))
            yield self

    def drain(self, timeout: float = 30.0) -> Report:
        """Stop dispatching, let running handlers finish, release the other messages, and report.

        Args:
            timeout: Seconds that running handlers get. Default 30.

        Returns:
            Counters of all consumers of the connection.

        Raises:
            ConfigurationError: `timeout` is not a duration, or the connection was opened before a fork.
        """
        me = threading.current_thread()
        watch = self._begin_drain(timeout, lambda worker: worker.thread is me)
        while waited_for := watch.waited_for():
            join_within(waited_for[0].thread, watch.look())
        watch.end_waiting()
        self._roll_back_sessions()
        for dispatcher in list(self._dispatchers):
            dispatcher.wait_confirmed(watch.deadline)
        self._driver.flush()
        return watch.end(self.report())

    # Sending.

    def send(self, destination: str, body: bytes | str, **options: Unpack[SendOptions]) -> str:
        """Send a message and wait until the broker has confirmed it.

        If the connection is down, wait for the reconnect.

        Args:
            destination: Name of a queue, or `queue://`, `topic://`, `native://`.
            body: `str` arrives as a JMS TextMessage, `bytes` as a BytesMessage.
            headers: Application properties. None: none.
            content_type: MIME type.
            correlation_id: Correlation id.
            reply_to: Destination where an answer is expected; a plain name is a queue.
            priority: 0 to 9. Default 4.
            ttl: Seconds, or a timedelta, until the message expires. None: never.
            group: Message group (JMSXGroupID).
            delay: Seconds, or a timedelta, for which the broker holds the message back. None: none.
            persistent: True if the broker keeps the message over a restart. Default True.
            timeout: Seconds for the reconnect and the confirmation together. None: `redelivery.sendTimeout`
                (default 30). A send that waits for a connection ends when the drain begins.

        Returns:
            The id of the message, which is its `redeliveryId` property.

        Raises:
            ConfigurationError: An argument cannot be honoured, or the connection is not open.
            AdapterError: The broker refused the message.
            BrokerUnavailable: It refused the message for now: a node starts or stops, or has no majority.
            TransportError: There was no connection, it was lost, or no confirmation arrived, within `timeout`
                seconds. The text says whether the message may have been sent.
            TypeError: There is no keyword argument of that name.
        """
        self._check_open()
        identity, message = outgoing(destination, body, options, self._clock)
        timeout, began = time_limit(options, self.settings), self._clock.monotonic()
        with observed_send(self._observers, message, identity, self._clock) as message:
            await_connected(self._driver, message.destination, self._patience(timeout), self._clock)
            sent = self._driver.send(message)
            await_confirmed(sent, message.destination, began + timeout, timeout, self._clock)
        return identity
