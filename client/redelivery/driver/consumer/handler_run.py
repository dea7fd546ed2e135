"""Run of one handler after the other by one worker: which delivery, since when, on which thread or task.

The worker writes it without a lock, once for each message. Others read it from their threads: the watch over
time-outs, `health()`, a drain.
"""

from __future__ import annotations

import os
import sys
import traceback
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import asyncio
    from types import FrameType

    from redelivery.clock import Clock
    from redelivery.core.delivery import Delivery
    from redelivery.driver.consumer.dispatcher import Dispatcher
    from redelivery.driver.consumer.handler_timeout import HandlerDeadline

__all__ = ["HandlerRun", "RunWatch", "Running", "stack_of"]

# Its documentation makes it public.
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
    """Interface of the watch over time-outs, as a worker sees it; `HandlerWatch` implements it."""

    until: float

    def wake(self) -> None:
        """Look at the runs: one is over before `until`."""

    def late(self, run: HandlerRun, found: Running) -> None:
        """Log, once for each run, that its time is over."""


class Running(NamedTuple):
    """One run of a handler, as another thread has read it."""

    delivery: Delivery
    since: float
    """Time of the connection's clock at which the handler was started."""

    def same(self, other: Running | None) -> bool:
        """Whether both are one run."""
        return other is not None and other.delivery is self.delivery and other.since == self.since


class HandlerRun:
    """What one worker runs now. Of one worker: it alone sets `since` and `delivery`, in this order, for each message.

    It does so by itself, without a call: it is the hot path.
    """

    __slots__ = (
        "_clock", "_watch", "deadline", "delivery", "dispatcher", "loop_thread", "since", "stuck_in", "task", "thread",
        "warned_of",
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
        """What is handled now; None: nothing is."""
        # Identity of the thread that runs the handler; None: its task does.
        self.thread: int | None = None
        self.task: asyncio.Task[Any] | None = None
        # Identity of the thread of the task's loop.
        self.loop_thread: int | None = None
        # The run that has been logged, and the one that was given up.
        self.warned_of: Running | None = None
        self.stuck_in: Running | None = None
        self._clock = clock
        self._watch = watch

    def watched(self) -> None:
        """Have the watch look at a run that has begun, if it sleeps for too long. After `delivery` was set."""
        watch, deadline = self._watch, self.deadline
        if watch is not None and deadline is not None and self.since + deadline.timeout < watch.until:
            watch.wake()

    def now_running(self) -> Running | None:
        """Return the run that goes on now; None if there is none. From any thread."""
        delivery, since = self.delivery, self.since
        # Else another one has begun meanwhile, of the same message perhaps.
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
        """True if the run that goes on now has been given up: nothing waits for its end."""
        found = self.now_running()
        return found is not None and found.same(self.stuck_in)

    def late(self) -> None:
        """Log that the time of the run is over, unless the watch has done so."""
        found = self.now_running()
        if self._watch is not None and found is not None:
            self._watch.late(self, found)


def stack_of(run: HandlerRun) -> str:
    """Return where a handler is now, innermost last, at most `STACK_LINES` lines; empty if that cannot be seen."""
    thread, task = run.thread, run.task
    if thread is None and task is not None:
        frames, busy = _frames_of(task.get_coro())
        if not busy:
            pairs = ((frame, frame.f_lineno) for frame in frames)
            return _shown(traceback.StackSummary.extract(pairs))
        # It keeps its loop from turning: it is where that thread is.
        thread = run.loop_thread
    frame = None if thread is None else _threads().get(thread)
    return "" if frame is None else _shown(traceback.extract_stack(frame))


def _shown(frames: traceback.StackSummary) -> str:
    """Return the handler's own frames as text: those behind the last one of what calls it."""
    callers = [number for number, each in enumerate(frames) if each.filename.endswith(_CALLERS)]
    # None is left where it has just begun.
    own = frames[callers[-1] + 1 :] if callers else frames
    entries = traceback.StackSummary.from_list((own or frames)[-STACK_LINES // 2 :]).format()
    return "\n".join("".join(entries).rstrip().splitlines()[-STACK_LINES:])


def _frames_of(waiting: Any) -> tuple[list[FrameType], bool]:
    """Return the frames of a coroutine and of all that it awaits, innermost last, and whether it runs right now.

    `Task.get_stack` has the outermost one alone.
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
