"""Calls of an application's hooks on an asyncio loop: an `async def` hook is awaited in a task."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from redelivery.driver.connection.hook_queue import HookQueue, tell
from redelivery.log import logger

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from redelivery.driver.consumer.hook_call import HookCall

__all__ = ["HookTasks"]

# Hooks that are awaited at the same time. Further calls wait in the queue.
AT_ONCE = 100
# Seconds that cancelled hooks get for their end.
GRACE = 1.0


class HookTasks:
    """Calls and tasks of the hooks of one connection's listeners."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Future[None]] = set()
        self._lock = threading.Lock()
        self._calls = HookQueue()
        self._closed = False

    def entered(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the loop for all calls from now on."""
        self._loop = loop

    @property
    def dropped(self) -> int:
        """Number of calls that were dropped, because too many waited."""
        return self._calls.dropped

    def here(self, call: HookCall) -> None:
        """Make a call at once; the caller is on the loop. What it returns to be awaited may have to wait."""
        result = call()
        if not inspect.iscoroutine(result):
            return
        if self._closed:
            result.close()
        elif len(self._tasks) < AT_ONCE:
            self._await(result, call)
        else:
            self._add(call.begun(result))

    def elsewhere(self, call: HookCall) -> None:
        """Schedule a call on the loop, from any thread."""
        if self._loop is not None and not self._closed:
            self._add(call)
            # RuntimeError: the loop is closed; no hook is called any more.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._next)

    def close(self, timeout: float) -> None:
        """Do nothing: `wait` waits on the loop."""

    async def wait(self, timeout: float) -> None:
        """Make the queued calls and wait for the tasks of hooks, for `timeout` seconds at most; cancel the others."""
        mine, deadline = asyncio.current_task(), time.monotonic() + timeout
        while self._next():
            pass
        while (tasks := self._tasks - {mine}) and (left := deadline - time.monotonic()) > 0:
            await asyncio.wait(tasks, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if cancelled := self.end():
            await asyncio.wait(cancelled, timeout=GRACE)

    def end(self) -> set[asyncio.Future[None]]:
        """Make no call any more, and cancel the tasks but the caller's own; return these. On the loop."""
        self._closed = True
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        with self._lock:
            left = self._calls.clear() + len(tasks)
        if left:
            logger.warning("%d calls of hooks had not ended when the connection was closed", left)
        return tasks

    def _add(self, call: HookCall) -> None:
        with self._lock:
            first = self._calls.add(call)
        if first:
            tell()

    def _next(self) -> bool:
        """Make the next call, unless too many hooks are awaited; return True if there was one. On the loop."""
        if len(self._tasks) >= AT_ONCE:
            return False
        with self._lock:
            call = self._calls.take()
        if call is None:
            return False
        result = call()
        if inspect.iscoroutine(result):
            self._await(result, call)
        return True

    def _await(self, hook: Coroutine[Any, Any, object], call: HookCall) -> None:
        task = asyncio.ensure_future(_awaited(hook, call))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        self._go_on()

    def _go_on(self) -> None:
        """Make the calls that wait, while there is room: a plain hook leaves the room to the next one."""
        if self._next() and self._calls and self._loop is not None:
            self._loop.call_soon(self._go_on)


async def _awaited(hook: Coroutine[Any, Any, object], call: HookCall) -> None:
    """Await a hook; log an exception that it raises."""
    try:
        await hook
    except Exception as error:  # noqa: BLE001 - logged
        call.failed(error)
