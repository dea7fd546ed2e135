"""Worker tasks: the asyncio twin of the worker threads."""

from __future__ import annotations

import asyncio
import inspect
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from redelivery.driver.asyncio_wait import call_later
from redelivery.driver.consumer.worker import is_unrun, unrun
from redelivery.message import log_failure, message_for

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
    """Run the handler on one delivery after the other: on the loop, or, with a `pool`, in its threads."""
    after: Event | None = None
    taken = 0
    while (delivery := await waiter.take(dispatcher, after)) is not None:
        if overdue is None:
            after = await _attempt(handler, delivery, dispatcher, pool)
        else:
            overdue.begin(delivery)
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
    try:
        result = handler(message) if pool is None else await _in_thread(pool, handler, message)
        # Also of a partial, or a callable object, around an async function.
        if inspect.isawaitable(result):
            result = await (result if overdue is None else _limited(result, overdue))
    except Exception as error:  # noqa: BLE001 - whatever a handler raises goes to the policy
        log_failure(message, error)
        return message.result(error)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            message.give_back()
            raise
        # Something that the handler waited for was cancelled, not this worker: a failure like any other.
        log_failure(message, error)
        return message.result(error)
    except _Ended as ended:
        if (event := _outcome(ended.job, message)) is not None:
            # It has been handled, and must not come again.
            dispatcher.feed(event)
        raise asyncio.CancelledError from None
    except _StillRunning as running:
        running.job.add_done_callback(lambda _: message.handler_over())
        # Its thread has the message: it is not given back to anybody.
        raise asyncio.CancelledError from None
    except BaseException:
        message.give_back()
        raise
    if result is not None and is_unrun(result):
        raise unrun(message, result)
    return message.result(None)


async def _limited(running: Awaitable[Any], overdue: HandlerDeadline) -> Any:
    """Await a handler; cancel it when its time is over. Raises HandlerTimeout."""
    task = asyncio.current_task()
    assert task is not None
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
        if over and task.uncancel() == 0:
            raise overdue.late() from None
        raise
    finally:
        undo()
    # It ended in the meantime, or caught its cancellation.
    if over:
        task.uncancel()
        raise overdue.late()
    return result


def _outcome(job: Future[Any], message: Message) -> Event | None:
    """Return what a handler that has ended in its thread has come to; None if there is nothing to feed."""
    try:
        result = job.result()
    except Exception as error:  # noqa: BLE001 - whatever a handler raises goes to the policy
        log_failure(message, error)
        return message.result(error)
    except BaseException:  # noqa: BLE001 - the worker ends anyway
        message.give_back()
        return None
    if is_unrun(result):
        unrun(message, result)
        return None
    return message.result(None)


class _Ended(BaseException):
    """The worker was cancelled when its handler had ended in its thread already."""

    def __init__(self, job: Future[Any]) -> None:
        super().__init__()
        self.job = job


class _StillRunning(BaseException):
    """The worker was cancelled while a thread ran its handler, which nothing can stop."""

    def __init__(self, job: Future[Any]) -> None:
        super().__init__()
        self.job = job


async def _in_thread(pool: Executor, handler: Callable[[Message], Any], message: Message) -> Any:
    # It is known there whose handler runs.
    job = pool.submit(copy_context().run, handler, message)
    try:
        return await asyncio.wrap_future(job)
    except asyncio.CancelledError:
        if job.cancel():
            raise
        if job.done():
            raise _Ended(job) from None
        raise _StillRunning(job) from None
