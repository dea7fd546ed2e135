"""Calls of an application's hooks on an asyncio loop: what is `async def` is awaited in a task."""

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
    """The hooks of one connection's listeners."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Future[None]] = set()

    def entered(self, loop: asyncio.AbstractEventLoop) -> None:
        """Call on this loop from now on."""
        self._loop = loop

    def here(self, call: HookCall) -> None:
        """Make a call on the loop, where its caller is."""
        result = call()
        if inspect.iscoroutine(result):
            task = asyncio.ensure_future(_awaited(result, call))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def elsewhere(self, call: HookCall) -> None:
        """Have a call made on the loop, from any thread."""
        if self._loop is not None:
            # The loop is closed: nothing is called any more.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.here, call)

    def close(self, timeout: float) -> None:
        """Nothing: `wait` waits on the loop."""

    async def wait(self, timeout: float) -> None:
        """Wait until what is awaited has ended, for `timeout` seconds at most."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)


async def _awaited(hook: Coroutine[Any, Any, object], call: HookCall) -> None:
    """Await a hook; what it raises is logged."""
    try:
        await hook
    except Exception as error:  # noqa: BLE001 - logged
        call.failed(error)
