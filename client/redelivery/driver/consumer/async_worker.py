"""Worker tasks: the counterpart of worker threads for asyncio."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from concurrent.futures import Executor, Future
from contextvars import copy_context
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from redelivery.clock import start_attached
from redelivery.core.application_functions import closed, is_unrun
from redelivery.driver.consumer.worker import HandlerEscape, event_of, unrun
from redelivery.driver.waiting import call_later
from redelivery.escapes import begun, give_up, own_end
from redelivery.events.event import ResultDetails
from redelivery.message import message_for

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redelivery.clock import Clock
    from redelivery.core.delivery import Delivery
    from redelivery.core.events import Event
    from redelivery.driver.consumer.dispatcher import Dispatcher
    from redelivery.driver.consumer.handler_run import HandlerRun
    from redelivery.driver.consumer.handler_timeout import HandlerDeadline
    from redelivery.driver.consumer.observation import Observation
    from redelivery.driver.waiting import AsyncioWait
    from redelivery.message import Message

__all__ = ["AsyncWorker", "HandlerThreads"]


# ---- Async worker ----------------------------------------------------------------------------------------

# Deliveries that a worker whose handler never waits may take before it lets the loop run other tasks.
TURN = 64


class AsyncWorker:
    """One task that runs one handler on the deliveries of one dispatcher: on the loop, or in the threads of a pool."""

    def __init__(
        self,
        run: HandlerRun,
        handler: Callable[[Message], Any],
        waiter: AsyncioWait,
        pool: Executor | None,
        ended: Callable[[Dispatcher, BaseException], None],
        wanted: Callable[[], bool],
    ) -> None:
        """Start the worker on the running loop.

        `ended`: called with the error that ends it. `wanted`: returns False once the worker may be cancelled.
        """
        self.run = run
        self._handler = handler
        self._waiter = waiter
        self._pool = pool
        self._ended = ended
        self._now = waiter.now
        run.wanted = wanted
        run.loop_thread = threading.get_ident()
        self.task = run.task = asyncio.create_task(self._keep_on())

    @property
    def alive(self) -> bool:
        """True if the worker has not ended."""
        return not self.task.done()

    async def _keep_on(self) -> None:
        dispatcher = self.run.dispatcher
        watch = dispatcher.events.observed(self.run, dispatcher.observer_ended)
        try:
            await self._work(watch)
        except HandlerEscape as escape:
            self._ended(dispatcher, escape.error)
        except GeneratorExit:
            # The loop is closed.
            raise
        except asyncio.CancelledError as error:
            # An error while the worker is wanted: its own handler, or other code with the task, has cancelled it.
            if self.run.wanted():
                self._ended(dispatcher, error)
            raise
        except BaseException as error:  # noqa: BLE001 - handed to `run`, which raises it
            self._ended(dispatcher, error)
        finally:
            if watch is not None:
                dispatcher.run_ended(watch)
            self.run.delivery = None

    async def _work(self, watch: Observation | None) -> None:
        """Run the handler on one delivery after the other; `watch` observes the runs.

        Raises:
            HandlerEscape: A handler ended the worker.
            RedeliveryError: The error that stopped the consumer.
        """
        run, waiter, now = self.run, self._waiter, self._now
        dispatcher, deadline = run.dispatcher, run.deadline
        after: Event | None = None
        taken = 0
        while (delivery := await waiter.take(dispatcher, after, watch=watch)) is not None:
            run.since = now()
            run.delivery = delivery
            if deadline is None:
                after = await _attempt(self._handler, delivery, run, self._pool, watch)
            else:
                run.watched()
                after = await _attempt(self._handler, delivery, run, self._pool, watch)
                after = deadline.end(run.took, delivery, after)
            run.delivery = None
            taken += 1
            if taken % TURN == 0:
                try:
                    await asyncio.sleep(0)
                except asyncio.CancelledError:
                    if after is not None:
                        # The message has been handled, and must not be redelivered.
                        dispatcher.conclude(after, watch)
                    raise


async def _attempt(
    handler: Callable[[Message], Any],
    delivery: Delivery,
    run: HandlerRun,
    pool: Executor | None,
    watch: Observation | None,
) -> Event | None:
    """Run the handler on a delivery; return the result to feed, or None if the handler settled the message itself."""
    dispatcher, deadline = run.dispatcher, run.deadline
    message = message_for(delivery, dispatcher)
    if watch is not None:
        # Before the context of this task is copied for a thread: observers may set context variables.
        watch.begin(message)
    since = begun()
    result: Any = None
    failure: BaseException | None = None
    try:
        if pool is None:
            result = handler(message)
        else:
            result, failure = await _in_thread(pool, handler, message, run)
        # True also for a plain function that returns the coroutine of an async one, as a lambda does.
        if _awaited(result):
            result = await (result if deadline is None else _limited(result, run, deadline))
    except (asyncio.CancelledError, GeneratorExit) as error:
        if own_end(error, since):
            _cancelled(message, error, run, pool)
            raise
        # Something that the handler awaited was cancelled, not this worker: a failure as any other.
        failure = error
    except _Ended as ended:
        answer = ended.job.result()
        if _dropped(answer):
            message.give_back()
        elif (event := _outcome(message, *answer, run, watch)) is not None:
            # The message has been handled, and must not be redelivered.
            dispatcher.conclude(event, watch)
        raise asyncio.CancelledError from None
    except _StillRunning as running:
        _goes_on(watch)
        running.job.add_done_callback(lambda job: _over(job.result(), message))
        # The handler's thread still has the message: do not release it.
        raise asyncio.CancelledError from None
    except _NotBegun as refused:
        message.give_back()
        raise HandlerEscape(refused.error) from refused.error
    except BaseException as error:  # noqa: BLE001 - goes to the policy, or ends the worker
        failure = error
    return _outcome(message, result, failure, run, watch)


def _dropped(answer: _Answer) -> bool:
    """Close the coroutine that a plain handler has returned, if any: its worker was cancelled before awaiting it."""
    if not _awaited(answer.result):
        return False
    closed(answer.result)
    return True


def _over(answer: _Answer, message: Message) -> None:
    """End the message of a handler whose worker was cancelled before the handler ended in its thread."""
    _dropped(answer)
    message.handler_over()


def _goes_on(watch: Observation | None) -> None:
    """Set the result for observers: the worker has ended, and its handler has not."""
    if watch is not None:
        watch.details = ResultDetails(None, "release", cause="its handler has not ended")


def _cancelled(message: Message, error: BaseException, run: HandlerRun, pool: Executor | None) -> None:
    """Release the message of a worker that was cancelled; give it up if its own handler has cancelled the worker.

    That handler would do it at each start. A loop that ends cancels all tasks, as does a program: no message is charged
    for that. Without the worker, a loop that ends has no task left.
    """
    if pool is None and isinstance(error, asyncio.CancelledError) and run.wanted():
        others = asyncio.all_tasks() - {run.task}
        if others and not any(task.cancelling() for task in others):
            give_up(message, error, run.dispatcher)
    message.give_back()


def _awaited(result: object) -> bool:
    """True if a handler's result is to be awaited."""
    try:
        # The first check is the fast one.
        return type(result) is CoroutineType or inspect.isawaitable(result)
    except Exception:  # noqa: BLE001 - a proxy without its object raises when it is asked for its class
        return False


