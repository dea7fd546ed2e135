"""One run of a shell command: the thread that waits for it writes its stdin, reads its stderr, and watches its time.

The run is over when the command itself has ended, whatever its children keep open: no thread and no descriptor of ours
waits for them.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import IO, TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CommandRun"]

# Bytes of stderr that are kept: the cause is shorter.
TAIL = 4096
# Bytes that are read or written at once: a pipe has as many.
CHUNK = 65536
# Most chunks that are read after the end of the command. Its own are in the pipe; a child may go on writing.
LAST = 16
# Seconds between two looks whether the command has ended, while a child may keep its pipes open.
LOOK = 0.05


class CommandRun:
    """A command that has been started in a process group of its own, with pipes for its stdin and stderr."""

    def __init__(self, command: str, environment: Mapping[str, str], stdout: int | None) -> None:
        """Start a command through the shell.

        Args:
            command: The text for the shell.
            environment: Its whole environment.
            stdout: Descriptor for its stdout; None: ours.

        Raises:
            OSError: The system cannot start it: it has no descriptors, processes or memory left.
            MemoryError: As OSError.
        """
        self.tail = bytearray()
        """End of what has been written to its stderr."""
        self._process = subprocess.Popen(  # noqa: S602 - the user's own command; messages are no part of its text
            command,
            bufsize=0,
            shell=True,
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=environment,
            # Ctrl-C reaches only us: the command may finish.
            start_new_session=True,
        )
        self._poller = select.poll()
        # Our ends of the pipes that are not at their end yet, by descriptor.
        self._open: dict[int, IO[bytes]] = {}

    def attend(self, body: bytes, until: float | None) -> int | None:
        """Give the command its stdin until it has ended. Call it once, on one thread.

        Args:
            body: What it reads.
            until: Time of `time.monotonic` at which it is killed, with all its children; None: never.

        Returns:
            Its exit status, negative for a signal; None if its time was over.
        """
        process, left = self._process, memoryview(body)
        assert process.stdin is not None
        assert process.stderr is not None
        with process.stdin as stdin, process.stderr as stderr:
            self._add(stdin, select.POLLOUT)
            self._add(stderr, select.POLLIN)
            while process.poll() is None:
                seconds = None if until is None else until - time.monotonic()
                if seconds is not None and seconds <= 0:
                    # The command has not been waited for: the number of its group is still its own.
                    self.kill()
                    process.wait()
                    return None
                for pipe in self._ready(seconds):
                    if pipe is stderr:
                        self._read(stderr)
                    else:
                        left = self._write(stdin, left)
            for _ in range(LAST):
                if not self._read(stderr):
                    break
        return process.returncode

    def kill(self) -> None:
        """Kill the command with all its children, unless it has ended. From any thread."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _add(self, pipe: IO[bytes], what: int) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._open[pipe.fileno()] = pipe
        self._poller.register(pipe, what)

    def _ended(self, pipe: IO[bytes]) -> None:
        if self._open.pop(pipe.fileno(), None) is not None:
            self._poller.unregister(pipe)

    def _ready(self, seconds: float | None) -> list[IO[bytes]]:
        """Wait until pipes are ready, or the command has ended; but only so long. Return these pipes."""
        if not self._open:
            # Nothing but its end is left.
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
            return []
        limit = LOOK if seconds is None else min(LOOK, seconds)
        return [self._open[number] for number, _ in self._poller.poll(1000 * limit)]

    def _write(self, stdin: IO[bytes], left: memoryview) -> memoryview:
        """Write some of the body; return the rest. The command may leave its input unread."""
        try:
            # None: the pipe is full.
            written = cast("int | None", stdin.write(left[:CHUNK])) or 0
        except BrokenPipeError:
            written = len(left)
        left = left[written:]
        if not left:
            self._ended(stdin)
            stdin.close()
        return left

    def _read(self, stderr: IO[bytes]) -> bool:
        """Read some of stderr, and pass it on. Return False if there is nothing more now."""
        chunk: bytes | None = stderr.read(CHUNK)
        if chunk == b"":
            self._ended(stderr)
        if not chunk:
            return False
        self.tail += chunk
        del self.tail[:-TAIL]
        with suppress(OSError, ValueError):
            sys.stderr.write(chunk.decode("utf-8", "replace"))
            sys.stderr.flush()
        return True
