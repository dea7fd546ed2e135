"""Threads of an asyncio connection for plain handlers: daemons, so that a handler that hangs keeps no process alive.

Not `ThreadPoolExecutor`: at the end of a process Python waits for its threads, however its `shutdown` was called.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from redelivery.clock import start_attached

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.clock import Clock

__all__ = ["HandlerThreads"]

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
