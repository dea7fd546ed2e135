"""The synchronous connection."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Self, Unpack

from redelivery.adapter_support.keyboard_interrupts import closed, opened
from redelivery.clock import join_within
from redelivery.consumer import Consumer
from redelivery.core.option_values import seconds
from redelivery.driver.arguments import ConnectOptions, ConsumerOptions
from redelivery.driver.connection.connection_base import ConnectionBase
from redelivery.driver.connection.connection_driver import CLOSE_TIMEOUT
from redelivery.driver.connection.embedding import consuming
from redelivery.driver.connection.observed_send import observed_send
from redelivery.driver.connection.send_request import SendOptions, outgoing, time_limit
from redelivery.driver.connection.signals import Signals, Stopping
from redelivery.driver.consumer.worker import Worker
from redelivery.driver.session.session_base import SessionPort
from redelivery.driver.shown_arguments import shows
from redelivery.driver.thread_wait import await_confirmed, await_connected, await_subscription
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
    """Return a connection to a broker. No I/O happens before `with`.

    Args:
        uri: `memory://name`, `stomp://host:port`, `stomp+ssl://…` or `failover:(…)`, with options.
        policies: instead of policies in the URI.
        errors: a `redelivery.Classifier`: what becomes of a message by the type of its exception.
        breaker: a `redelivery.Breaker`: when consumers pause because everything fails; None: never. On by default.
        ledger: where attempts are counted durably (`SqliteLedger`), instead of `redelivery.ledger` in the URI.
        observers: what is shown the events of the connection, in order: `redelivery.events.Observer`s, or functions of
            one event. No lock is held meanwhile; they must not block. What they raise is logged and changes nothing.
        send_timeout: seconds, or a timedelta, that a `send` may take, instead of `redelivery.sendTimeout` in the URI.
            Default 30.
        on_stopped: called once, with `connection.error`, when an error ends consuming by itself; on a thread of its
            own, with `connect_async` on the event loop. What it raises is logged.
        clock: a `redelivery.testing.ManualClock` in tests.

    Raises:
        ConfigurationError: an option, or an argument, cannot be honoured.
    """
    try:
        return Connection(uri, **options)
    except RedeliveryError as error:
        raise brief(error) from None


class Connection(ConnectionBase[Worker]):
    """A connection with its consumers and listeners. Use it as a context manager; made by `connect`."""

    def __init__(self, uri: str, **options: Unpack[ConnectOptions]) -> None:
        super().__init__(uri, **options)
        self._stopping = Stopping()
        self._attach_observers()

    def __enter__(self) -> Self:
        """Connect: each address is tried once.

        Raises:
            TransportError: no address answered.
            AdapterError: a broker refused the log-in.
            LedgerError: the ledger cannot count.
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
        """Close; then raise the `error` of the listeners, unless it was raised or given to `on_stopped` before."""
        self.close()
        if error is None and not self._forked():
            self._end.wait_called(CLOSE_TIMEOUT)
            self._raise_unseen()

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Close the connection, within `timeout` seconds (5 by default); the broker takes back what is not settled.

        Dead letters and commits on their way are waited for until the broker has confirmed them. In a child process
        after a fork it leaves the parent's connection alone.
        """
        timeout = seconds(timeout, "timeout")
        if self._forked():
            closed(self)
        elif self._entered and not self._closed:
            self._closed = True
            self._stopping.set()
            try:
                self._roll_back_sessions()
                self._close_driver(timeout)
            finally:
                closed(self)

    # Consuming.

    def consumer(self, destination: str, **options: Unpack[ConsumerOptions]) -> Consumer:
        """Start a consumer to pull from.

        Args:
            destination: a queue by default; `topic://`; `native://` is the broker's own address, untouched.
            selector: a JMS selector, evaluated by the broker.
            subscription: the name of a durable topic subscription; needs `jms.clientID` in the URI.
            credit: messages that may be unsettled here at once; the URI's by default (`auto`: 16, up to 1000 while more
                are held or the rate is high).
            ordering: `non_blocking`, `blocking` or `per_group`; the URI's by default.
            errors: a `redelivery.Classifier` instead of the connection's.
            breaker: a `redelivery.Breaker` instead of the connection's; None: no breaker.
            rate: messages to handle at most: a `redelivery.Rate`, or a number a second; the URI's by default.
            observers: what is shown the events of this consumer, after the connection's; see `redelivery.events`.
            maximum_set_aside: messages that may be set aside, for they cannot be dead-lettered; the URI's (100).

        Raises:
            ConfigurationError: the arguments cannot be honoured.
            AdapterError: the broker refused the subscription.
            TransportError: the broker did not confirm it in time.
        """
        self._check_open()
        dispatcher = self._subscribed(destination, options)
        dispatcher.pulled = True
        return Consumer(dispatcher, self._driver.unsubscribe)

    def session(self, mode: str = "individual") -> Session:
        """Return a session: consumers, listeners and sends that are settled together.

        Args:
            mode: `auto`, `client`, `individual`, `transacted` or `dups_ok`; see docs/sessions.md.

        Raises:
            ConfigurationError: there is no such mode, or the broker has no transactions over this protocol.
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
        """Start a consumer and wait until the broker has confirmed it; no trace of it is left otherwise."""
        dispatcher = self._dispatcher(destination, options, session_state, workers)
        await_subscription(self._driver, dispatcher, self._clock)
        return dispatcher

    def start(self) -> None:
        """Start the listeners' threads and return; `run` does it too."""
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
        """Run the listeners until `stop`, SIGTERM or SIGINT (in the main thread), drain, and report.

        With `until_idle`, also once nothing has come, run or waited for so many seconds. An outage is not idleness, for
        nobody knows what waits at the broker: while the connection is down, it does not end. What a session holds with
        no handler at work on it, and dead letters without an answer, do not keep it: the report tells of them.

        Draining: no more credit is given, running handlers finish until `drain_timeout` seconds are over, the rest
        is given back uncounted.

        Raises:
            ConfigurationError: there is no listener.
            AdapterError: the broker ended a consumer.
            TransportError: the connection was lost, and reconnecting was given up.
            LedgerError: the ledger cannot count.
            HandlerTimeout: a handler has not ended within twice its timeout.
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
        """End `run` and `wait`, from any thread or signal handler."""
        self._stopping.set()

    def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Wait until consuming has been stopped: by `stop`, `drain`, `close` or an error. Several threads may wait.

        A handler may wait, too: it is woken when it is asked to end.

        Args:
            timeout: seconds, or a timedelta; None: for ever.

        Returns:
            True if it was stopped, False if the time is over.

        Raises:
            ConfigurationError: the connection was never open, or the process was forked after that.
            Exception: `connection.error`, as `run` raises it.
        """
        stopped = self.wait_stopped(timeout)
        if stopped:
            self._end.raise_error()
        return stopped

    def wait_stopped(self, timeout: float | timedelta | None = None) -> bool:
        """Wait as `wait` does, and do not raise `connection.error`."""
        limit = None if timeout is None else seconds(timeout, "timeout", none="to wait for ever")
        self._check_entered()
        return self._stopping.wait_by(self._clock, limit)

    def running(self, drain_timeout: float = 30.0) -> AbstractContextManager[Self]:
        """Return a context manager that consumes while it lasts: it connects, starts, and at its end drains and closes.

        Inside of the connection's own `with` it starts and drains only. It takes no signals: that is the program's
        affair. Errors as `with`, `start` and `drain`; at its end it raises what `with` raises there.
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
        """Stop dispatching, let running handlers finish for `timeout` seconds, give the rest back, and report."""
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
        """Send a message and wait until the broker has confirmed it; return its id (its `redeliveryId` property).

        Args:
            destination: a queue by default; `topic://`, `native://`.
            body: `str` arrives as a JMS TextMessage, `bytes` as a BytesMessage.
            headers: application properties.
            content_type: MIME type.
            correlation_id: correlation id.
            reply_to: where an answer is expected; a queue by default.
            priority: 0 to 9; 4 by default.
            ttl: seconds, or a timedelta, until it expires; never by default.
            group: message group (JMSXGroupID).
            delay: seconds, or a timedelta, that the broker holds it back.
            persistent: whether the broker keeps it over a restart; true by default.
            timeout: seconds for the connection to stand and the broker to confirm, together; by default
                `redelivery.sendTimeout` (30). A send that waits for a connection ends when the drain begins.

        Raises:
            ConfigurationError: an argument cannot be honoured.
            AdapterError: the broker refused the message.
            TransportError: there was no connection, it was lost, or no confirmation came, all within `timeout`
                seconds: the text says whether the message may have been sent.
        """
        self._check_open()
        identity, message = outgoing(destination, body, options, self._clock)
        timeout, began = time_limit(options, self.settings), self._clock.monotonic()
        with observed_send(self._observers, message, identity, self._clock) as message:
            await_connected(self._driver, message.destination, self._patience(timeout), self._clock)
            sent = self._driver.send(message)
            await_confirmed(sent, message.destination, began + timeout, timeout, self._clock)
        return identity
