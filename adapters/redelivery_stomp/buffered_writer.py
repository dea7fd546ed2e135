"""Writer that never waits for the broker: a thread writes the bytes that the socket does not take at once.

While a broker does not read, no lock is held and no thread of the application waits. The callers limit the bytes that
wait: one settlement and one copy for each unsettled delivery, and the pending sends up to their own limit. Heart-beats
do not limit them: a broker that is out of memory reads nothing, and still sends its heart-beats.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BufferedWriter", "Postbox"]

# Windows has no such flag: a thread writes everything there.
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
            # The process cannot start another thread. A part of a frame is written, and the rest cannot follow.
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
    """Frames that the reading thread writes, with TLS. Replaces stomp.py's queue, whose `put` blocks at 278 frames."""

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
        """Remove and return the oldest frame; only called when there is one."""
        with self._lock:
            frame = self._frames.popleft()
            if not self._frames:
                self._bell.recv(1)
            return frame

    def qsize(self) -> int:
        """Return the number of frames."""
        return len(self._frames)

    def shutdown(self) -> None:
        """Drop the frames, and raise for further ones."""
        with self._lock:
            self._shut = True
            self._frames.clear()
            self._ring.close()
            self._bell.close()
