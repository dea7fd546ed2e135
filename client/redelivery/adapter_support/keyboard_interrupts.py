"""Delay of Ctrl-C in the main thread while a message is known to the library only.

Python runs a signal handler between any two calls of the main thread, and the default one for SIGINT raises
KeyboardInterrupt there: between taking settlements out of their batch and writing them, or between taking a
message and returning it. If a program caught it and went on, these messages would stay unsettled until the
program ends.
"""

from __future__ import annotations

import inspect
import os
import signal
import sys
import threading
import time
from threading import get_ident
from typing import TYPE_CHECKING, Any

from redelivery.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType

    from redelivery.clock import Clock

__all__ = ["Uninterrupted", "closed", "held_back", "opened"]

# The functions of the C module: those of `signal` convert numbers to enums, which takes ten times as long (3 µs,
# measured).
_C: Any = sys.modules.get("_signal", signal)
_handler_of, _set_handler = _C.getsignal, _C.signal
SIGINT = int(signal.SIGINT)
# Seconds of a wait at most. SIGINT does not end a wait: the caller looks for the signal after each.
LOOK = 0.2
# Seconds after which another SIGINT interrupts a block that hangs. On a busy machine any block may last for a while.
HANGS = 1.0


class _Main:
    """State of the main thread: its block, a signal that arrived in it, and this module's handler."""

    __slots__ = ("block", "connections", "handler", "ident", "pending")

    def __init__(self) -> None:
        self.ident = threading.main_thread().ident
        self.block: Uninterrupted | None = None
        # Time at which the first SIGINT of this block arrived.
        self.pending: float | None = None
        # The handler that this module installed last. Not None: Python returns None for a handler of another language.
        self.handler: object = self
        # Ids of open connections. While there is one, the handler stays: changing it twice for each message took a
        # fifth of the time of a `receive`.
        self.connections: set[int] = set()

    def install(self) -> bool:
        """Put this module's handler before the application's; return False if there is none."""
        before = _handler_of(SIGINT)
        # Not callable: SIGINT ends the process, is ignored, or has a handler of another language.
        if not callable(before):
            return False
        # The application has put back a handler of this module. Another one around it would lengthen the chain with
        # each message.
        if isinstance(before, _Handler):
            self.handler = before
            return True
        # Before the call: an exception between the two leaves no handler of this module that it does not know.
        self.handler = _Handler(before)
        try:
            _set_handler(SIGINT, self.handler)
        # The main thread of a sub-interpreter has no signals.
        except ValueError:
            self.ident = None
            return False
        return True

    def restore(self) -> None:
        """Put the application's handler back, unless the application has set another one."""
        handler = self.handler
        if isinstance(handler, _Handler) and get_ident() == self.ident and _handler_of(SIGINT) is handler:
            _set_handler(SIGINT, handler.before)

    def lift(self) -> None:
        """End the block.

        Put the application's handler back if no connection needs this module's, and pass on a delayed signal.
        """
        handler, pending = self.handler, self.pending
        self.block = self.pending = None
        if not self.connections:
            self.restore()
        if pending is not None and isinstance(handler, _Handler):
            handler.before(SIGINT, inspect.currentframe())


class _Handler:
    """Signal handler that delays SIGINT in a block, and passes it on to the handler before it.

    Each application handler that is replaced gets a new one: it may call the handler that it has replaced
    itself.
    """

    __slots__ = ("before",)

    def __init__(self, before: Callable[[int, FrameType | None], Any]) -> None:
        self.before = before

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        main = _MAIN
        if main.block is None:
            # Also for a signal of the block that has just ended.
            main.pending = None
            return self.before(number, frame)
        now = time.monotonic()
        if main.pending is None:
            main.pending = now
        elif now - main.pending >= HANGS:
            main.lift()
        return None


# An instance: if class attributes changed with each message, each access would be slower.
_MAIN = _Main()


def _forked() -> None:
    """Record that the thread that forked is the main thread of the child."""
    _MAIN.ident = threading.get_ident()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forked)


def opened(connection: object) -> None:
    """Keep the handler between the blocks, from the next block on."""
    _MAIN.connections.add(id(connection))


def closed(connection: object) -> None:
    """Put the application's handler back if this was the last connection.

    In the main thread this happens at once, in other threads after the next block.
    """
    _MAIN.connections.discard(id(connection))
    if not _MAIN.connections and _MAIN.block is None:
        _MAIN.restore()


class Uninterrupted:
    """Block of the main thread that SIGINT does not interrupt.

    The application's handler runs at the end of the block. A further SIGINT, a second later or more,
    interrupts the block, because a block may hang. Nested blocks, and blocks of other threads, have no
    effect. A wait inside of the block must use `wait`.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        main = _MAIN
        if get_ident() != main.ident or main.block is not None:
            return
        if _handler_of(SIGINT) is main.handler or main.install():
            main.block = self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        main = _MAIN
        if main.block is self:
            # After this line the handler passes signals on.
            main.block = None
            if main.pending is not None or not main.connections:
                main.lift()

    def wait(self, clock: Clock, condition: threading.Condition, timeout: float | None) -> None:
        """Wait as `Clock.wait` does, and let SIGINT interrupt the wait."""
        if isinstance(clock, SystemClock):
            clock.wait(condition, LOOK if timeout is None else min(timeout, LOOK))
            if _MAIN.pending is not None:
                _MAIN.lift()
            return
        # A manual clock does not need short waits: a test moves it.
        _MAIN.block = None
        try:
            clock.wait(condition, timeout)
        finally:
            _MAIN.block = self


def held_back() -> Uninterrupted | None:
    """Return the block that this thread is in, or None."""
    return _MAIN.block if get_ident() == _MAIN.ident else None
