"""Worker tasks: the asyncio twin of the worker threads."""

from __future__ import annotations

import asyncio
import inspect
from contextvars import copy_context
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple

from redelivery.driver.asyncio_wait import call_later
from redelivery.driver.consumer.worker import is_unrun, unrun
from redelivery.driver.consumer.worker_end import HandlerEscape, judged
from redelivery.message import message_for

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import Executor, Future

    from redelivery.core.delivery import Delivery
    from redelivery.core.events import Event
    from redelivery.driver.asyncio_wait import AsyncioWait
    from redelivery.driver.consumer.dispatcher import Dispatcher
    from redelivery.driver.consumer.handler_timeout import HandlerDeadline
    from redelivery.message import Message

__all__ = ["work"]

# Deliveries that a handler which never waits may take before others get the loop.
TURN = 64


async def work(
    dispatcher: Dispatcher,
    waiter: AsyncioWait,
    handler: Callable[[Message], Any],
    pool: Executor | None,
    overdue: HandlerDeadline | None = None,
) -> None:
    """Run the handler on one delivery after the other: on the loop, or, with a `pool`, in its threads.

    Raises:
        HandlerEscape: a handler ended the worker.
        RedeliveryError: what stopped the consumer.
    """
    after: Event | None = None
    taken = 0
    while (delivery := await waiter.take(dispatcher, after)) is not None:
        if overdue is None:
            after = await _attempt(handler, delivery, dispatcher, pool)
        else:
            with overdue.watching(delivery):
                after = await _attempt(handler, delivery, dispatcher, pool, overdue)
                after = overdue.end(delivery, after)
        taken += 1
        if taken % TURN == 0:
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                if after is not None:
                    # It has been handled, and must not come again.
                    dispatcher.feed(after)
                raise


async def _attempt(
    handler: Callable[[Message], Any],
    delivery: Delivery,
    dispatcher: Dispatcher,
    pool: Executor | None,
    overdue: HandlerDeadline | None = None,
) -> Event | None:
    """Run the handler on a delivery; return the result to feed, or None if the handler settled it itself."""
    message = message_for(delivery, dispatcher)
    # What a handler before has swallowed stays counted.
    cancelled = _cancellations()
    result: Any = None
    failure: BaseException | None = None
    try:
        if pool is None:
            result = handler(message)
        else:
            result, failure = await _in_thread(pool, handler, message)
        # Also of a partial, or a callable object, around an async function.
        if _awaited(result):
            result = await (result if overdue is None else _limited(result, overdue))
    except asyncio.CancelledError as error:
        if _cancellations() > cancelled:
            message.give_back()
            raise
        # Something that the handler waited for was cancelled, not this worker.
        failure = error
    except _Ended as ended:
        if (event := _outcome(message, *ended.job.result())) is not None:
            # It has been handled, and must not come again.
            dispatcher.feed(event)
        raise asyncio.CancelledError from None
    except _StillRunning as running:
        running.job.add_done_callback(lambda _: message.handler_over())
        # Its thread has the message: it is not given back to anybody.
        raise asyncio.CancelledError from None
    except _NotBegun as refused:
        message.give_back()
        raise HandlerEscape(refused.error) from refused.error
    except BaseException as error:  # noqa: BLE001 - an Exception goes to the policy, any other ends the worker
        failure = error
    return _outcome(message, result, failure)


def _cancellations() -> int:
    """Return how often the worker itself has been cancelled."""
    task = asyncio.current_task()
    assert task is not None, "a worker is a task"
    return task.cancelling()


def _awaited(result: object) -> bool:
    """Whether a handler's result is to be awaited."""
    try:
        # The first question is the quick one.
        return type(result) is CoroutineType or inspect.isawaitable(result)
    except Exception:  # noqa: BLE001 - a proxy without its object raises when it is asked for its class
        return False


async def _limited(running: Awaitable[Any], overdue: HandlerDeadline) -> Any:
    """Await a handler; cancel it when its time is over. Raises HandlerTimeout."""
    task = asyncio.current_task()
    assert task is not None
    # What a handler before has swallowed stays counted.
    before = task.cancelling()
    over = False

    def cancel() -> None:
        nonlocal over
        over = True
        task.cancel()

    undo = call_later(asyncio.get_running_loop(), overdue.clock, overdue.timeout, cancel)
    try:
        result = await running
    except asyncio.CancelledError:
        # Else the worker itself is cancelled, too.
        if over and task.uncancel() <= before:
            raise overdue.late() from None
        raise
    finally:
        undo()
    # It ended in the meantime, or caught its cancellation.
    if over:
        task.uncancel()
        raise overdue.late()
    return result


def _outcome(message: Message, result: object, failure: BaseException | None) -> Event | None:
    """Return what a handler has come to; None if it settled the message itself. Raises HandlerEscape."""
    if failure is not None:
        return judged(message, failure)
    if result is not None and is_unrun(result):
        raise HandlerEscape(unrun(message, result))
    return message.result(None)


class _Answer(NamedTuple):
    """What a handler returned or raised, as a value: no future carries a StopIteration or a CancelledError."""

    result: Any
    error: BaseException | None = None


class _NotBegun(BaseException):
    """The pool has been shut down, or has no thread left: no handler has run."""

    def __init__(self, error: RuntimeError) -> None:
        super().__init__()
        self.error = error


class _Ended(BaseException):
    """The worker was cancelled when its handler had ended in its thread already."""

    def __init__(self, job: Future[_Answer]) -> None:
        super().__init__()
        self.job = job


class _StillRunning(BaseException):
    """The worker was cancelled while a thread ran its handler, which nothing can stop."""

    def __init__(self, job: Future[_Answer]) -> None:
        super().__init__()
        self.job = job


def _run(handler: Callable[[Message], Any], message: Message) -> _Answer:
    try:
        return _Answer(handler(message))
    except BaseException as error:  # noqa: BLE001 - judged where it is awaited
        return _Answer(None, error)


async def _in_thread(pool: Executor, handler: Callable[[Message], Any], message: Message) -> _Answer:
    try:
        # It is known there whose handler runs.
        job = pool.submit(copy_context().run, _run, handler, message)
    except RuntimeError as error:
        raise _NotBegun(error) from None
    try:
        return await asyncio.wrap_future(job)
    except asyncio.CancelledError:
        if job.cancel():
            raise
        if job.done():
            raise _Ended(job) from None
        raise _StillRunning(job) from None