async def _limited(running: Awaitable[Any], run: HandlerRun, deadline: HandlerDeadline) -> Any:
    """Await a handler; cancel it when its time is over. Raises HandlerTimeout."""
    task = asyncio.current_task()
    assert task is not None
    # Cancellations that an earlier handler has swallowed stay counted.
    before = task.cancelling()
    over = ended = False

    def cancel() -> None:
        nonlocal over
        # The loop had this call in its queue already when the handler ended.
        if ended:
            return
        over = True
        try:
            # Before the cancellation: the log line shows where the handler waits.
            run.late()
        finally:
            task.cancel()

    undo = call_later(asyncio.get_running_loop(), deadline.clock, deadline.timeout, cancel)
    try:
        result = await running
    except asyncio.CancelledError:
        # If the count stays higher, the worker itself is cancelled, too.
        if over and task.uncancel() <= before:
            raise deadline.late() from None
        raise
    finally:
        ended = True
        undo()
    # The handler ended at that moment, or caught the cancellation.
    if over:
        task.uncancel()
        raise deadline.late()
    return result


def _outcome(
    message: Message,
    result: object,
    failure: BaseException | None,
    run: HandlerRun,
    watch: Observation | None,
) -> Event | None:
    """Return the result to feed for a handler; None if it settled the message itself. Raises HandlerEscape."""
    if failure is not None:
        if watch is not None:
            watch.error = failure
        return event_of(message, failure, run.dispatcher)
    if result is not None and is_unrun(result):
        raise HandlerEscape(unrun(message, result))
    return message.result(None)


