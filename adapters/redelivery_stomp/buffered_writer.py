"""Writing that never waits for the broker: a thread writes the bytes that the socket does not take at once.

No lock is held and no thread of the application waits while a broker does not read. The callers bound the bytes that
wait: one settlement and one copy for each unsettled delivery, and the pending sends up to their own limit. Heart-beats
are no bound: a broker without memory reads nothing, and still sends its own.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BufferedWriter", "Postbox"]

# Windows has no such flag: there a thread writes everything.
AT_ONCE = getattr(socket, "MSG_DONTWAIT", None)


class BufferedWriter:
    """Writes to a blocking socket, in order, from any thread. `broken()` is called if the writing thread fails."""

    def __init__(self, sock: socket.socket, broken: Callable[[], None]) -> None:
        self._socket = sock
        self._broken = broken
        self._lock = threading.Lock()
        self._waiting: list[bytes] = []
        self._failure: OSError | None = None
        # True while the thread writes what the socket did not take.
        self.behind = False

    def write(self, data: bytes) -> None:
        """Write what the socket takes at once, behind older bytes; a thread writes the rest. Raises OSError."""
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
        except RuntimeError as error:
            # The process may have no more threads. Half a frame is written, and the rest cannot follow.
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
    """Frames for the reading thread to write, with TLS. It replaces stomp.py's queue, whose `put` blocks at 278."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._frames: deque[bytes] = deque()
        self._ring, self._bell = socket.socketpair()
        self._shut = False

    def fileno(self) -> int:
        """Return the descriptor that is readable while there are frames."""
        return self._bell.fileno()

    def put(self, item: bytes) -> None:
        """Add a frame. Raises OSError after `shutdown`."""
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
        """Return the number of frames."""
        return len(self._frames)

    def shutdown(self) -> None:
        """Drop the frames, and refuse further ones."""
        with self._lock:
            self._shut = True
            self._frames.clear()
            self._ring.close()
            self._bell.close()
