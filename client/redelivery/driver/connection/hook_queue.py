"""Queue of calls of an application's hooks: bounded in number and bytes, because a hook may wait for a slow service.

Each call keeps its message. Without a bound a flood of poison messages would fill the memory.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from redelivery.log import logger

if TYPE_CHECKING:
    from redelivery.driver.consumer.hook_call import HookCall

__all__ = ["MOST_BYTES", "MOST_CALLS", "HookQueue", "tell"]

MOST_CALLS = 1000
MOST_BYTES = 64 * 1024 * 1024
"""Of messages. One call is kept, however large its message is."""


class HookQueue:
    """Calls that wait, in order. Not thread-safe."""

    def __init__(self) -> None:
        self._calls: deque[HookCall] = deque()
        self._bytes = 0
        self.dropped = 0
        """Number of calls that were dropped so far, because too many waited."""

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: HookCall) -> bool:
        """Add a call; drop the oldest ones while too many wait. Return True if they are the first: see `tell`."""
        self._calls.append(call)
        self._bytes += call.size
        first = not self.dropped
        while len(self._calls) > MOST_CALLS or (self._bytes > MOST_BYTES and len(self._calls) > 1):
            self._pop().drop()
            self.dropped += 1
        return first and self.dropped > 0

    def take(self) -> HookCall | None:
        """Remove and return the oldest call; None: none waits."""
        return self._pop() if self._calls else None

    def clear(self) -> int:
        """Drop all calls, because the connection closes; return their number."""
        left = len(self._calls)
        while self._calls:
            self._pop().drop()
        return left

    def _pop(self) -> HookCall:
        call = self._calls.popleft()
        self._bytes -= call.size
        return call


def tell() -> None:
    """Log that calls are dropped: once for a connection, and without a lock, because a log handler may be slow."""
    logger.warning(
        "calls of on_dead_letter and on_retry are dropped, the oldest first: the hooks are too slow, and %d calls or "
        "%d MiB of messages wait; health().connection.hook_calls_dropped has their number",
        MOST_CALLS,
        MOST_BYTES // 1024**2,
    )
