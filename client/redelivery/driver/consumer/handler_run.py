"""Record of what a worker runs now: which delivery, since when, on which thread or task.

The worker writes the record without a lock, once for each message. The watch over time-outs, `health()` and a drain
read it from their threads.
"""

from __future__ import annotations

import os
import sys
import traceback
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from types import FrameType

    from redelivery.clock import Clock
    from redelivery.core.delivery import Delivery
    from redelivery.driver.consumer.dispatcher import Dispatcher
    from redelivery.driver.consumer.handler_timeout import HandlerDeadline

__all__ = ["HandlerRun", "RunWatch", "Running", "stack_of"]

# Public in spite of its name: Python documents it.
_threads = sys._current_frames  # pyright: ignore[reportPrivateUsage]
# Lines of a stack in the log: the innermost ten frames, two lines each.
STACK_LINES = 20
# Modules whose functions call a handler.
_CALLERS = tuple(
    os.path.join("redelivery", *path)
    for path in (
        ("driver", "consumer", "worker.py"),
        ("driver", "consumer", "async_worker.py"),
        ("driver", "consumer", "handler_threads.py"),
        ("driver", "consumer", "observation.py"),
        ("cli", "consume.py"),
    )
)


class RunWatch(Protocol):
    """Interface of the watch over time-outs for a worker; `HandlerWatch` implements it."""

    until: float

    def wake(self) -> None:
        """Check the runs now: the time of one is over before `until`."""

    def late(self, run: HandlerRun, found: Running) -> None:
        """Log, once for each run, that its time is over."""


class Running(NamedTuple):
    """One run of a handler, as read by another thread."""

    delivery: Delivery
    since: float
    """Time of the connection's clock at which the handler was started."""

    def same(self, other: Running | None) -> bool:
        """True if both are the same run."""
        return other is not None and other.delivery is self.delivery and other.since == self.since


class HandlerRun:
    """Record of what one worker runs now. The worker alone sets `since`, then `delivery`, for each message.

    It sets the attributes directly, without a method call: this is the hot path.
    """

    __slots__ = (
        "_clock", "_watch", "deadline", "delivery", "dispatcher", "loop_thread", "since", "stuck_in", "task", "thread",
        "wanted", "warned_of",
    )  # fmt: skip

    def __init__(
        self,
        dispatcher: Dispatcher,
        clock: Clock,
        deadline: HandlerDeadline | None = None,
        watch: RunWatch | None = None,
    ) -> None:
        self.dispatcher = dispatcher
        self.deadline = deadline
        self.since = -inf
        """Time of the connection's clock at which the last run was started."""
        self.delivery: Delivery | None = None
        """Delivery that is handled now, or None."""
        # Identity of the thread that runs the handler; None: its task runs it.
        self.thread: int | None = None
        self.task: asyncio.Task[Any] | None = None
        # Returns False once the task may be cancelled.
        self.wanted: Callable[[], bool] = lambda: False
        # Identity of the thread of the task's loop.
        self.loop_thread: int | None = None
        # The run that has been logged, and the one that was given up.
        self.warned_of: Running | None = None
        self.stuck_in: Running | None = None
        self._clock = clock
        self._watch = watch

    def watched(self) -> None:
        """Wake the watch if it would check a new run too late. Call it after `delivery` was set."""
        watch, deadline = self._watch, self.deadline
        if watch is not None and deadline is not None and self.since + deadline.timeout < watch.until:
            watch.wake()

    def now_running(self) -> Running | None:
        """Return the run that goes on now; None if there is none. From any thread."""
        delivery, since = self.delivery, self.since
        # If they have changed, another run has begun meanwhile, perhaps of the same message.
        if delivery is None or delivery is not self.delivery or since != self.since:
            return None
        return Running(delivery, since)

    @property
    def took(self) -> float:
        """Seconds since the start of the last run."""
        return self._clock.monotonic() - self.since

    @property
    def started(self) -> float | None:
        """Time of the connection's clock at which the last run was started; None: there was none."""
        return None if self.since == -inf else self.since

    @property
    def stuck(self) -> bool:
        """True if the current run has been given up: nothing waits for its end."""
        found = self.now_running()
        return found is not None and found.same(self.stuck_in)

    def late(self) -> None:
        """Log that the time of the run is over, unless the watch has done so."""
        found = self.now_running()
        if self._watch is not None and found is not None:
            self._watch.late(self, found)


def stack_of(run: HandlerRun) -> str:
    """Return the stack of a running handler, innermost frame last, at most `STACK_LINES` lines; empty if unknown."""
    thread, task = run.thread, run.task
    if thread is None and task is not None:
        frames, busy = _frames_of(task.get_coro())
        if not busy:
            pairs = ((frame, frame.f_lineno) for frame in frames)
            return _shown(traceback.StackSummary.extract(pairs))
        # The coroutine runs right now and blocks its loop: its stack is that of the loop's thread.
        thread = run.loop_thread
    frame = None if thread is None else _threads().get(thread)
    return "" if frame is None else _shown(traceback.extract_stack(frame))


def _shown(frames: traceback.StackSummary) -> str:
    """Return the handler's own frames as text: those after the last frame of the code that calls it."""
    callers = [number for number, each in enumerate(frames) if each.filename.endswith(_CALLERS)]
    # A handler that has just begun has no frame of its own.
    own = frames[callers[-1] + 1 :] if callers else frames
    entries = traceback.StackSummary.from_list((own or frames)[-STACK_LINES // 2 :]).format()
    return "\n".join("".join(entries).rstrip().splitlines()[-STACK_LINES:])


def _frames_of(waiting: Any) -> tuple[list[FrameType], bool]:
    """Return the frames of a coroutine and of all that it awaits, innermost last, and True if it runs right now.

    `Task.get_stack` returns only the outermost frame.
    """
    frames: list[FrameType] = []
    busy = False
    while waiting is not None:
        frame, inner = getattr(waiting, "cr_frame", None), getattr(waiting, "cr_await", None)
        if frame is None:
            frame, inner = getattr(waiting, "gi_frame", None), getattr(waiting, "gi_yieldfrom", None)
        if frame is None:
            break
        frames.append(frame)
        busy = busy or bool(getattr(waiting, "cr_running", False))
        waiting = inner
    return frames, busy
