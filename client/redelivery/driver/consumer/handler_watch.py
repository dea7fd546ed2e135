"""Watch over the handlers of a connection that have a time-out: one thread, which sleeps while none of them runs.

At the time-out it logs a WARNING with the handler's stack. At twice the time-out it gives the handler up: nothing can
stop a thread, and the application must act. The watch does not hold its lock while it logs, or calls other code.
"""

from __future__ import annotations

import threading
from math import inf
from typing import TYPE_CHECKING

from redelivery.clock import join_within
from redelivery.core.shown_values import printable_id
from redelivery.driver.consumer.handler_run import stack_of
from redelivery.errors import LedgerError
from redelivery.events import HandlerOverdue
from redelivery.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.clock import Clock
    from redelivery.driver.consumer.handler_run import HandlerRun, Running
    from redelivery.errors import HandlerTimeout

__all__ = ["LONG", "HandlerWatch", "log_long"]

# Seconds after which a handler without a time-out is logged, once.
LONG = 300.0
# Seconds (31 years). A longer wait is a wait without limit.
NEVER = 1e9
# Seconds until the next check after an exception of a log handler.
AGAIN = 1.0


class HandlerWatch:
    """Thread of the watch; the first worker with a deadline starts it."""

    def __init__(self, clock: Clock, given_up: Callable[[HandlerTimeout], None]) -> None:
        """Make the watch. `given_up`: called once for each handler that has not ended within twice its time-out."""
        self.until = inf
        """Time of the next check; a worker whose run times out earlier must wake the watch."""
        self._clock = clock
        self._given_up = given_up
        self._turn = threading.Condition()
        self._runs: list[HandlerRun] = []
        # Time of the last check, and the shortest time-out.
        self._looked, self._shortest = clock.monotonic(), inf
        self._woken = False
        self._closed = False
        self._thread: threading.Thread | None = None

    def add(self, run: HandlerRun) -> None:
        """Watch the runs of one worker, which has a deadline."""
        with self._turn:
            self._runs.append(run)
            if run.deadline is not None:
                self._shortest = min(self._shortest, run.deadline.timeout)
            if self._thread is None and not self._closed:
                self._clock.attach()
                self._thread = threading.Thread(target=self._keep, name="redelivery-watch", daemon=True)
                self._thread.start()

    def wake(self) -> None:
        """Make the thread check again."""
        with self._turn:
            self._woken = True
            self._clock.notify(self._turn)

    def close(self, timeout: float) -> None:
        """End the thread; wait for its end for `timeout` seconds of real time at most."""
        with self._turn:
            self._closed = True
            self._clock.notify(self._turn)
        if self._thread is not None and self._thread is not threading.current_thread():
            join_within(self._thread, timeout)

    def _keep(self) -> None:
        try:
            while True:
                # First reset these, then check. A worker first sets its run, then reads `until`. Nothing is missed.
                self.until, self._woken = inf, False
                try:
                    due = self._look()
                # A log handler has raised: each line is tried once, and the other runs are checked soon.
                except BaseException:  # noqa: BLE001 - it cannot be logged
                    due = self._clock.monotonic() + AGAIN
                with self._turn:
                    if self._closed:
                        return
                    if due is not None:
                        self.until = due
                    if not self._woken:
                        left = inf if due is None else max(0.0, due - self._clock.monotonic())
                        self._clock.wait(self._turn, None if left > NEVER else left)
        finally:
            self._clock.detach()

    def _look(self) -> float | None:
        """Check all runs; return the time of the next check: when the next run times out, or is to be given up.

        If runs have begun since the last check, the next check is at the latest when a run that begins now can time
        out. A worker with quick handlers then need not wake the thread for each of them. None: the next run that begins
        wakes the thread.
        """
        now, before = self._clock.monotonic(), self._looked
        self._looked = now
        begun = False
        nexts: list[float] = []
        for run in tuple(self._runs):
            found = run.now_running()
            begun = begun or run.since >= before
            if found is None or run.deadline is None or found.same(run.stuck_in):
                continue
            over = found.since + run.deadline.timeout
            given_up = found.since + 2 * run.deadline.timeout
            if now >= over:
                self.late(run, found)
            if now >= given_up:
                self._give_up(run, found)
            else:
                nexts.append(given_up if now >= over else over)
        if begun:
            nexts.append(now + self._shortest)
        return min(nexts, default=None)

    def late(self, run: HandlerRun, found: Running) -> None:
        """Log, once for each run, that its time is over."""
        with self._turn:
            if found.same(run.warned_of):
                return
            run.warned_of = found
        assert run.deadline is not None, "it is watched"
        cancelled = run.task is not None and run.thread is None
        timeout = run.deadline.timeout
        _show(run, found, timeout, timeout, cancelled=cancelled, stack=stack_of(run))

    def _give_up(self, run: HandlerRun, found: Running) -> None:
        assert run.deadline is not None, "it is watched"
        error = run.deadline.stuck(run.dispatcher, found.delivery)
        run.stuck_in = found
        try:
            _show(run, found, 2 * run.deadline.timeout, run.deadline.timeout, given_up=True)
            run.dispatcher.hang(found.delivery)
        except LedgerError as failed:
            logger.warning(
                "%s: %s: its handler hangs, and the ledger cannot record that: %s",
                run.dispatcher.subscribe.destination, printable_id(found.delivery.message_id), failed,
            )  # fmt: skip
        finally:
            self._given_up(error)


def log_long(run: HandlerRun, now: float) -> None:
    """Log, once for each run, that a handler without a time-out has run for `LONG` seconds. Call it on one thread."""
    found = run.now_running()
    if (
        found is not None
        and run.deadline is None
        and not found.same(run.warned_of)
        and now - found.since >= LONG
    ):
        run.warned_of = found
        _show(run, found, now - found.since, None)


def _show(
    run: HandlerRun,
    found: Running,
    seconds: float,
    timeout: float | None,
    *,
    given_up: bool = False,
    cancelled: bool = False,
    stack: str = "",
) -> None:
    """Show the event of a handler that runs for long."""
    consumer = run.dispatcher
    event = HandlerOverdue(
        consumer.events.now(),
        consumer.subscribe,
        found.delivery,
        seconds,
        timeout,
        given_up,
        cancelled,
        stack,
    )
    consumer.show((event,))
