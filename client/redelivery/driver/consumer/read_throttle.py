"""Holds back the reading thread for moments while the workers have enough: it reads more at once then.

Measured: reading as fast as possible brings five messages a read, and each read takes the interpreter lock from the
handler; with pauses the same machine does a third more. The pause is bounded, so heart-beats and receipts wait for
20 ms at most; where handlers are slow it is left out almost always.
"""

from __future__ import annotations

import threading

__all__ = ["ReadThrottle"]

HIGH, LOW = 256, 64  # ready messages at which reading pauses, and goes on
PAUSE = 0.02  # seconds of a pause at most
SKIPPED = 100  # events without a pause after one that nobody ended


class ReadThrottle:
    """A pause with an end that the workers or the time bring. All but `wait` are called with the channel's lock."""

    def __init__(self) -> None:
        self.paused = False
        self._skip = 0
        self._opened = threading.Lock()
        self._opened.acquire()

    def closes(self, ready: int) -> bool:
        """Whether the reading thread should pause now; it must call `wait` then."""
        if ready < HIGH or self.paused:  # one thread pauses at a time: there is one end to a pause
            return False
        if self._skip:
            self._skip -= 1
            return False
        self.paused = True
        return True

    def opens(self, ready: int) -> None:
        """End the pause once little is ready."""
        if ready <= LOW:
            self.paused = False
            if self._opened.locked():
                self._opened.release()

    def wait(self, lock: threading.Lock) -> None:
        """Pause the calling thread; without the channel's `lock`, which is taken afterwards."""
        if self._opened.acquire(timeout=PAUSE):
            return
        with lock:
            if self.paused:
                self.paused = False
                self._skip = SKIPPED  # the handlers are slow: a pause would only delay receipts
            else:
                # Opened at this moment: take it back for the next pause.
                self._opened.acquire(blocking=False)
