"""The asyncio twin of the connection: the same dispatchers and driver, waited for on the loop."""

from __future__ import annotations

import asyncio
import inspect
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Self, Unpack

from redelivery.adapter_support.keyboard_interrupts import closed, opened
from redelivery.async_consumer import AsyncConsumer
from redelivery.async_session import AsyncSession
from redelivery.core.events import Drained
from redelivery.core.option_values import seconds
from redelivery.driver.arguments import ConnectOptions, ConsumerOptions, shows
from redelivery.driver.asyncio_wait import AsyncioWait, answer_on_loop, in_own_thread
from redelivery.driver.connection.connection_base import ConnectionBase
from redelivery.driver.connection.connection_driver import CLOSE_TIMEOUT
from redelivery.driver.connection.send_request import SendOptions, outgoing, time_limit, unconfirmed, unsent
from redelivery.driver.connection.subscribe_request import SUBSCRIBE_TIMEOUT, not_subscribed
from redelivery.driver.consumer.async_worker import work
from redelivery.driver.consumer.message_log import brief
from redelivery.driver.consumer.worker_end import HandlerEscape
from redelivery.driver.session.session_base import SessionPort
from redelivery.errors import ConfigurationError, RedeliveryError

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from types import TracebackType

    from redelivery.core.report import Report
    from redelivery.driver.connection.handler_registration import HandlerRegistration
    from redelivery.driver.consumer.dispatcher import Dispatcher
    from redelivery.driver.session.session_state import SessionState

    _Listener = HandlerRegistration[asyncio.Task[None]]

__all__ = ["AsyncConnection", "connect_async"]


@shows(ConnectOptions)
def connect_async(uri: str, **options: Unpack[ConnectOptions]) -> AsyncConnection:
    """Return the asyncio twin of `redelivery.connect`, with the same arguments. No I/O before `async with`."""
    try:
        return AsyncConnection(uri, **options)
    except RedeliveryError as error:
        raise brief(error) from None


