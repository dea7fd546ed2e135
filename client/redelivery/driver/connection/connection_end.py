"""End of a connection by an error: the first error, if the application has got it, and the call of `on_stopped`."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from math import inf
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from redelivery.clock import SystemClock, capped
from redelivery.core.shown_values import printable_id
from redelivery.errors import BreakerOpen, ConfigurationError, RedeliveryError, another
from redelivery.events import DrainBegun, Drained
from redelivery.log import logger

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Sequence
    from types import FrameType

    from redelivery.clock import Clock
    from redelivery.core.engine import Engine
    from redelivery.core.report import Report
    from redelivery.driver.consumer.dispatcher import Dispatcher
    from redelivery.driver.consumer.handler_run import HandlerRun
    from redelivery.driver.observers import Observers

__all__ = [
    "ConnectionEnd",
    "DrainWatch",
    "IdleWatch",
    "LoopSignals",
    "Runner",
    "Signals",
    "Stopping",
    "in_a_thread",
]


# ---- Connection end --------------------------------------------------------------------------------------


def in_a_thread(call: Callable[[], None]) -> threading.Thread:
    """Start a thread for one call: the thread that found the error may hold locks, or others may wait for it."""
    thread = threading.Thread(target=call, name="redelivery-stopped", daemon=True)
    thread.start()
    return thread


class ConnectionEnd:
    """The first error of a connection. Any thread may call the methods, with any lock held."""

    def __init__(
        self,
        on_stopped: Callable[[BaseException], object] | None,
        stop: Callable[[], None],
        elsewhere: Callable[[Callable[[], None]], Any] = in_a_thread,
    ) -> None:
        """Set the functions that are called for an error.

        Args:
            on_stopped: The application's function; called once, without a lock.
            stop: Called last; it wakes `run` and `wait`, and calls no code of the application.
            elsewhere: Calls a function where the application's code may run; returns its thread, if it has one.
        """
        self.error: BaseException | None = None
        self.given = False
        """True once the application has got the error, or is about to get it by `on_stopped`."""
        self._on_stopped = on_stopped
        self._stop = stop
        self._elsewhere = elsewhere
        self._lock = threading.Lock()
        self._caller: threading.Thread | None = None
        self._called = threading.Event()

    def fail(self, error: BaseException) -> None:
        """Record an error; only the first one counts."""
        # An observer's KeyboardInterrupt stops a consumer with a RedeliveryError whose cause it is.
        cause = error.__cause__ if isinstance(error, RedeliveryError) else None
        if cause is not None and not isinstance(cause, Exception):
            error = cause
        with self._lock:
            if self.error is not None:
                return
            self.error = error
            # At once: leaving the connection before the call of on_stopped begins must not raise the error as well.
            self.given = self._on_stopped is not None
        try:
            if self._on_stopped is not None:
                self._elsewhere(self._call)
        # No thread can be started, or the loop is closed. Leaving the connection then raises the error.
        except RuntimeError:
            self.given = False
            self._called.set()
        finally:
            # Last: a thread that this wakes, and that leaves the connection, waits for the call of on_stopped.
            self._stop()

    def _call(self) -> None:
        self._caller = threading.current_thread()
        try:
            cast("Callable[[BaseException], object]", self._on_stopped)(cast("BaseException", self.error))
        except BaseException:
            logger.exception("on_stopped= failed; the connection's error stays")
        finally:
            self._called.set()

    def wait_called(self, timeout: float) -> None:
        """Wait until `on_stopped` has returned, for `timeout` seconds of real time at most."""
        expected = self.error is not None and self._on_stopped is not None
        # Else on_stopped itself closes the connection.
        if expected and self._caller is not threading.current_thread():
            self._called.wait(capped(timeout))

    def raise_error(self, *, unless_given: bool = False) -> None:
        """Raise the error, if there is one."""
        error = self.error
        if error is None or (unless_given and self.given):
            return
        self.given = True
        # Several threads may raise the error, and an exception has only one traceback: each gets a copy.
        raise another(error) if isinstance(error, RedeliveryError) else error


# ---- Signals ---------------------------------------------------------------------------------------------
# Requests to end a run: from another thread, from a handler, or by a signal.

# Seconds of one wait at most. A signal in the instant before a wait begins does not end it: Python handles the signal
# only when the wait is over. With long waits, a SIGINT was never handled.
LOOK = 0.2
# Seconds of real time between the jumps of a manual clock.
JUMPS = 0.002


class Stopping:
    """Event that a signal handler may set: `threading.Event` deadlocks if the handler interrupts its waiting thread."""

    def __init__(self) -> None:
        self._asked = False
        self._wakes: SimpleQueue[None] = SimpleQueue()  # because its `put` is reentrant

    def set(self) -> None:
        """Request the end of the run; that cannot be undone."""
        self._asked = True
        self._wakes.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the end is requested, or for `timeout` seconds of real time; return True if it was requested."""
        return self._wait_until(None if timeout is None else time.monotonic() + timeout, time.monotonic)

    def wait_by(self, clock: Clock, timeout: float | None) -> bool:
        """Wait as `wait` does, for `timeout` seconds of a clock. A manual clock that can jump jumps for this wait."""
        if timeout is None or isinstance(clock, SystemClock):
            return self.wait(timeout)
        undo = clock.call_later(timeout, lambda: self._wakes.put(None))
        try:
            jump: Callable[[], None] | None = getattr(clock, "jump", None)  # manual clocks have it
            return self._wait_until(clock.monotonic() + timeout, clock.monotonic, jump)
        finally:
            undo()

    def _wait_until(
        self, deadline: float | None, now: Callable[[], float], jump: Callable[[], None] | None = None
    ) -> bool:
        while not self._asked:
            left = LOOK if deadline is None else min(LOOK, deadline - now())
            if left <= 0:
                break
            if jump is not None:
                jump()
            with contextlib.suppress(Empty):
                self._wakes.get(timeout=left if jump is None else JUMPS)
                # Wake the next waiting thread, too.
                if self._asked:
                    self._wakes.put(None)
        return self._asked


