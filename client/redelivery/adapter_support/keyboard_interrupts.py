"""Ctrl-C in the main thread: held back while a message is in no hands but the library's.

Python runs a signal handler between any two calls of the main thread, and the default one for SIGINT raises
KeyboardInterrupt there: between taking settlements out of their batch and writing them, or between taking a message and
returning it. A program that catches it and goes on would have these messages stuck until it ends.
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

# The functions of C: those of `signal` turn numbers into enums, which takes ten times as long (3 µs, measured).
_C: Any = sys.modules.get("_signal", signal)
_handler_of, _set_handler = _C.getsignal, _C.signal
SIGINT = int(signal.SIGINT)
# Seconds of a wait at most: SIGINT does not end it, so it is looked for.
LOOK = 0.2
# Seconds after which another SIGINT breaks into a block that hangs: on a busy machine any block may last for a while.
HANGS = 1.0


class _Main:
    """The main thread, the block that it is in, the signal that came meanwhile, and our handler."""

    __slots__ = ("block", "connections", "handler", "ident", "pending")

    def __init__(self) -> None:
        self.ident = threading.main_thread().ident
        self.block: Uninterrupted | None = None
        # When the first SIGINT of this block came.
        self.pending: float | None = None
        # Ours that was put in last. None is what Python says of a handler that another language has set.
        self.handler: object = self
        # As long as one is open the handler stays: to change it twice for each message took a fifth of a pull's time.
        self.connections: set[int] = set()

    def install(self) -> bool:
        """Put our handler before the application's; False if there is none."""
        before = _handler_of(SIGINT)
        # Else it ends the process, or is ignored, or belongs to another language.
        if not callable(before):
            return False
        # The application has put back what it replaced: around it again, the chain would grow with each message.
        if isinstance(before, _Handler):
            self.handler = before
            return True
        # First, so that an exception between the two leaves no handler of ours that is not known.
        self.handler = _Handler(before)
        try:
            _set_handler(SIGINT, self.handler)
        # The main thread of a sub-interpreter has no signals.
        except ValueError:
            self.ident = None
            return False
        return True

    def restore(self) -> None:
        """Put the application's handler back, unless it has set another itself."""
        handler = self.handler
        if isinstance(handler, _Handler) and get_ident() == self.ident and _handler_of(SIGINT) is handler:
            _set_handler(SIGINT, handler.before)

    def lift(self) -> None:
        """End the block: put the handler back if nobody needs it any more, and hand on the signal if there was one."""
        handler, pending = self.handler, self.pending
        self.block = self.pending = None
        if not self.connections:
            self.restore()
        if pending is not None and isinstance(handler, _Handler):
            handler.before(SIGINT, inspect.currentframe())


class _Handler:
    """Holds SIGINT back in a block, and hands it on to the handler before it. A new one for each that it is put before:
    the application's may call the one that it has replaced.
    """

    __slots__ = ("before",)

    def __init__(self, before: Callable[[int, FrameType | None], Any]) -> None:
        self.before = before

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        main = _MAIN
        if main.block is None:
            # Also for one of the block that has just ended.
            main.pending = None
            return self.before(number, frame)
        now = time.monotonic()
        if main.pending is None:
            main.pending = now
        elif now - main.pending >= HANGS:
            main.lift()
        return None


# An instance: a class that changes with each message would slow down all that looks at it.
_MAIN = _Main()


def _forked() -> None:
    """Take in that the thread that forked is the main thread of the child."""
    _MAIN.ident = threading.get_ident()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forked)


def opened(connection: object) -> None:
    """Keep the handler between the blocks, from the next one on."""
    _MAIN.connections.add(id(connection))


def closed(connection: object) -> None:
    """Put the application's handler back with the last connection: at once in the main thread, else after a block."""
    _MAIN.connections.discard(id(connection))
    if not _MAIN.connections and _MAIN.block is None:
        _MAIN.restore()


class Uninterrupted:
    """A block into which SIGINT does not break, in the main thread; its handler runs at the end of the block.

    Another SIGINT, a second later or more, breaks in: a block that hangs must end. Blocks inside of others, and
    those of other threads, change nothing. A wait inside of the block goes through `wait`.
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
            # Behind this line the handler hands on.
            main.block = None
            if main.pending is not None or not main.connections:
                main.lift()

    def wait(self, clock: Clock, condition: threading.Condition, timeout: float | None) -> None:
        """Wait as `Clock.wait` does, and let SIGINT in: what it interrupts is the wait."""
        if isinstance(clock, SystemClock):
            clock.wait(condition, LOOK if timeout is None else min(timeout, LOOK))
            if _MAIN.pending is not None:
                _MAIN.lift()
            return
        # Time that a test moves is not cut into pieces.
        _MAIN.block = None
        try:
            clock.wait(condition, timeout)
        finally:
            _MAIN.block = self


def held_back() -> Uninterrupted | None:
    """Return the block that this thread is in, or None."""
    return _MAIN.block if get_ident() == _MAIN.ident else None
