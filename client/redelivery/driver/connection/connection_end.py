"""End of a connection by an error: the first error, if the application has got it, and the call of `on_stopped`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, cast

from redelivery.clock import capped
from redelivery.errors import RedeliveryError, another
from redelivery.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ConnectionEnd", "in_a_thread"]


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
