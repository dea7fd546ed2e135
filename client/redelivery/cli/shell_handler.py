"""Handler that runs a shell command: the body is its stdin, its exit status decides."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from math import inf
from typing import IO, TYPE_CHECKING, cast

from redelivery.errors import ConfigurationError
from redelivery.handler_exceptions import Discard, Poison

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.message import Message

__all__ = ["CommandHandler", "CommandRun", "NotStarted", "ServiceDown", "environment_for"]


# ---- Command run -----------------------------------------------------------------------------------------
# One run of a shell command: the thread that waits for it writes its stdin, reads its stderr, and watches its time.
#
# The run is over when the command itself has ended, whatever its children keep open: no thread and no descriptor of
# ours waits for them.

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


# ---- Command environment ---------------------------------------------------------------------------------
# Environment of a shell command: the properties of its message, as far as the system can pass them on.
#
# A message must not be able to prevent the start of its command. The system refuses one whose environment and
# arguments are too large together, and one variable that is.

# Bytes of a variable, with its name: Linux refuses 128 KiB.
LONGEST = 65536
# Bytes for environment and arguments together: where the system names no limit, and at most (Linux: 6 MB).
UNKNOWN, MOST = 131072, 4 << 20
# Bytes of a variable beside its text: "=", NUL, and a pointer.
EXTRA = 10
# The names of properties that are left out: characters of each, and how many.
LONGEST_NAME, MOST_NAMES = 80, 20
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PREFIX, _LEFT_OUT = "REDELIVERY_", "REDELIVERY_LEFT_OUT"


def environment_for(message: Message, command: str) -> dict[str, str]:
    """Return the environment of a command: ours, and the properties of a message.

    Ours is without `REDELIVERY_` variables: these belong to the message, and one has our password. Application
    properties are `REDELIVERY_HEADER_<name>`. No environment can carry names that are no identifiers, values with a NUL
    or longer than 64 KiB, or more in sum than the system allows; `REDELIVERY_LEFT_OUT` has the names of those, as JSON.
    """
    found = {name: value for name, value in os.environ.items() if not name.startswith(_PREFIX)}
    room = _room(found, command)
    left_out: list[str] = []
    # The shortest first: as many as possible.
    for name, text in sorted(_texts(message).items(), key=lambda each: len(each[1])):
        size = len(name) + len(text.encode()) + EXTRA
        if _NAME.fullmatch(name) and "\0" not in text and size <= min(room, LONGEST):
            found[_PREFIX + name] = text
            room -= size + len(_PREFIX)
        else:
            left_out.append(name)
    if left_out:
        names = [name[:LONGEST_NAME] for name in left_out[:MOST_NAMES]]
        more = [f"and {len(left_out) - MOST_NAMES} more"] if len(left_out) > MOST_NAMES else []
        found[_LEFT_OUT] = json.dumps(names + more)
    return found


def _room(own: Mapping[str, str], command: str) -> int:
    """Return the bytes for properties: half of what is left; the command needs arguments of its own."""
    try:
        limit = os.sysconf("SC_ARG_MAX")
    except (OSError, ValueError):
        limit = UNKNOWN
    used = sum(len(os.fsencode(name)) + len(os.fsencode(value)) + EXTRA for name, value in own.items())
    return max(0, (min(limit, MOST) if limit > 0 else UNKNOWN) - used - len(os.fsencode(command))) // 2


def _texts(message: Message) -> dict[str, str]:
    """Return the properties that the message has, by the name of their variable without its prefix."""
    fields: dict[str, object] = {
        "MESSAGE_ID": message.message_id,
        "DESTINATION": message.destination,
        "DELIVERY_COUNT": message.delivery_count,
        "REDELIVERED": str(message.redelivered).lower(),
        "CORRELATION_ID": message.correlation_id,
        "REPLY_TO": message.reply_to,
        "CONTENT_TYPE": message.content_type,
        "PRIORITY": message.priority,
        "GROUP": message.group,
        "TIMESTAMP": message.timestamp.isoformat() if message.timestamp else None,
        "EXPIRATION": message.expiration.isoformat() if message.expiration else None,
    }
    fields |= {f"HEADER_{name}": value for name, value in message.headers.items()}
    # A lone surrogate has no UTF-8.
    return {
        name: str(value).encode("utf-8", "replace").decode()
        for name, value in fields.items()
        if value is not None
    }


# ---- Shell handler ---------------------------------------------------------------------------------------

# Seconds until a command that could not be started is tried again, while others of ours run.
AGAIN = 1.0
_PLAIN_COMMAND = re.compile(r"\s*([A-Za-z0-9_./+-]+)(?=\s|$)")


class CommandFailed(Exception):
    """The command ended with another status than 0."""


class ServiceDown(CommandFailed):
    """The command ended with a status of `--trip-on`: a service that it needs is down. Or it could not be started."""


class NotStarted(ServiceDown):
    """The system could not start the command: it has no descriptors, processes or memory left."""


class CommandHandler:
    """Runs a command through the shell for each message; safe to call from several threads."""

    def __init__(
        self,
        command: str,
        *,
        own_stdout: bool = True,
        poison_on: frozenset[int] = frozenset(),
        discard_on: frozenset[int] = frozenset(),
        trip_on: frozenset[int] = frozenset(),
        timeout: float | None = None,
    ) -> None:
        """Raise ConfigurationError if the shell does not know the command.

        `own_stdout`: True: it writes to our stdout; False: to our stderr, because stdout is for data. `poison_on`,
        `discard_on`: exit statuses that dead-letter, or drop, the message at once. `trip_on`: those that raise
        `ServiceDown`. `timeout`: seconds after which it is killed; None: no limit.
        """
        self._timeout = timeout
        self._command = command
        self._steered: dict[int, type[Exception]] = {
            **dict.fromkeys(poison_on, Poison),
            **dict.fromkeys(discard_on, Discard),
            **dict.fromkeys(trip_on, ServiceDown),
        }
        self._stdout = None if own_stdout else 2
        # Guards the two below; notified when a command has ended.
        self._turn = threading.Condition()
        self._running: set[CommandRun] = set()
        self._stopped = False
        _check(command)

    def __call__(self, message: Message) -> None:
        """Run the command. Raises CommandFailed, Poison or Discard, with the end of its stderr, if its status is not 0.

        For statuses of `trip_on` it is ServiceDown. CommandFailed is also raised if the command was killed after
        `timeout`; NotStarted, if the system could not start it.
        """
        begun = time.monotonic()
        run = self._started(message, begun)
        try:
            status = run.attend(message.body, None if self._timeout is None else begun + self._timeout)
        finally:
            with self._turn:
                self._running.discard(run)
                self._turn.notify_all()
        if status is None:
            raise CommandFailed(f"killed after {self._timeout:g} s (--timeout)")
        if status:
            raise self._steered.get(status, CommandFailed)(_cause(status, bytes(run.tail)))

    def _started(self, message: Message, begun: float) -> CommandRun:
        """Start the command. If descriptors, processes or memory are short, wait for the end of others of ours.

        Nothing that prevents a start is of the message's making: its environment is cut to what the system takes.
        """
        environment = environment_for(message, self._command)
        with self._turn:
            while True:
                if self._stopped:
                    raise CommandFailed("not started: stopping")
                try:
                    run = CommandRun(self._command, environment, self._stdout)
                except (OSError, MemoryError) as error:
                    # The other half of the time is for the command.
                    left = inf if self._timeout is None else begun + self._timeout / 2 - time.monotonic()
                    if not self._running or left <= 0:
                        text = str(error) or type(error).__name__
                        raise NotStarted(f"the command cannot be started: {text}") from error
                    self._turn.wait(min(AGAIN, left))
                else:
                    self._running.add(run)
                    return run

    def kill(self) -> None:
        """Kill running commands with all children. Call it after the connection is closed: no failure is charged."""
        with self._turn:
            self._stopped = True
            running = list(self._running)
            self._turn.notify_all()
        for run in running:
            run.kill()


def _check(command: str) -> None:
    if not command.strip() or "\0" in command:
        raise ConfigurationError("--exec needs a command", option="--exec")
    found = _PLAIN_COMMAND.match(command)
    if found is None:
        # More than a word: only the shell can read it.
        return
    # Without this check a mistyped name would dead-letter every message of the queue.
    known = subprocess.run(  # noqa: S603 - a fixed script; the word is an argument
        ["/bin/sh", "-c", 'command -v -- "$1"', "sh", found[1]],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    if known.returncode:
        raise ConfigurationError(f"--exec: the shell finds no command {found[1]!r}", option="--exec")


def _cause(status: int, tail: bytes) -> str:
    if status < 0:
        try:
            what = f"killed by {signal.Signals(-status).name}"
        except ValueError:
            what = f"killed by signal {-status}"
    else:
        what = f"exit status {status}"
    lines = [line.strip() for line in tail.decode("utf-8", "replace").splitlines() if line.strip()]
    return f"{what}: {' / '.join(lines[-3:])}" if lines else what
