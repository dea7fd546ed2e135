"""Writing that never waits for the broker: what its socket does not take at once is written behind the caller.

So no lock is held, and no thread of the application is kept, while a broker does not read. What waits is bounded by who
asks for it: one settlement, and one copy at a time, for each delivery that the broker lets a consumer hold, and sends
until `redelivery.drive.sends` takes no more. Heart-beats do not bound it: a broker out of memory reads none, and sends.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BufferedWriter", "Postbox"]

AT_ONCE = getattr(socket, "MSG_DONTWAIT", None)  # Windows has none: there a thread writes everything


class BufferedWriter:
    """Writes to a blocking socket, in order, from any thread. `broken()` is called if that fails behind the caller."""

    def __init__(self, sock: socket.socket, broken: Callable[[], None]) -> None:
        self._socket = sock
        self._broken = broken
        self._lock = threading.Lock()
        self._waiting: list[bytes] = []
        self._failure: OSError | None = None
        self.behind = False  # a thread writes what the socket did not take

    def write(self, data: bytes) -> None:
        """Write now what the socket takes now, unless older bytes wait. Raises OSError."""
        with self._lock:
            if self._failure is not None:
                raise OSError(*self._failure.args)
            if not self.behind:
                sent = self._at_once(data)
                if sent == len(data):
                    return
                data = data[sent:]
                self.behind = True
                self._begin()
            self._waiting.append(data)

    def _begin(self) -> None:
        try:
            threading.Thread(target=self._catch_up, name="redelivery-stomp-writer", daemon=True).start()
        except RuntimeError as error:  # no more threads: half a frame is written, and the rest never will be
            self._failure = OSError(f"no thread to write with: {error}")
            self._broken()
            raise self._failure from None

    def _at_once(self, data: bytes) -> int:
        if AT_ONCE is None:
            return 0
        try:
            return self._socket.send(data, AT_ONCE)
        except BlockingIOError:
            return 0

    def _catch_up(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self.behind = False
                    return
                data, self._waiting = b"".join(self._waiting), []
            try:
                self._socket.sendall(data)
            except OSError as error:
                with self._lock:
                    self._failure, self._waiting = error, []
                self._broken()
                return


class Postbox:
    """What the reading thread is to write, with TLS, in the place of stomp.py's queue, whose `put` blocks at 278."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._frames: deque[bytes] = deque()
        self._ring, self._bell = socket.socketpair()
        self._shut = False

    def fileno(self) -> int:
        """Return what is readable while there are frames."""
        return self._bell.fileno()

    def put(self, item: bytes) -> None:
        """Add a frame. Raises OSError once it is shut down."""
        with self._lock:
            if self._shut:
                raise OSError("the connection is closed")
            if not self._frames:
                self._ring.send(b"!")
            self._frames.append(item)

    def get(self) -> bytes:
        """Take the oldest frame; only called when there is one."""
        with self._lock:
            frame = self._frames.popleft()
            if not self._frames:
                self._bell.recv(1)
            return frame

    def qsize(self) -> int:
        """Return how many frames wait."""
        return len(self._frames)

    def shutdown(self) -> None:
        """Take no more."""
        with self._lock:
            self._shut = True
            self._frames.clear()
            self._ring.close()
            self._bell.close()
