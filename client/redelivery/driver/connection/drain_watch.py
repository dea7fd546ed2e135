"""Waiting of a drain for running handlers: its deadline, the handlers it waits for, and its log lines."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from redelivery.core.printable import printable_id
from redelivery.events import DrainBegun, Drained
from redelivery.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from redelivery.clock import Clock
    from redelivery.core.report import Report
    from redelivery.driver.consumer.handler_run import HandlerRun
    from redelivery.driver.observers import Observers

__all__ = ["DrainWatch", "Runner"]

# Seconds between log lines about handlers that still run.
LINES = 5.0
# Seconds between two checks: a handler that is given up is noticed only by a check.
LOOK = 0.1
# Message ids in a line at most.
IDS = 10


class Runner(Protocol):
    """Interface of a worker for a drain and `health()`; `Worker` and `AsyncWorker` implement it."""

    run: HandlerRun

    @property
    def alive(self) -> bool:
        """True if the worker has not ended."""
        ...


RunnerT = TypeVar("RunnerT", bound=Runner)


class DrainWatch:
    """One drain. `mine`: True for the caller's own worker, for which the drain does not wait."""

    def __init__(
        self,
        clock: Clock,
        timeout: float,
        runners: Iterable[Any],
        mine: Callable[[Any], bool],
        observers: Observers,
    ) -> None:
        self._observers = observers
        self._runners: Sequence[Runner] = [runner for runner in runners if not mine(runner)]
        self._clock = clock
        self._began = clock.monotonic()
        self.deadline = self._began + timeout
        """Time of the connection's clock. If that clock does not move, the same timeout in real time ends the drain."""
        self._real_deadline = time.monotonic() + timeout
        self._next_line = self._began + LINES
        if (ends := observers.emit((DrainBegun(clock.time(), len(self._ids()), timeout),))) is not None:
            # Ctrl-C, on the thread that drains.
            raise ends

    def waited_for(self) -> list[Any]:
        """Return the workers that the drain still waits for; not those whose handler was given up."""
        if self._left() <= 0:
            return []
        return [runner for runner in self._runners if runner.alive and not runner.run.stuck]

    def look(self) -> float:
        """Log the handlers that still run, if that is due; return the seconds of real time until the next check."""
        now = self._clock.monotonic()
        if now >= self._next_line:
            self._next_line = now + LINES
            ids = self._ids()
            if ids:
                logger.info(
                    "draining: %s still %s after %.0f s; %s",
                    _handlers(ids),
                    "runs" if len(ids) == 1 else "run",
                    now - self._began,
                    _shown(ids),
                )
        return max(0.0, min(LOOK, self._left()))

    def end_waiting(self) -> None:
        """Log the messages of the handlers that still run when the drain stops waiting."""
        ids = self._ids()
        if ids:
            have, them = ("has", "it") if len(ids) == 1 else ("have", "them")
            logger.warning(
                "drained, but %s %s not ended; %s; the broker redelivers %s after the connection is closed",
                _handlers(ids), have, _shown(ids), them,
            )  # fmt: skip

    def end(self, report: Report) -> Report:
        """Emit the end of the drain with the connection's report; return the report."""
        took = self._clock.monotonic() - self._began
        self._observers.emit((Drained(self._clock.time(), report, took),))
        return report

    def _left(self) -> float:
        return min(self.deadline - self._clock.monotonic(), self._real_deadline - time.monotonic())

    def _ids(self) -> list[str]:
        found = [runner.run.now_running() for runner in self._runners]
        return [printable_id(one.delivery.message_id) for one in found if one is not None]


def _handlers(ids: Sequence[str]) -> str:
    return "1 handler" if len(ids) == 1 else f"{len(ids)} handlers"


def _shown(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - IDS} more" if len(ids) > IDS else ""
    whose = "its message" if len(ids) == 1 else "their messages"
    return f"{whose}: {', '.join(ids[:IDS])}{more}"
