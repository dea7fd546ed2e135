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
    from types import FrameType, TracebackType

    from redelivery.clock import Clock

__all__ = ["Uninterrupted", "held_back"]

# The functions of C: those of `signal` turn numbers into enums, which takes ten times as long (3 µs, measured).
_C: Any = sys.modules.get("_signal", signal)
_handler_of, _set_handler = _C.getsignal, _C.signal
SIGINT = int(signal.SIGINT)
# Seconds of a wait at most: SIGINT does not end it, so it is looked for.
LOOK = 0.2
# Seconds after which another SIGINT breaks into a block that hangs: on a busy machine any block may last for a while.
HANGS = 1.0


class _Main:
    """The main thread, and the block that it is in."""

    __slots__ = ("block", "ident")

    def __init__(self) -> None:
        self.ident = threading.main_thread().ident
        self.block: Uninterrupted | None = None


# An instance: a class that changes with each message would slow down all that looks at it.
_MAIN = _Main()


def _forked() -> None:
    """Take in that the thread that forked is the main thread of the child."""
    _MAIN.ident = threading.get_ident()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forked)


class Uninterrupted:
    """A block into which SIGINT does not break, in the main thread; its handler runs at the end of the block.

    Another SIGINT, a second later or more, breaks in: a block that hangs must end. Blocks inside of others, and
    those of other threads, change nothing. A wait inside of the block goes through `wait`.
    """

    # On the class: of a block in another thread nothing is kept, and it is entered for each message.
    _before: Any = None
    # When the first SIGINT came.
    _pending: float | None = None

    def __enter__(self) -> None:
        if get_ident() != _MAIN.ident or _MAIN.block is not None:
            return
        before = _handler_of(SIGINT)
        # Else it ends the process, or is ignored, or belongs to another language.
        if callable(before):
            self._before = before
            _MAIN.block = self
            try:
                _set_handler(SIGINT, self._hold)
            except BaseException as error:
                self._before = _MAIN.block = None
                # The main thread of a sub-interpreter has no signals.
                if not isinstance(error, ValueError):
                    raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._before is not None:
            self._lift()

    def _hold(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of handlers
        now = time.monotonic()
        if self._pending is None:
            self._pending = now
        elif now - self._pending >= HANGS:
            self._lift()

    def _lift(self) -> None:
        """Put the handler back, and call it if there was a signal."""
        before = self._before
        try:
            # Behind this call it may run already.
            _set_handler(SIGINT, before)
        finally:
            pending = self._pending
            self._before = self._pending = None
            _MAIN.block = None
        if pending is not None:
            before(SIGINT, inspect.currentframe())

    def wait(self, clock: Clock, condition: threading.Condition, timeout: float | None) -> None:
        """Wait as `Clock.wait` does, and let SIGINT in: what it interrupts is the wait."""
        if isinstance(clock, SystemClock):
            clock.wait(condition, LOOK if timeout is None else min(timeout, LOOK))
            if self._pending is not None:
                self._lift()
            return
        # Time that a test moves is not cut into pieces.
        before = self._before
        _set_handler(SIGINT, before)
        try:
            clock.wait(condition, timeout)
        finally:
            _set_handler(SIGINT, self._hold)


def held_back() -> Uninterrupted | None:
    """Return the block that this thread is in, or None."""
    return _MAIN.block if get_ident() == _MAIN.ident else None
