"""Short pauses of the reading thread while the workers have enough messages: it then reads more at once.

Measured: reading as fast as possible gets five messages a read, and each read takes the interpreter lock from the
handler. With pauses the same machine handles a third more messages. A pause delays heart-beats and receipts by 20 ms at
most. If handlers are slow, nearly all pauses are left out.
"""

from __future__ import annotations

import threading

__all__ = ["ReadThrottle"]

# Ready messages at which a pause begins, and at which it ends.
HIGH, LOW = 256, 64
PAUSE = 0.02  # seconds of a pause at most
# Events without a pause after a pause that no worker ended.
SKIPPED = 100


class ReadThrottle:
    """A pause that ends by the workers or by time. All methods but `wait` are called with the dispatcher's lock."""

    def __init__(self) -> None:
        self.paused = False
        self._skip = 0
        self._opened = threading.Lock()
        self._opened.acquire()

    def closes(self, ready: int) -> bool:
        """Return True if the reading thread is to pause now; it must then call `wait`."""
        # Only one thread pauses at a time: the end of a pause wakes one thread.
        if ready < HIGH or self.paused:
            return False
        if self._skip:
            self._skip -= 1
            return False
        self.paused = True
        return True

    def opens(self, ready: int) -> None:
        """End the pause if few messages are ready."""
        if ready <= LOW:
            self.paused = False
            if self._opened.locked():
                self._opened.release()

    def wait(self, lock: threading.Lock) -> None:
        """Pause the calling thread. Called without the dispatcher's `lock`; it is taken afterwards."""
        if self._opened.acquire(timeout=PAUSE):
            return
        with lock:
            if self.paused:
                self.paused = False
                # The handlers are slow: a pause would only delay receipts.
                self._skip = SKIPPED
            else:
                # A worker has just ended the pause: take the lock again for the next pause.
                self._opened.acquire(blocking=False)