class AsyncConnection(ConnectionBase["asyncio.Task[None]"]):
    """A connection with its consumers and listeners, for asyncio. Made by `connect_async`."""

    _maker = "connect_async"
    _awaits = True

    def __init__(self, uri: str, **options: Unpack[ConnectOptions]) -> None:
        super().__init__(uri, **options)
        self._stopping: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pool: ThreadPoolExecutor | None = None

    async def __aenter__(self) -> Self:
        """Connect: each address is tried once. Raises as `Connection` does."""
        if self._entered:
            raise ConfigurationError(
                "a connection is entered once; make a new one with redelivery.connect_async(...)"
            )
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        try:
            await in_own_thread(self._driver.open)
        # The thread goes on: what it opens must not stay.
        except asyncio.CancelledError:
            with suppress(asyncio.CancelledError):
                await in_own_thread(self._driver.close, 0.0)
            raise
        except RedeliveryError as error:
            raise brief(error) from None
        self._entered = True
        opened(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Close the connection, within `timeout` seconds (5 by default); the broker takes back what is not settled.

        Dead letters and commits on their way are waited for until the broker has confirmed them.
        """
        timeout = seconds(timeout, "timeout")
        if self._entered and not self._closed:
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
                    # What they release is written before the end.
                    await asyncio.wait(tasks, timeout=timeout)
            # Also of a close that is cancelled: nobody could close the connection again.
            finally:
                if self._pool is not None:
                    self._pool.shutdown(wait=False)
                self._roll_back_sessions()
                left = max(0.0, deadline - time.monotonic())
                try:
                    await in_own_thread(self._close_driver, left)
                finally:
                    closed(self)

    def _tasks(self) -> list[asyncio.Task[None]]:
        """Return the workers' tasks, but for the one that asks."""
        me = asyncio.current_task()
        return [task for listener in self._listeners for task in listener.runners if task is not me]

    # Consuming.

    async def consumer(self, destination: str, **options: Unpack[ConsumerOptions]) -> AsyncConsumer:
        """Start a consumer to pull from: `async with await connection.consumer("orders") as consumer`.

        Args:
            destination: as for `Connection.consumer`, and so are the errors.
            selector, subscription, credit, ordering, errors, breaker, rate, maximum_set_aside: as there.
        """
        self._check_open()
        dispatcher, waiter = await self._awaited(destination, options)
        dispatcher.pulled = True
        return AsyncConsumer(dispatcher, waiter, self._driver.unsubscribe)

    def session(self, mode: str = "individual") -> AsyncSession:
        """Return a session. Argument and errors as for `Connection.session`."""
        self._check_open()
        front = self._check_open, self._awaited, self._listening, self.send, self._patience
        self._began(session := AsyncSession(SessionPort(self._driver, self._clock, *front), mode))
        return session

    async def _awaited(
        self, destination: str, options: ConsumerOptions, session_state: SessionState | None = None
    ) -> tuple[Dispatcher, AsyncioWait]:
        assert self._loop is not None, "checked by _check_open"
        dispatcher = self._dispatcher(destination, options, session_state)
        deadline = self._clock.monotonic() + SUBSCRIBE_TIMEOUT
        try:
            await answer_on_loop(deadline, self._driver.subscribe(dispatcher), self._clock)
        # Also a cancelled one: no trace of it is left.
        except BaseException as error:
            self._driver.unsubscribe(dispatcher, 0.0)  # on the loop: it must not wait
            if isinstance(error, TimeoutError):
                raise not_subscribed(dispatcher.subscribe.destination) from None
            raise
        waiter = AsyncioWait(self._loop, self._clock)
        dispatcher.on_ready = waiter.wake
        return dispatcher, waiter

    async def start(self) -> None:
        """Start the listeners' tasks and return; `run` does it too."""
        self._check_open()
        self._check_fresh()
        plain = sum(x.workers for x in self._listeners if not inspect.iscoroutinefunction(x.handler))
        if plain and self._pool is None:
            self._pool = ThreadPoolExecutor(plain, thread_name_prefix="redelivery-worker")
        for listener in self._listeners:
            if listener.dispatcher is None and not listener.ended:
                listener.dispatcher, waiter = await self._awaited(
                    listener.destination, listener.options, listener.session_state
                )
                pool = None if inspect.iscoroutinefunction(listener.handler) else self._pool
                listener.runners = [
                    asyncio.create_task(self._work(listener, listener.dispatcher, waiter, pool))
                    for _ in range(listener.workers)
                ]

    async def run(self, *, drain_timeout: float = 30.0, until_idle: float | None = None) -> Report:
        """Run the listeners until `stop`, SIGTERM or SIGINT, drain, and report, as `Connection.run` does.

        With `until_idle`, also once nothing has come, run or waited for so many seconds; never during an outage.
        A cancelled `run` drains nothing: what is unsettled goes back to the broker when the connection closes.
        """
        idle = self._to_run(drain_timeout, until_idle)
        await self.start()
        assert self._stopping is not None, "checked by start"
        handled = self._handle_signals()
        try:
            interval = self._interval(idle)
            while not (self._stopping.is_set() or (idle is not None and idle.over()) or self._stuck()):
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), interval)
        finally:
            self._restore_signals(handled)
        report = await self.drain(drain_timeout)
        if self._failure is not None:
            raise self._failure
        return report

    def stop(self) -> None:
        """End `run`, from any thread."""
        if self._loop is not None and self._stopping is not None:
            # The loop is closed: there is nothing to end.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stopping.set)

    async def drain(self, timeout: float = 30.0) -> Report:
        """Stop dispatching, let running handlers finish for `timeout` seconds, give the rest back, and report."""
        timeout = seconds(timeout, "timeout")
        self._drained = True
        self.stop()
        deadline = self._clock.monotonic() + timeout
        for dispatcher in list(self._dispatchers):
            dispatcher.feed(Drained())
            dispatcher.stop()
        tasks = self._tasks()
        if tasks:
            await asyncio.wait(tasks, timeout=timeout)
        self._roll_back_sessions()
        for dispatcher in list(self._dispatchers):
            await in_own_thread(dispatcher.wait_confirmed, deadline)
        self._driver.flush()
        return self.report()

    def _handle_signals(self) -> list[signal.Signals]:
        handled: list[signal.Signals] = []
        assert self._loop is not None, "entered"
        for number in (signal.SIGTERM, signal.SIGINT):
            # Only the main thread's loop can take signals; elsewhere `stop` is the way to end.
            with suppress(ValueError, RuntimeError, NotImplementedError):
                self._loop.add_signal_handler(number, self._signalled)
                handled.append(number)
        return handled

    def _signalled(self) -> None:
        # A second one acts as it always did.
        self._restore_signals([signal.SIGTERM, signal.SIGINT])
        self.stop()

    def _restore_signals(self, handled: list[signal.Signals]) -> None:
        assert self._loop is not None, "entered"
        for number in handled:
            self._loop.remove_signal_handler(number)

    async def _work(
        self, of: _Listener, dispatcher: Dispatcher, waiter: AsyncioWait, pool: Executor | None
    ) -> None:
        try:
            await work(dispatcher, waiter, of.handler, pool, of.overdue)
        except HandlerEscape as escape:
            self._worker_ended(dispatcher, escape.error)
        except GeneratorExit:
            # Its loop is gone.
            raise
        except asyncio.CancelledError as error:
            # Unless nobody wants it any more: its own handler may have cancelled it, or anybody who has the task.
            if not (self._closed or self._drained):
                self._worker_ended(dispatcher, error)
            raise
        except BaseException as error:  # noqa: BLE001 - handed to `run`, which raises it
            self._worker_ended(dispatcher, error)

    async def send(self, destination: str, body: bytes | str, **options: Unpack[SendOptions]) -> str:
        """Send a message, wait for the broker's confirmation, return its id. Errors as `Connection.send`.

        Args:
            destination: a queue by default; `topic://`, `native://`.
            body: `str` arrives as a JMS TextMessage, `bytes` as a BytesMessage.
            headers, content_type, correlation_id, reply_to, priority, ttl, group, delay, persistent, timeout: as for
                `Connection.send`.
        """
        self._check_open()
        identity, message = outgoing(destination, body, options, self._clock)
        timeout, began = time_limit(options), self._clock.monotonic()
        if not self._driver.up:
            limit = self._patience(timeout)
            try:
                await answer_on_loop(began + limit, self._driver.standing(), self._clock)
            except TimeoutError:
                raise unsent(message.destination, limit) from None
        try:
            await answer_on_loop(began + timeout, self._driver.send(message), self._clock)
        except TimeoutError:
            raise unconfirmed(message.destination, timeout) from None
        return identity
