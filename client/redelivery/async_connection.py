"""The asyncio twin of the connection: the same dispatchers and driver, waited for on the loop."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Self, Unpack

from redelivery.adapter_support.keyboard_interrupts import closed, opened
from redelivery.async_consumer import AsyncConsumer
from redelivery.async_session import AsyncSession
from redelivery.core.option_values import seconds
from redelivery.driver.arguments import ConnectOptions, ConsumerOptions
from redelivery.driver.asyncio_wait import (
    AsyncioWait,
    answer_on_loop,
    event_within,
    in_own_thread,
    sent_on_loop,
)
from redelivery.driver.connection.connection_base import ConnectionBase
from redelivery.driver.connection.connection_driver import CLOSE_TIMEOUT
from redelivery.driver.connection.embedding import consuming_async, lifespan_of
from redelivery.driver.connection.hook_tasks import HookTasks
from redelivery.driver.connection.observed_send import observed_send
from redelivery.driver.connection.pulse import Pulse
from redelivery.driver.connection.send_request import SendOptions, outgoing, time_limit
from redelivery.driver.connection.signals import LoopSignals
from redelivery.driver.connection.subscribe_request import SUBSCRIBE_TIMEOUT, not_subscribed
from redelivery.driver.consumer.async_worker import AsyncWorker
from redelivery.driver.consumer.handler_threads import HandlerThreads
from redelivery.driver.session.session_base import SessionPort
from redelivery.driver.shown_arguments import shows
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
    """Return the asyncio twin of `redelivery.connect`, with the same arguments. No I/O before `async with`."""
    try:
        return AsyncConnection(uri, **options)
    except RedeliveryError as error:
        raise brief(error) from None


class AsyncConnection(ConnectionBase[AsyncWorker]):
    """A connection with its consumers and listeners, for asyncio. Made by `connect_async`."""

    _maker = "connect_async"
    _awaits = True

    def __init__(self, uri: str, **options: Unpack[ConnectOptions]) -> None:
        super().__init__(uri, **options)
        self._stopping: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread: int | None = None
        self._pool: HandlerThreads | None = None
        self._pulse = Pulse()
        # Whether it is entered although no address answers, and connects in the background.
        self._later = False
        self._hook_calls = self._hook_tasks = HookTasks()
        self._attach_observers()

    async def __aenter__(self) -> Self:
        """Connect: each address is tried once. Raises as `Connection` does."""
        if self._entered:
            raise ConfigurationError(
                "a connection is entered once; make a new one with redelivery.connect_async(...)"
            )
        self._loop, self._loop_thread = asyncio.get_running_loop(), threading.get_ident()
        self._stopping = asyncio.Event()
        self._hook_tasks.entered(self._loop)
        try:
            await in_own_thread(self._driver.open, later=self._later, patient=self._patient)
        # The thread goes on: what it opens must not stay.
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
        """Close; then raise the `error` of the listeners, unless it was raised or given to `on_stopped` before."""
        await self.close()
        if error is None and not self._forked():
            self._raise_unseen()

    async def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Close the connection, within `timeout` seconds (5 by default); the broker takes back what is not settled.

        Dead letters and commits on their way are waited for until the broker has confirmed them.
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
                    await self._hook_tasks.wait(max(0.0, deadline - time.monotonic()))
                finally:
                    closed(self)

    def _tasks(self) -> list[asyncio.Task[None]]:
        """Return the workers' tasks, but for the one that asks."""
        me = asyncio.current_task()
        return [each.task for listener in self._listeners for each in listener.runners if each.task is not me]

    # Consuming.

    async def consumer(self, destination: str, **options: Unpack[ConsumerOptions]) -> AsyncConsumer:
        """Start a consumer to pull from: `async with await connection.consumer("orders") as consumer`.

        Args:
            destination: as for `Connection.consumer`, and so are the errors.
            selector, subscription, credit, ordering, errors, breaker, rate, observers, maximum_set_aside: as there.
        """
        self._check_open()
        dispatcher, waiter = await self._awaited(destination, options)
        dispatcher.pulled = True
        return AsyncConsumer(dispatcher, waiter, self._driver.unsubscribe)

    def session(self, mode: str = "individual") -> AsyncSession:
        """Return a session. Argument and errors as for `Connection.session`."""
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
        assert self._loop is not None, "checked by _check_open"
        dispatcher = self._dispatcher(destination, options, session_state, workers)
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
            self._pool = HandlerThreads(plain)
        for listener in self._listeners:
            if listener.dispatcher is None and not listener.ended:
                listener.dispatcher, waiter = await self._awaited(
                    listener.destination, listener.options, listener.session_state, listener.workers
                )
                pool = None if inspect.iscoroutinefunction(listener.handler) else self._pool
                how = listener.handler, waiter, pool, self._worker_ended, self._wants_workers
                listener.runners = [
                    AsyncWorker(self._run_of(listener), *how) for _ in range(listener.workers)
                ]
                self._began_to_consume(listener.dispatcher)

    def _wants_workers(self) -> bool:
        return not (self._closed or self._drained)

    async def run(self, *, drain_timeout: float = 30.0, until_idle: float | None = None) -> Report:
        """Run the listeners until `stop`, SIGTERM or SIGINT, drain, and report, as `Connection.run` does.

        With `until_idle`, also once nothing has come, run or waited for so many seconds; never during an outage.
        A cancelled `run` drains nothing: what is unsettled goes back to the broker when the connection closes.
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
        """End `run` and `wait`, from any thread."""
        if self._loop is not None and self._stopping is not None:
            # The loop is closed: there is nothing to end.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stopping.set)

    async def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Wait until consuming has been stopped, as `Connection.wait` does; on the loop that entered the connection."""
        stopped = await self.wait_stopped(timeout)
        if stopped:
            self._end.raise_error()
        return stopped

    async def wait_stopped(self, timeout: float | timedelta | None = None) -> bool:
        """Wait as `wait` does, and do not raise `connection.error`: for `asyncio.wait` beside other tasks."""
        limit = None if timeout is None else seconds(timeout, "timeout", none="to wait for ever")
        self._check_entered()
        assert self._stopping is not None, "it is entered"
        return await event_within(self._stopping, limit, self._clock)

    def running(
        self, drain_timeout: float = 30.0, *, required: bool = True
    ) -> AbstractAsyncContextManager[Self]:
        """Return a context manager that consumes while it lasts: it connects, starts, and at its end drains and closes.

        Inside of the connection's own `async with` it starts and drains only. It takes no signals.

        Args:
            drain_timeout: seconds that running handlers get at its end.
            required: whether a broker that cannot be reached at the start raises TransportError. False: it begins all
                the same, and connects and starts in the background; until then `health()` is not ready.

        Errors as `async with`, `start` and `drain`; at its end it raises what `async with` raises there.
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

        It is `running` with these arguments; the connection is `app.state.redelivery`. The default of `drain_timeout`,
        in seconds, leaves 5 of the 30 that Kubernetes gives a pod.
        """
        return lifespan_of(self, drain_timeout, required=required)

    async def drain(self, timeout: float = 30.0) -> Report:
        """Stop dispatching, let running handlers finish for `timeout` seconds, give the rest back, and report."""
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
        """Have a function called on the loop."""
        if self._loop is None:
            raise RuntimeError("there is no loop yet")
        return self._loop.call_soon_threadsafe(call)

    def _loop_silence(self) -> float | None:
        """Return the seconds for which the event loop has not answered; None: it is closed."""
        if self._loop is None or threading.get_ident() == self._loop_thread:
            return 0.0
        silence = self._pulse.ask(self._clock.monotonic())
        try:
            self._loop.call_soon_threadsafe(self._pulse.answer)
        except RuntimeError:
            return None
        return silence

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
        timeout, began = time_limit(options, self.settings), self._clock.monotonic()
        with observed_send(self._observers, message, identity, self._clock) as message:
            limit = self._patience(timeout)
            await sent_on_loop(self._driver, message, began, (timeout, limit), self._clock)
        return identity