class _Answer(NamedTuple):
    """Return value or exception of a handler, as a value: no future can carry a StopIteration or a CancelledError."""

    result: Any
    error: BaseException | None = None


class _NotBegun(BaseException):
    """Raised if the pool has been shut down, or can start no thread: no handler has run."""

    def __init__(self, error: RuntimeError) -> None:
        super().__init__()
        self.error = error


class _Ended(BaseException):
    """Raised if the worker was cancelled after its handler had ended in a thread."""

    def __init__(self, job: Future[_Answer]) -> None:
        super().__init__()
        self.job = job


class _StillRunning(BaseException):
    """Raised if the worker was cancelled while a thread ran its handler, which nothing can stop."""

    def __init__(self, job: Future[_Answer]) -> None:
        super().__init__()
        self.job = job


def _run(handler: Callable[[Message], Any], message: Message, run: HandlerRun) -> _Answer:
    run.thread = threading.get_ident()
    try:
        return _Answer(handler(message))
    except BaseException as error:  # noqa: BLE001 - handled where it is awaited
        return _Answer(None, error)
    finally:
        run.thread = None


async def _in_thread(
    pool: Executor, handler: Callable[[Message], Any], message: Message, run: HandlerRun
) -> _Answer:
    try:
        # In a copy of this task's context: the handler sees the same context variables.
        job = pool.submit(copy_context().run, _run, handler, message, run)
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


# ---- Handler threads -------------------------------------------------------------------------------------
# Threads of an asyncio connection for plain handlers: daemons, so that a handler that hangs keeps no process alive.
#
# Not `ThreadPoolExecutor`: at the end of a process Python waits for its threads, however its `shutdown` was called.

P = ParamSpec("P")
T = TypeVar("T")


class HandlerThreads(Executor):
    """At most `most` threads; one is started when a call finds none idle.

    They are counted by the clock, and wait on it: a manual clock does not move before their handlers have ended.
    """

    def __init__(self, most: int, clock: Clock) -> None:
        self._most = most
        self._clock = clock
        self._turn = threading.Condition()  # guards all attributes below
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        # Threads that wait for a call, also those that are notified and have not taken it yet.
        self._idle = 0
        self._threads: list[threading.Thread] = []
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function in a thread. Raises RuntimeError after `shutdown`, or if no thread can be started."""
        future: Future[T] = Future()
        with self._turn:
            if self._closed:
                raise RuntimeError("the threads of this connection's handlers have ended")
            if self._idle <= len(self._calls) and len(self._threads) < self._most:
                self._start()
            self._calls.append((future, lambda: fn(*args, **kwargs)))
            self._clock.notify(self._turn)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - of Executor
        """Accept no more calls. Calls that were submitted are made; `wait`: wait until they have ended."""
        with self._turn:
            self._closed = True
            threads = tuple(self._threads)
            self._clock.notify(self._turn, len(threads))
        for thread in threads if wait else ():
            thread.join()

    def _start(self) -> None:
        """Start one more thread; with the lock held."""
        name = f"redelivery-worker_{len(self._threads)}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        start_attached(thread, self._clock)
        self._threads.append(thread)

    def _work(self) -> None:
        try:
            while (call := self._next()) is not None:
                future, function = call
                if future.set_running_or_notify_cancel():
                    try:
                        result = function()
                    except BaseException as error:  # noqa: BLE001 - raised where it is awaited
                        future.set_exception(error)
                    else:
                        future.set_result(result)
                        del result
                # A waiting thread must not keep a message alive.
                del call, future, function
        finally:
            self._clock.detach()

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        """Wait for the next call, and return it; None: the thread is to end."""
        with self._turn:
            while not self._calls:
                if self._closed:
                    return None
                self._idle += 1
                try:
                    self._clock.wait(self._turn, None)
                finally:
                    self._idle -= 1
            return self._calls.popleft()