class Signals:
    """SIGTERM and SIGINT call `stop` once; a second one acts as it did before. In the main thread only."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of handlers
        self._restore()
        self._stop()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def __exit__(self, *_: object) -> None:
        self._restore()


class LoopSignals:
    """As `Signals`, but an event loop calls `stop`. Only the main thread's loop can do that."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
        self._loop = loop
        self._stop = stop
        self._handled: list[signal.Signals] = []

    def __enter__(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            # On another thread's loop there are no signals; the application calls `stop`.
            with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
                self._loop.add_signal_handler(number, self._handle)
                self._handled.append(number)

    def _handle(self) -> None:
        # A second signal acts as it did before.
        self._remove()
        self._stop()

    def _remove(self) -> None:
        for number in self._handled:
            self._loop.remove_signal_handler(number)
        self._handled = []

    def __exit__(self, *_: object) -> None:
        self._remove()


# ---- Stop when idle --------------------------------------------------------------------------------------
# Watch for a run that ends by itself: its connection has had nothing to do for long enough, or its breaker is open.

# Seconds for which a breaker may be open over a named failure: a run that ends by itself must not wait for a service
# for ever. An opening of unnamed failures ends by itself (`Breaker.maximum_unnamed`): bad messages must not keep each
# such run from the good ones behind them.
OPEN = 60.0
# Seconds of real time without a change after which a manual clock counts as standing still.
STANDS = 2.0


class IdleWatch:
    """Checks all dispatchers regularly: `over` when no message was ready, running, parked or new for `seconds`.

    - A lost connection counts as busy: messages may be waiting on the broker.
    - These do not count as busy, because nothing in this process ends them: messages that a session has when no handler
      works on them, dead letters that the broker has not confirmed, and messages that a handler has released and the
      broker does not take back (one of them is dispatched again each second). The drain waits for these, and the
      report counts the rest.
    - An open breaker is not idle. If it has seen a named failure, the run ends with an error after a minute, or
      `seconds` if that is longer; otherwise the opening ends by itself. The run also ends with an error, not with
      success, if nothing is left here while a breaker is open: the queue may have more.
    - `seconds` are real time, whatever the connection's clock is. If messages are parked by a manual clock, the clock
      jumps if it can do that by itself. If it stands still, the run ends with ConfigurationError.
    """

    def __init__(
        self,
        dispatchers: Sequence[Dispatcher],
        seconds: float,
        connected: Callable[[], bool],
        clock: Clock | None = None,
        failed: Callable[[BaseException], None] | None = None,
    ) -> None:
        """Watch from now on. `seconds`: infinite if idleness does not end the run."""
        self.interval = max(0.001, min(seconds / 10, 0.1))
        self._dispatchers = dispatchers
        self._seconds = seconds
        self._connected = connected
        self._since = time.monotonic()
        # Counts at the last check.
        self._seen: tuple[int, ...] = ()
        self._jump: Callable[[], None] | None = getattr(clock, "jump", None)  # manual clocks have it
        self._clock = clock
        self._failed = failed
        # The clock's time, and the real time at which it became that.
        self._stood = 0.0, self._since

    def over(self) -> bool:
        """True if the run is over: idle for long enough, or, which is an error of the run, a breaker open too long."""
        dispatchers = [dispatcher for dispatcher in list(self._dispatchers) if not dispatcher.unheard]
        engines = [dispatcher.engine for dispatcher in dispatchers]
        held = [dispatcher.left_to_its_session() for dispatcher in dispatchers]
        acting = any(engine.load.working > idle for engine, idle in zip(engines, held, strict=True))
        parked = any(engine.load.waiting > engine.load.unconfirmed for engine in engines)
        # Once more: a message that was parked at the first reading can have been due before the second one.
        acting = acting or any(engine.load.working > idle for engine, idle in zip(engines, held, strict=True))
        seen = (
            sum(engine.arrived for engine in engines),
            sum(held),
            sum(engine.load.unconfirmed for engine in engines),
        )
        now = time.monotonic()
        if self._clock is not None and self._jump is not None:
            self._watch_clock(self._clock, self._jump, now, waiting=parked and not acting)
        if not self._connected() or acting or parked or seen != self._seen:
            self._seen, self._since = seen, now
        idle = now - self._since >= self._seconds
        if self._clock is not None and self._failed is not None and not acting:
            error = self._held_up(engines, self._clock.monotonic(), idle=idle)
            if error is not None:
                self._failed(error)
                return True
        return idle

    def _held_up(self, engines: Sequence[Engine], now: float, *, idle: bool) -> BreakerOpen | None:
        """Return the error of the run if a breaker has been open for too long, or is open at the end of the run."""
        limit = OPEN if self._seconds == inf else max(OPEN, self._seconds)
        for engine in engines:
            lasted, cause = engine.load.open_for(now), engine.load.open_because
            waits = engine.load.waiting > engine.load.unconfirmed and engine.load.is_down(now)
            if lasted is not None and (idle or (waits and lasted >= limit)):
                why = "unknown" if cause is None else cause.text
                return BreakerOpen(
                    f"no message has succeeded for {lasted:.0f} s: {why}; "
                    "a run that ends by itself does not wait longer"
                )
        return None

    def _watch_clock(self, clock: Clock, jump: Callable[[], None], now: float, *, waiting: bool) -> None:
        if waiting:
            jump()
        at = clock.monotonic()
        if not waiting or at != self._stood[0]:
            self._stood = at, now
        elif now - self._stood[1] >= max(self._seconds, STANDS):
            raise ConfigurationError(
                "run() waits for a clock that does not move; use start() and clock.advance()", option="clock"
            )


# ---- Drain watch -----------------------------------------------------------------------------------------
# Waiting of a drain for running handlers: its deadline, the handlers it waits for, and its log lines.

# Seconds between log lines about handlers that still run.
LINES = 5.0
# Seconds between two checks: a handler that is given up is noticed only by a check.
DRAIN_LOOK = 0.1
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
        return max(0.0, min(DRAIN_LOOK, self._left()))

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
