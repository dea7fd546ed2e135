"""Calls of an application's hooks on an asyncio loop: an `async def` hook is awaited in a task."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from redelivery.driver.consumer.hook_call import HookCall

__all__ = ["HookTasks"]


class HookTasks:
    """Calls and tasks of the hooks of one connection's listeners."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Future[None]] = set()

    def entered(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the loop for all calls from now on."""
        self._loop = loop

    def here(self, call: HookCall) -> None:
        """Make a call at once; the caller is on the loop."""
        result = call()
        if inspect.iscoroutine(result):
            task = asyncio.ensure_future(_awaited(result, call))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def elsewhere(self, call: HookCall) -> None:
        """Schedule a call on the loop, from any thread."""
        if self._loop is not None:
            # RuntimeError: the loop is closed; no hook is called any more.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.here, call)

    def close(self, timeout: float) -> None:
        """Do nothing: `wait` waits on the loop."""

    async def wait(self, timeout: float) -> None:
        """Wait for the tasks of hooks, for `timeout` seconds at most."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)


async def _awaited(hook: Coroutine[Any, Any, object], call: HookCall) -> None:
    """Await a hook; log an exception that it raises."""
    try:
        await hook
    except Exception as error:  # noqa: BLE001 - logged
        call.failed(error)
