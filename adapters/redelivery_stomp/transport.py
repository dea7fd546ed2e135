"""stomp.py's transport with this library's frame scanner and writer, and with errors that give the reason.

The documented hook is `receive()`. Threads, heart-beats and the TLS write loop are stomp.py's. stomp.py's parser gets
no bytes: it ends a frame at other bytes than the scanner does, and could find frames that were not proven.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from stomp.exception import NotConnectedException
from stomp.transport import Transport
from stomp.utils import Frame

from redelivery.adapter_support.sockets import ResponseTimeout, connected
from redelivery.clock import capped
from redelivery.log import logger
from redelivery_stomp.frames import read_headers, show_answer, show_messages, show_written, watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.settings import Endpoint, TlsSettings
    from redelivery_stomp.frame_scanner import FrameScanner, OtherFrame

__all__ = ["BufferedWriter", "Postbox", "ScanningTransport"]


# ---- Buffered writer -------------------------------------------------------------------------------------
# Writer that never waits for the broker: a thread writes the bytes that the socket does not take at once.
#
# While a broker does not read, no lock is held and no thread of the application waits. The callers limit the bytes
# that wait: one settlement and one copy for each unsettled delivery, and the pending sends up to their own limit.
# Heart-beats do not limit them: a broker that is out of memory reads nothing, and still sends its heart-beats.

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


# ---- Transport -------------------------------------------------------------------------------------------

# Bytes of one read. A broker writes in small pieces, and each read takes the interpreter lock once.
READ = 262144
HEARTBEAT = b"\n"
# Seconds. The shortest time-out of a socket: 0 makes it non-blocking.
MOMENT = 0.001
# Seconds that a message waits for the rest of the partial frame after it. If that is a part of the message's text, it
# has no rest. But a broker in a garbage collection, or a network that stalls, may also be silent for seconds in the
# middle of a frame, and a message that is accused three times stops its consumer. A text with a part of a frame is
# rare, and can wait.
STARVED = 10.0


class ScanningTransport(Transport):
    """One socket to one address. `messages` gets lists of (header block, body), on the reading thread."""

    def __init__(
        self,
        endpoint: Endpoint,
        tls: TlsSettings,
        timeout: float,
        scanner: FrameScanner,
        messages: Callable[[list[tuple[bytes, bytes]]], None],
    ) -> None:
        super().__init__([(endpoint.host, endpoint.port)], auto_decode=False)
        # stomp.py's heart-beat listener. It does not see the messages that are read here.
        self.heartbeats: Any = None
        # When bytes arrived last (monotonic seconds).
        self.heard = time.monotonic()
        # Why reading has stopped: the broker did not write the bytes that arrived, or reading failed.
        self.fault = ""
        # The last whole message that arrived. If the broker did not write the bytes after it, they are a part of it.
        self.last_whole: tuple[bytes, bytes] | None = None
        self._endpoint = endpoint
        self._tls = tls
        self._connect_timeout = timeout
        # Monotonic time at which connecting must have succeeded.
        self._deadline = 0.0
        self._messages = messages
        self._scanner = scanner
        # Guards the scanner: against a read and `starve` at the same time.
        self._scanning = threading.Lock()
        self._starved = ResponseTimeout(self.starve, STARVED)
        # None with TLS.
        self._writer: BufferedWriter | None = None

    # Connecting: stomp.py logs why it failed, and raises an exception without the reason.

    def left(self) -> float:
        """Return the seconds that are left for connecting; never 0, which makes a socket non-blocking."""
        return capped(max(MOMENT, self._deadline - time.monotonic()))

    def attempt_connection(self) -> None:
        """Connect once. Raises TransportError or ConfigurationError."""
        self._deadline = time.monotonic() + self._connect_timeout
        self.socket = connected(self._endpoint, self._tls, self._deadline)
        self.socket.settimeout(None)
        if self._endpoint.tls:
            self._write_from_the_reading_thread(self.socket)
        else:
            self._writer = BufferedWriter(self.socket, self.disconnect_socket)
        self.current_host_and_port = (self._endpoint.host, self._endpoint.port)

    def _write_from_the_reading_thread(self, encrypted: socket.socket) -> None:
        """Set up stomp.py's TLS loop: two threads must not read and write an OpenSSL connection at the same time."""
        self.send_queue = Postbox()
        self.sel = selectors.DefaultSelector()
        self.sel.register(self.send_queue, selectors.EVENT_READ)
        self.sel.register(encrypted, selectors.EVENT_READ)
        self.blocking = False
        # Non-blocking.
        encrypted.settimeout(0.0)

    def shutdown_queue(self) -> None:
        """End the TLS loop. stomp.py does not close its selector, which has a descriptor of its own."""
        selector = self.sel
        try:
            super().shutdown_queue()
        finally:
            if selector is not None:
                selector.close()

    # Reading.

    def receive(self) -> bytes:
        """Pass on what is read, until the connection ends. stomp.py's parser gets no bytes."""
        while self.running and self.socket is not None:
            try:
                chunk = self.socket.recv(READ)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                # stomp.py waits for more.
                raise
            except OSError:
                chunk = b""
            if not chunk:
                # Over TLS stomp.py treats an end of stream as "no bytes yet", and would read on without a pause.
                self.running = self.running and self.blocking
                return b""
            self._heard()
            try:
                self._take(chunk)
            except Exception as error:
                # stomp.py would drop the exception silently, and over TLS go on reading.
                logger.exception("the frames of the broker could not be read; the connection will be closed")
                self.fault = self.fault or f"cannot read: {type(error).__name__}: {error}"
            if self.fault:
                # Over TLS stomp.py now waits for something to read: the end of the stream.
                self.disconnect_socket()
                return b""
            if isinstance(self.socket, ssl.SSLSocket) and not self.socket.pending():
                # This thread also writes: without a pause in the reading, nothing would be written.
                raise ssl.SSLWantReadError
        return b""

    @property
    def garbled(self) -> bool:
        """True if bytes arrived that the broker has not written."""
        return bool(self._scanner.fault)

    @property
    def culprit(self) -> tuple[bytes, bytes] | None:
        """The message that holds, or is, the bytes that the broker has not written; None if there was no message."""
        head = self._scanner.culprit
        return self.last_whole if head is None else (head, b"")

    def _take(self, chunk: bytes) -> None:
        scanner = self._scanner
        with self._scanning:
            messages, others = scanner.feed(chunk)
            self.fault = scanner.fault
        if scanner.starving:
            # This time-out is never cancelled: a thread for each read would cost more.
            self._starved.asked()
        if messages:
            self.last_whole = messages[-1]
            # The last message before a fault may be a part of it: the messages of this read are not passed on.
            if not self.fault:
                if watched():
                    show_messages(messages)
                self._messages(messages)
        for each in others:
            self._answer(each)

    def starve(self) -> None:
        """End the connection if a message still waits for the partial frame after it, silent for `STARVED` seconds."""
        with self._scanning:
            held = self._scanner.give_up()
            if not held:
                return
            self.last_whole, self.fault = held[-1], self._scanner.fault
        self.disconnect_socket()

    def _answer(self, other: OtherFrame) -> None:
        frame = Frame(other.command, read_headers(other.head), other.body)
        if watched():
            # In the order of the frame.
            show_answer(other.command, dict(reversed(frame.headers.items())))
        # Not through stomp.py's method, which logs an ERROR: brokers repeat the user's name in it.
        self.notify(other.command.lower(), frame)

    def _heard(self) -> None:
        self.heard = time.monotonic()
        beats = self.heartbeats
        if beats is not None and beats.received_heartbeat is not None:
            # stomp.py may have set a time in the future, as a grace period.
            beats.received_heartbeat = max(beats.received_heartbeat, time.monotonic())

    def disconnect_socket(self) -> None:
        """End the connection from any thread; the reading thread notices, and cleans up."""
        self.running = False
        # Read once: the reading thread may clear it at any moment.
        open_socket = self.socket
        if open_socket is not None:
            # It may be closed already.
            with suppress(OSError):
                # Not `SSLSocket.shutdown`: after it a read in another thread would return encrypted bytes as plain.
                socket.socket.shutdown(open_socket, socket.SHUT_RDWR)

    def cleanup(self) -> None:
        """Shut the socket down and close it; a close alone does not end a write of another thread."""
        self._starved.end()
        self.disconnect_socket()
        super().cleanup()

    # Writing.

    def write(self, data: bytes) -> None:
        """Write whole frames, from any thread; never waits for the broker. Raises OSError or NotConnectedException."""
        if watched():
            show_written(data)
        queue, writer = self.send_queue, self._writer
        if queue is not None:
            queue.put(data)
        elif writer is not None and self.socket is not None:
            writer.write(data)
        else:
            raise NotConnectedException

    def send(self, encoded_frame: bytes) -> None:
        """Write a frame of stomp.py's own. A heart-beat is dropped while other bytes wait."""
        if not (encoded_frame == HEARTBEAT and self._writer is not None and self._writer.behind):
            self.write(encoded_frame)

    @property
    def behind(self) -> bool:
        """True if bytes wait because the broker has not read the ones before."""
        queue, writer = self.send_queue, self._writer
        return (queue is not None and queue.qsize() > 0) or (writer is not None and writer.behind)
