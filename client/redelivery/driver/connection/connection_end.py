"""End of a connection by an error: the first one, whether the application has been given it, and `on_stopped`."""

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
    """Start a thread that makes one call: the thread that found the error may hold locks, or be waited for."""
    thread = threading.Thread(target=call, name="redelivery-stopped", daemon=True)
    thread.start()
    return thread


class ConnectionEnd:
    """The first error of a connection. All methods may be called from any thread, with any lock held."""

    def __init__(
        self,
        on_stopped: Callable[[BaseException], object] | None,
        stop: Callable[[], None],
        elsewhere: Callable[[Callable[[], None]], Any] = in_a_thread,
    ) -> None:
        """Take in what is called for an error.

        Args:
            on_stopped: the application's; called once, without a lock.
            stop: called last; it wakes what waits for the end, and calls nothing of the application.
            elsewhere: has a function called where the application may run; returns its thread, if it has one.
        """
        self.error: BaseException | None = None
        self.given = False
        """True once the application has been given the error, or is about to be, by `on_stopped`."""
        self._on_stopped = on_stopped
        self._stop = stop
        self._elsewhere = elsewhere
        self._lock = threading.Lock()
        self._caller: threading.Thread | None = None
        self._called = threading.Event()

    def fail(self, error: BaseException) -> None:
        """Take in an error; only the first one counts."""
        # An observer's KeyboardInterrupt stops a consumer with an error of ours.
        cause = error.__cause__ if isinstance(error, RedeliveryError) else None
        if cause is not None and not isinstance(cause, Exception):
            error = cause
        with self._lock:
            if self.error is not None:
                return
            self.error = error
            # At once: who leaves the connection before the call has begun is not to raise it.
            self.given = self._on_stopped is not None
        try:
            if self._on_stopped is not None:
                self._elsewhere(self._call)
        # No thread can be started, or the loop is closed: then leaving the connection raises it.
        except RuntimeError:
            self.given = False
            self._called.set()
        finally:
            # Last: who is woken, and leaves, waits for the call.
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
        # Else it is the call itself that closes the connection.
        if expected and self._caller is not threading.current_thread():
            self._called.wait(capped(timeout))

    def raise_error(self, *, unless_given: bool = False) -> None:
        """Raise the error, if there is one."""
        error = self.error
        if error is None or (unless_given and self.given):
            return
        self.given = True
        # Several threads may raise it: an exception has one traceback.
        raise another(error) if isinstance(error, RedeliveryError) else error
