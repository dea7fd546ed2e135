"""Asyncio connection: the dispatchers and driver of `Connection`, awaited on the event loop."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Self, Unpack

from redelivery.adapter_support.keyboard_interrupts import closed, opened
from redelivery.async_consumer import AsyncConsumer
from redelivery.async_session import AsyncSession
from redelivery.core.application_functions import is_async_callable
from redelivery.core.option_values import seconds
from redelivery.driver.arguments import ConnectOptions, ConsumerOptions, shows
from redelivery.driver.connection.connection_base import ConnectionBase
from redelivery.driver.connection.connection_driver import CLOSE_TIMEOUT
from redelivery.driver.connection.connection_end import LoopSignals
from redelivery.driver.connection.embedding import consuming_async, lifespan_of
from redelivery.driver.connection.sends import SendOptions, observed_send, outgoing, time_limit
from redelivery.driver.connection.subscribe_request import not_subscribed
from redelivery.driver.connection.vital_signs import Pulse
from redelivery.driver.consumer.async_worker import AsyncWorker, HandlerThreads
from redelivery.driver.listener_hooks import HookTasks
from redelivery.driver.session.session_base import SessionPort
from redelivery.driver.waiting import (
    AsyncioWait,
    answer_on_loop,
    event_within,
    in_own_thread,
    sent_on_loop,
)
from redelivery.errors import ConfigurationError, RedeliveryError
from redelivery.log import brief

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from contextlib import AbstractAsyncContextManager
    from datetime import timedelta
    from types import TracebackType

    from redelivery.core.report import Report
    from redelivery.driver.consumer.dispatcher import Dispatcher
    from redelivery.driver.session.session_state import SessionState

__all__ = ["AsyncConnection", "connect_async"]


@shows(ConnectOptions)
def connect_async(uri: str, **options: Unpack[ConnectOptions]) -> AsyncConnection:
    """Return an asyncio connection to a broker, not yet connected. Arguments as for `redelivery.connect`.

    It connects when its `async with` block is entered. No I/O happens before.

    Args:
        uri: `memory://name`, `stomp://host:port`, `stomp+ssl://…`, `amqp://…`, `amqps://…` or `failover:(…)`,
            with options.

    Returns:
        The connection, not yet open.

    Raises:
        ConfigurationError: An option or an argument cannot be honoured.
        TypeError: There is no keyword argument of that name.
    """
    try:
        return AsyncConnection(uri, **options)
    except RedeliveryError as error:
        raise brief(error) from None


class AsyncConnection(ConnectionBase[AsyncWorker]):
    """Connection with its consumers, listeners and sessions, for asyncio.

    Made by `connect_async`; use it in an `async with` block.

    Leaving the block closes the connection. Then it raises `error`, unless `run`, `wait` or `on_stopped`
    reported that error already.
    """

    _maker = "connect_async"
    _awaits = True

    def __init__(self, uri: str, **options: Unpack[ConnectOptions]) -> None:
        super().__init__(uri, **options)
        self._stopping: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread: int | None = None
        self._pool: HandlerThreads | None = None
        self._pulse = Pulse()
        # True if entering it succeeds although no address answers; it connects in the background then.
        self._later = False
        self._hook_calls = self._hook_tasks = HookTasks()
        self._attach_observers()

    async def __aenter__(self) -> Self:
        """Connect. Each address is tried once, unless `startupMaxReconnectAttempts` says otherwise.

        Returns:
            The connection.

        Raises:
            ConfigurationError: The connection was entered before; a setting cannot work with this broker; or no loop
                of asyncio runs.
            TransportError: No address answered.
            BrokerUnavailable: A broker refused the log-in for now, and none took it.
            AdapterError: A broker refused the log-in.
            LedgerError: The ledger cannot count attempts.
        """
        if self._entered:
            raise ConfigurationError(
                "a connection is entered once; make a new one with redelivery.connect_async(...)"
            )
        self._loop, self._loop_thread = _running_loop(), threading.get_ident()
        self._stopping = asyncio.Event()
        self._hook_tasks.entered(self._loop)
        try:
            await in_own_thread(self._driver.open, later=self._later, patient=self._patient)
        # The thread goes on: the connection that it opens must be closed.
        except asyncio.CancelledError:
            with suppress(asyncio.CancelledError):
                await in_own_thread(self._driver.close, 0.0)
            raise
        except RedeliveryError as error:
            raise brief(error) from None
        self._entered, self._process = True, os.getpid()
        opened(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close; then raise the listeners' `error`, unless it was raised or given to `on_stopped` before."""
        await self.close()
        if error is None and not self._forked():
            self._raise_unseen()

    async def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Close the connection. The broker takes back the unsettled messages.

        Waits until the broker has confirmed the dead letters and commits that were sent. Cancels the
        workers' tasks, and with them `async def` handlers.

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
            self.stop()
            deadline = time.monotonic() + timeout
            tasks = self._tasks()
            for listener in self._listeners:
                if listener.dispatcher is not None:
                    # A handler may swallow the cancellation: its worker gets no other message.
                    listener.dispatcher.stop()
            for task in tasks:
                task.cancel()
            try:
                if tasks:
                    # Releases by the cancelled tasks are written before the connection closes.
                    await asyncio.wait(tasks, timeout=timeout)
            # Also of a cancelled close: the connection is marked as closed, and no later call would close it.
            finally:
                if self._pool is not None:
                    self._pool.shutdown(wait=False)
                self._roll_back_sessions()
                left = max(0.0, deadline - time.monotonic())
                try:
                    await in_own_thread(self._close_driver, left)
                    await self._hook_tasks.wait(max(0.0, deadline - time.monotonic()))
                finally:
                    self._hook_tasks.end()
                    closed(self)

    def _tasks(self) -> list[asyncio.Task[None]]:
        """Return the tasks of the workers, without the current one."""
        me = asyncio.current_task()
        return [each.task for listener in self._listeners for each in listener.runners if each.task is not me]

    # Consuming.

    async def consumer(self, destination: str, **options: Unpack[ConsumerOptions]) -> AsyncConsumer:
        """Start a consumer to pull from: `async with await connection.consumer("orders") as consumer`.

        Args:
            destination: As for `Connection.consumer`, and so are the errors.
            selector, subscription, credit, ordering, errors, breaker, rate, observers: As for
                `Connection.consumer`.
            dead_letter, maximum_set_aside: As for `Connection.consumer`.

        Returns:
            The consumer, which the broker has confirmed.
        """
        self._check_open()
        dispatcher, waiter = await self._awaited(destination, options)
        dispatcher.pulled = True
        return AsyncConsumer(dispatcher, waiter, self._driver.unsubscribe)

    def session(self, mode: str = "individual") -> AsyncSession:
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
        front = self.settings, self._check_open, self._awaited, self._listening, self.send, self._patience
        self._began(session := AsyncSession(SessionPort(self._driver, self._clock, *front), mode))
        return session

    async def _awaited(
        self,
        destination: str,
        options: ConsumerOptions,
        session_state: SessionState | None = None,
        workers: int = 0,
    ) -> tuple[Dispatcher, AsyncioWait]:
        try:
            return await self._subscribed(destination, options, session_state, workers)
        except RedeliveryError as error:
            raise brief(error) from None

    async def _subscribed(
        self, destination: str, options: ConsumerOptions, session_state: SessionState | None, workers: int
    ) -> tuple[Dispatcher, AsyncioWait]:
        assert self._loop is not None, "checked by _check_open"
        dispatcher = self._dispatcher(destination, options, session_state, workers)
        deadline = self._clock.monotonic() + self._driver.subscribe_timeout
        try:
            await answer_on_loop(deadline, self._driver.subscribe(dispatcher), self._clock)
        # Also if this call is cancelled: the consumer is removed.
        except BaseException as error:
            self._driver.unsubscribe(dispatcher, 0.0)  # on the loop: it must not wait
            if isinstance(error, TimeoutError):
                raise not_subscribed(dispatcher.subscribe) from None
            raise
        waiter = AsyncioWait(self._loop, self._clock)
        dispatcher.on_ready = waiter.wake
        return dispatcher, waiter

    async def start(self) -> None:
        """Start the tasks of the listeners and return. `run` calls it, too.

        Raises:
            ConfigurationError: The connection is not open, or it was drained.
            AdapterError: The broker refused a subscription.
            TransportError: The broker did not confirm a subscription in time.
        """
        self._check_open()
        self._check_fresh()
        plain = sum(x.workers for x in self._listeners if not is_async_callable(x.handler))
        if plain and self._pool is None:
            self._pool = HandlerThreads(plain, self._clock)
        for listener in self._listeners:
            if listener.dispatcher is None and not listener.ended:
                listener.dispatcher, waiter = await self._awaited(
                    listener.destination, listener.options, listener.session_state, listener.workers
                )
                pool = None if is_async_callable(listener.handler) else self._pool
                how = listener.handler, waiter, pool, self._worker_ended, self._wants_workers
                listener.runners = [
                    AsyncWorker(self._run_of(listener), *how) for _ in range(listener.workers)
                ]
                self._began_to_consume(listener.dispatcher)

    def _wants_workers(self) -> bool:
        return not (self._closed or self._drained)

    async def run(self, *, drain_timeout: float = 30.0, until_idle: float | None = None) -> Report:
        """Run the listeners until `stop`, SIGTERM or SIGINT; then drain and report, as `Connection.run` does.

        A cancelled `run` does not drain. The broker takes back the unsettled messages when the connection
        closes.

        Args:
            drain_timeout: Seconds that running handlers get at the end. Default 30.
            until_idle: Seconds after which `run` also ends if no message arrived, ran or was parked
                meanwhile. None: no such end. While the connection is down it does not end.

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
        await self.start()
        assert self._stopping is not None, "checked by start"
        assert self._loop is not None, "checked by start"
        with LoopSignals(self._loop, self.stop):
            interval = None if idle is None else idle.interval
            while not (self._stopping.is_set() or (idle is not None and idle.over())):
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), interval)
        report = await self.drain(drain_timeout)
        self._end.raise_error()
        return report

    def stop(self) -> None:
        """End `run` and `wait`. Callable from any thread."""
        if self._loop is not None and self._stopping is not None:
            # RuntimeError: the loop is closed, and nothing runs on it.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stopping.set)

    async def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Wait until consuming is stopped by `stop`, `drain`, `close` or an error.

        Callable only on the loop that entered the connection.

        Args:
            timeout: Seconds, or a timedelta; None: for ever.

        Returns:
            True if consuming was stopped, False if the time was over first.

        Raises:
            ConfigurationError: The connection was never open, or the process was forked after that.
            Exception: `connection.error`, as `run` raises it.
        """
        stopped = await self.wait_stopped(timeout)
        if stopped:
            self._end.raise_error()
        return stopped

    async def wait_stopped(self, timeout: float | timedelta | None = None) -> bool:
        """Wait as `wait` does, but do not raise `connection.error`.

        For `asyncio.wait` together with other tasks.

        Args:
            timeout: Seconds, or a timedelta; None: for ever.

        Returns:
            True if consuming was stopped, False if the time was over first.

        Raises:
            ConfigurationError: The connection was never open, or the process was forked after that.
        """
        limit = None if timeout is None else seconds(timeout, "timeout", none="to wait for ever")
        self._check_entered()
        assert self._stopping is not None, "it is entered"
        return await event_within(self._stopping, limit, self._clock)

    def running(
        self, drain_timeout: float = 30.0, *, required: bool = True
    ) -> AbstractAsyncContextManager[Self]:
        """Return a context manager that connects and starts the listeners, and drains and closes at its end.

        Inside of the connection's own `async with` block it only starts and drains. It installs no signal
        handlers.

        Args:
            drain_timeout: Seconds that running handlers get at its end. Default 30.
            required: True: a broker that cannot be reached at the start raises TransportError. False: the
                block begins without the broker after one try of each address (10 s at most); connecting and
                starting go on in the background, and `health()` is not ready until then.

        Returns:
            The context manager; its value is the connection. It raises what `async with`, `start` and `drain`
            raise.

        Raises:
            ConfigurationError: `drain_timeout` is not a duration.
        """
        return self._running(seconds(drain_timeout, "drain_timeout"), required=required)

    @asynccontextmanager
    async def _running(self, drain_timeout: float, *, required: bool) -> AsyncGenerator[Self]:
        async with AsyncExitStack() as stack:
            if not self._entered:
                self._later = not required
                await stack.enter_async_context(self)
            connects = self._driver.capabilities is None
            await stack.enter_async_context(
                consuming_async(
                    self, drain_timeout, self._driver.standing if connects else None, self._end.fail
                )
            )
            yield self

    def lifespan(
        self, drain_timeout: float = 25.0, *, required: bool = False
    ) -> Callable[[Any], AbstractAsyncContextManager[None]]:
        """Return the lifespan of an ASGI application: `FastAPI(lifespan=connection.lifespan())`.

        It is `running` with these arguments. The connection is `app.state.redelivery`.

        Args:
            drain_timeout: Seconds that running handlers get at its end. Default 25. Requests that wait for the
                broker, and closing, add up to 10: give a pod 40 instead of Kubernetes' 30.
            required: As for `running`. Default False.

        Returns:
            Function of the application that returns a context manager.
        """
        return lifespan_of(self, drain_timeout, required=required)

    async def drain(self, timeout: float = 30.0) -> Report:
        """Stop dispatching, let running handlers finish, release the other messages, and report.

        Args:
            timeout: Seconds that running handlers get. Default 30.

        Returns:
            Counters of all consumers of the connection.

        Raises:
            ConfigurationError: `timeout` is not a duration, or the connection was opened before a fork.
        """
        me = asyncio.current_task()
        watch = self._begin_drain(timeout, lambda worker: worker.task is me)
        while waited_for := watch.waited_for():
            await asyncio.wait([worker.task for worker in waited_for], timeout=watch.look())
        watch.end_waiting()
        self._roll_back_sessions()
        for dispatcher in list(self._dispatchers):
            await in_own_thread(dispatcher.wait_confirmed, watch.deadline)
        self._driver.flush()
        return watch.end(self.report())

    def _elsewhere(self, call: Callable[[], None]) -> object:
        """Call a function on the event loop."""
        if self._loop is None:
            raise RuntimeError("the connection was not entered: it has no event loop")
        return self._loop.call_soon_threadsafe(call)

    def _loop_silence(self) -> float | None:
        """Return the seconds for which the event loop has not answered; None: the loop is closed."""
        if self._loop is None or threading.get_ident() == self._loop_thread:
            return 0.0
        silence = self._pulse.ask(self._clock.monotonic())
        try:
            self._loop.call_soon_threadsafe(self._pulse.answer)
        except RuntimeError:
            return None
        return silence

    async def send(self, destination: str, body: bytes | str, **options: Unpack[SendOptions]) -> str:
        """Send a message and wait until the broker has confirmed it.

        If the connection is down, wait for the reconnect.

        Args:
            destination: Name of a queue, or `queue://`, `topic://`, `native://`.
            body: `str` arrives as a JMS TextMessage, `bytes` as a BytesMessage.
            headers, content_type, correlation_id, reply_to, priority, ttl, group, delay, persistent, timeout:
                As for `Connection.send`.

        Returns:
            The id of the message, which is its `redeliveryId` property.

        Raises:
            ConfigurationError: An argument cannot be honoured, or the connection is not open.
            AdapterError: The broker refused the message.
            BrokerUnavailable: It refused the message for now: a node starts or stops, or has no majority.
            TransportError: There was no connection, it was lost, or no confirmation arrived, within `timeout`
                seconds. The text says whether the message may have been sent.
        """
        self._check_open()
        identity, message = outgoing(destination, body, options, self._clock)
        timeout, began = time_limit(options, self.settings), self._clock.monotonic()
        with observed_send(self._observers, message, identity, self._clock) as message:
            limit = self._patience(timeout)
            await sent_on_loop(self._driver, message, began, (timeout, limit), self._clock)
        return identity


def _running_loop() -> asyncio.AbstractEventLoop:
    """Return asyncio's loop of this thread. Raises ConfigurationError if there is none, as under Trio."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise ConfigurationError(
            "redelivery.connect_async needs asyncio; elsewhere use redelivery.connect in a thread of its own"
        ) from None
