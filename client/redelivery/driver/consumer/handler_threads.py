"""Threads of an asyncio connection for plain handlers: daemons, so that a handler that hangs keeps no process alive.

Not `ThreadPoolExecutor`: at the end of a process Python waits for its threads, however its `shutdown` was called.
"""

from __future__ import annotations

import threading
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["HandlerThreads"]

P = ParamSpec("P")
T = TypeVar("T")


class HandlerThreads(Executor):
    """At most `most` threads; one is started when a call finds none idle."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._idle_semaphore = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function in a thread. Raises RuntimeError after `shutdown`, or if no thread can be started."""
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the threads of this connection's handlers have ended")
            if not self._idle_semaphore.acquire(blocking=False) and len(self._threads) < self._most:
                name = f"redelivery-worker_{len(self._threads)}"
                thread = threading.Thread(target=self._work, name=name, daemon=True)
                thread.start()
                self._threads.append(thread)
            self._calls.put((future, lambda: fn(*args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - of Executor
        """Accept no more calls. Calls that were submitted are made; `wait`: wait until they have ended."""
        with self._lock:
            first, self._closed = not self._closed, True
            threads = tuple(self._threads) if first or wait else ()
        for _ in threads if first else ():
            self._calls.put(None)
        for thread in threads if wait else ():
            thread.join()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function = call
            if future.set_running_or_notify_cancel():
                try:
                    result = function()
                except BaseException as error:  # noqa: BLE001 - raised where it is awaited
                    future.set_exception(error)
                else:
                    future.set_result(result)
            # A waiting thread must not keep a message alive.
            del call, future, function
            self._idle_semaphore.release()
