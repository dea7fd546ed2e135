"""I/O thread of one connection: moves bytes between a socket and proton, and runs the actions that follow from them."""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery_amqp.proton_engine import ProtonEngine

__all__ = ["IoThread"]

# Bytes per read. Smaller reads cost more switches of the interpreter lock.
READ = 262144


class IoThread:
    """Reader on its own thread. Writes happen on the thread that has something to write, under the wire's lock.

    Args:
        sock: Connected socket; closed when the thread ends.
        wire: Protocol engine of the connection.
        arrived: Called with the lock held after bytes arrived or time passed; returns the actions to run without it.
        ended: Called once with the reason, when the thread ends.
    """

    def __init__(
        self,
        sock: socket.socket,
        wire: ProtonEngine,
        arrived: Callable[[], list[Callable[[], None]]],
        ended: Callable[[str], None],
    ) -> None:
        sock.settimeout(0.0)
        self._socket = sock
        self._encrypted = isinstance(sock, ssl.SSLSocket)
        self._wire = wire
        self._arrived = arrived
        self._ended = ended
        # When bytes arrived last (monotonic seconds).
        self.heard = time.monotonic()
        # True if the thread was ended by an error in the adapter.
        self.faulty = False
        self._over = False
        # True while the socket takes no more bytes.
        self._blocked = False
        self._reason = "the broker closed the connection"
        self._bell, self._ring = socket.socketpair()
        self._bell.settimeout(0.0)
        self._ring.settimeout(0.0)
        self._buffer = memoryview(bytearray(READ))
        self._thread = threading.Thread(target=self._run, name="redelivery-amqp", daemon=True)

    @property
    def own(self) -> bool:
        """True on the connection's thread."""
        return threading.current_thread() is self._thread

    def start(self) -> None:
        """Start to read."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End the thread, and wait up to `timeout` seconds for it: no callback runs afterwards."""
        self._over = True
        self.wake()
        if not self.own and self._thread.is_alive():
            self._thread.join(timeout)

    def flush(self) -> None:
        """Write proton's output. The caller has the wire's lock; the call never waits."""
        if self._blocked or self._over:
            # The thread continues when the socket takes more.
            return
        wire = self._wire
        while (data := wire.output()) is not None:
            try:
                written = self._socket.send(data)
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                self._blocked = True
                if not self.own:
                    self.wake()
                return
            except OSError as error:
                self._fail(str(error) or type(error).__name__)
                return
            wire.written(written)

    def _fail(self, reason: str) -> None:
        self._reason = reason
        self._over = True
        self.wake()

    def end(self) -> None:
        """End the thread after its current turn."""
        self._over = True
        self.wake()

    def wake(self) -> None:
        """Wake the thread for a turn."""
        with suppress(OSError):
            self._ring.send(b"!")

    # The thread.

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._bell.fileno(), select.POLLIN)
        number = self._socket.fileno()
        poll.register(number, select.POLLIN)
        try:
            while not self._over:
                for action in self._turn():
                    action()
                if self._over:
                    break
                events = select.POLLIN | (select.POLLOUT if self._blocked else 0)
                poll.modify(number, events)
                if any(where != number for where, _ in poll.poll(self._patience())):
                    with suppress(OSError):
                        self._bell.recv(4096)
        except Exception as error:  # noqa: BLE001 - a fault must end the connection, not leave it open without a thread
            self.faulty = True
            self._reason = f"a fault in the adapter: {type(error).__name__}: {error}"
        finally:
            self._over = True
            for end in (self._socket, self._bell, self._ring):
                end.close()
            self._ended(self._reason)

    def _turn(self) -> list[Callable[[], None]]:
        """Read once, have proton decode it, and write; return the actions to run without the lock."""
        with self._wire.lock:
            self._read()
            actions = self._arrived()
            self._deadline = self._wire.tick(time.monotonic())
            self._blocked = False
            self._flush_at_end()
            return actions

    def _flush_at_end(self) -> None:
        # A close frame is written even if the thread ends.
        over, self._over = self._over, False
        self.flush()
        self._over = self._over or over

    _deadline = 0.0

    def _patience(self) -> float | None:
        """Return the milliseconds to wait for bytes; None: no limit."""
        if self._encrypted and self._socket.pending():  # type: ignore[attr-defined]
            return 0
        return None if not self._deadline else max(0.0, self._deadline - time.monotonic()) * 1000

    def _read(self) -> None:
        try:
            size = self._socket.recv_into(self._buffer)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError as error:
            self._reason = str(error) or type(error).__name__
            size = 0
        if size:
            self.heard = time.monotonic()
            self._wire.feed(self._buffer[:size])
        else:
            self._wire.end_of_input()
            self._over = True
