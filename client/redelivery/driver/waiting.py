"""Waiting for a dispatcher, an answer or a connection: on an asyncio loop, and on the calling thread."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from redelivery.clock import SystemClock, capped
from redelivery.driver.connection.sends import unconfirmed, unsent
from redelivery.driver.connection.subscribe_request import not_subscribed

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.clock import Clock
    from redelivery.core.delivery import Delivery
    from redelivery.core.events import Event
    from redelivery.core.outgoing import Outgoing
    from redelivery.driver.connection.connection_driver import ConnectionDriver
    from redelivery.driver.consumer.dispatcher import Dispatcher
    from redelivery.driver.consumer.observation import Observation

__all__ = [
    "AsyncioWait",
    "answer_by",
    "answer_on_loop",
    "await_confirmed",
    "await_connected",
    "await_subscription",
    "call_later",
    "event_within",
    "in_own_thread",
    "sent_on_loop",
]


# ---- Asyncio wait ----------------------------------------------------------------------------------------
# Waiting on an asyncio loop: for a dispatcher, for an answer, for a call that blocks.

P = ParamSpec("P")
T = TypeVar("T")


async def in_own_thread(function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Await a blocking call in a thread of its own: the loop's executor has few threads, and all may be busy.

    If the awaiting task is cancelled, the call still goes on to its end.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # it can be cancelled no more

    def run() -> None:
        try:
            result = function(*args, **options)
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="redelivery-call", daemon=True).start()
    return await asyncio.wrap_future(future)


async def answer_on_loop(deadline: float, future: Future[None], clock: Clock) -> None:
    """As `answer_by`, without blocking the loop or a thread."""
    if future.done():
        return future.result()
    answer = asyncio.wrap_future(future)
    cancel = call_later(asyncio.get_running_loop(), clock, deadline - clock.monotonic(), answer.cancel)
    try:
        await asyncio.wait([answer])
    finally:
        cancel()
        # No effect if the answer is there; else no task waits for it any longer.
        answer.cancel()
    if answer.cancelled():
        raise TimeoutError
    return answer.result()


async def sent_on_loop(
    driver: ConnectionDriver, message: Outgoing, began: float, limits: tuple[float, float], clock: Clock
) -> None:
    """Send a message, and wait until the broker has confirmed it.

    `limits`: seconds for all of it, and seconds of them for the connection to be up.

    Raises:
        AdapterError: The broker refused the message.
        TransportError: There was no connection, it was lost, or the broker did not confirm in time.
    """
    timeout, patience = limits
    if not driver.up:
        try:
            await answer_on_loop(began + patience, driver.standing(), clock)
        except TimeoutError:
            raise unsent(message.destination, patience) from None
    try:
        await answer_on_loop(began + timeout, driver.send(message), clock)
    except TimeoutError:
        raise unconfirmed(message.destination, timeout) from None


async def event_within(event: asyncio.Event, timeout: float | None, clock: Clock) -> bool:
    """Wait for an event, for `timeout` seconds of a clock at most; return True if it is set."""
    if timeout is None:
        await event.wait()
        return True
    waiting = asyncio.ensure_future(event.wait())
    cancel = call_later(asyncio.get_running_loop(), clock, timeout, waiting.cancel)
    try:
        await asyncio.wait([waiting])
    finally:
        cancel()
        waiting.cancel()
    return event.is_set()


def call_later(
    loop: asyncio.AbstractEventLoop, clock: Clock, delay: float, callback: Callable[[], object]
) -> Callable[[], object]:
    """Call `callback` on the loop after `delay` seconds of the clock; return a function that cancels that."""
    if delay <= 0 or isinstance(clock, SystemClock):
        return loop.call_later(delay, callback).cancel

    def call() -> None:
        # RuntimeError: the loop is closed; no task waits.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(callback)

    return clock.call_later(delay, call)


class AsyncioWait:
    """Wakes the tasks that wait for one dispatcher; a burst of wake-ups costs the loop one call."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self.now = clock.monotonic
        """Reads the connection's clock."""
        self._woken = asyncio.Event()
        self._scheduled = False

    def wake(self) -> None:
        """Wake all waiting tasks; from any thread."""
        if not self._scheduled:
            self._scheduled = True
            # RuntimeError: the loop is closed; no task waits.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._scheduled = False
        self._woken.set()

    async def take(
        self,
        dispatcher: Dispatcher,
        after: Event | None = None,
        *,
        timeout: float | None = None,
        watch: Observation | None = None,
    ) -> Delivery | None:
        """As `Dispatcher.take`, without blocking the loop."""
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        while True:
            # Before the poll: a delivery that gets ready after it must wake this task.
            self._woken.clear()
            delivery, due = dispatcher.poll(after, watch)
            after = None
            if delivery is None and dispatcher.closed:
                # The consumer may have ended after the poll: this raises its error.
                dispatcher.poll()
            if delivery is not None or dispatcher.closed:
                return delivery
            left = None if deadline is None else deadline - self._clock.monotonic()
            if left is not None and left <= 0:
                return None
            waits = [wait for wait in (due, left) if wait is not None]
            await self._sleep(min(waits) if waits else None)

    async def _sleep(self, delay: float | None) -> None:
        cancel: Callable[[], object] | None = None
        if delay is not None:
            cancel = call_later(self._loop, self._clock, capped(delay), self._woken.set)
        try:
            await self._woken.wait()
        finally:
            if cancel is not None:
                cancel()


# ---- Thread wait -----------------------------------------------------------------------------------------
# Waiting on the calling thread for a future, a subscription or a connection, by the connection's clock.


def answer_by(deadline: float, future: Future[None], clock: Clock) -> None:
    """Wait on this thread until the future ends, and raise its error. Raises TimeoutError at the deadline."""
    if not future.done():
        ended = threading.Condition()

        def wake(_: Future[None]) -> None:
            with ended:
                clock.notify(ended)

        future.add_done_callback(wake)
        with ended:
            while not future.done() and (left := deadline - clock.monotonic()) > 0:
                clock.wait(ended, left)
    if not future.done() and future.cancel():  # no thread waits for it
        raise TimeoutError
    future.result()


def await_subscription(driver: ConnectionDriver, dispatcher: Dispatcher, clock: Clock) -> None:
    """Start a consumer and wait until the broker has confirmed the subscription; end the consumer on any error.

    Raises:
        AdapterError: The broker refused the subscription.
        TransportError: The broker did not confirm it in time.
    """
    deadline = clock.monotonic() + driver.subscribe_timeout
    try:
        answer_by(deadline, driver.subscribe(dispatcher), clock)
    except BaseException as error:
        driver.unsubscribe(dispatcher)
        if isinstance(error, TimeoutError):
            raise not_subscribed(dispatcher.subscribe) from None
        raise


def await_connected(driver: ConnectionDriver, destination: str, limit: float, clock: Clock) -> None:
    """Wait `limit` seconds at most until the connection is up, for a message to `destination`.

    Raises:
        TransportError: It is not up in time, or was given up.
    """
    if not driver.up:
        try:
            answer_by(clock.monotonic() + limit, driver.standing(), clock)
        except TimeoutError:
            raise unsent(destination, limit) from None


def await_confirmed(
    future: Future[None], destination: str, deadline: float, timeout: float, clock: Clock
) -> None:
    """Wait until the broker has confirmed a message to `destination`, which had `timeout` seconds for that.

    Raises:
        AdapterError: The broker refused the message.
        TransportError: The connection was lost, or the broker did not confirm in time.
    """
    try:
        answer_by(deadline, future, clock)
    except TimeoutError:
        raise unconfirmed(destination, timeout) from None
