"""Handler that runs a shell command: the body is its stdin, its exit status decides."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from redelivery.errors import ConfigurationError
from redelivery.handler_exceptions import Discard, Poison

if TYPE_CHECKING:
    from typing import IO

    from redelivery.message import Message

__all__ = ["CommandFailed", "CommandHandler", "ServiceDown", "environment_of"]

# Bytes of stderr that are kept: the cause is shorter.
TAIL = 4096
# Bytes of a property: with more the system refuses to start the command.
LONGEST = 65536
_PLAIN_COMMAND = re.compile(r"\s*([A-Za-z0-9_./+-]+)(?=\s|$)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class CommandFailed(Exception):
    """The command ended with another status than 0."""


class ServiceDown(CommandFailed):
    """The command ended with a status of `--trip-on`: a service that it needs is down."""


def environment_of(message: Message) -> dict[str, str]:
    """Return a message's properties as environment variables.

    Application properties are `REDELIVERY_HEADER_<name>`. Names that are no identifiers, and values with NUL or longer
    than 64 KiB, are left out: no environment can carry them.
    """
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
    fields |= {f"HEADER_{name}": value for name, value in message.headers.items() if _NAME.fullmatch(name)}
    found: dict[str, str] = {}
    for name, value in fields.items():
        text = "" if value is None else str(value)
        if value is not None and "\0" not in text and len(text.encode("utf-8", "replace")) <= LONGEST:
            found[f"REDELIVERY_{name}"] = text.encode("utf-8", "replace").decode()
    return found


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
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False
        _check(command)

    def __call__(self, message: Message) -> None:
        """Run the command. Raises CommandFailed, Poison or Discard, with the end of its stderr, if its status is not 0.

        For statuses of `trip_on` it is ServiceDown. CommandFailed is also raised if the command was killed after
        `timeout`.
        """
        with self._lock:
            if self._stopped:
                raise CommandFailed("not started: stopping")
            process = subprocess.Popen(  # noqa: S602 - the user's own command; messages are no part of its text
                self._command,
                shell=True,
                stdin=subprocess.PIPE,
                stdout=self._stdout,
                stderr=subprocess.PIPE,
                env={**_inherited(), **environment_of(message)},
                # Ctrl-C reaches only us: the command may finish.
                start_new_session=True,
            )
            self._running.add(process)
        tail = bytearray()
        assert process.stdin is not None
        assert process.stderr is not None
        reader = threading.Thread(target=_tee, args=(process.stderr, tail), daemon=True)
        reader.start()
        limit = _Limit(process, self._timeout)
        try:
            with suppress(BrokenPipeError), process.stdin as stdin:  # it may leave its input unread
                stdin.write(message.body)
            status = process.wait()
            # A child that still runs can keep the pipe open.
            reader.join(1.0)
        finally:
            limit.end()
            with self._lock:
                self._running.discard(process)
        if limit.passed:
            raise CommandFailed(f"killed after {self._timeout:g} s (--timeout)")
        if status:
            raise self._steered.get(status, CommandFailed)(_cause(status, bytes(tail)))

    def kill(self) -> None:
        """Kill running commands with all children. Call it after the connection is closed: no failure is charged."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for process in running:
            _kill(process)


class _Limit:
    """Time limit of a process: kills it with all its children."""

    def __init__(self, process: subprocess.Popen[bytes], seconds: float | None) -> None:
        self.passed = False
        self._process = process
        self._timer = (
            None if seconds is None else threading.Timer(min(seconds, threading.TIMEOUT_MAX), self._pass)
        )
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()

    def _pass(self) -> None:
        self.passed = self._process.poll() is None
        if self.passed:
            _kill(self._process)

    def end(self) -> None:
        """Cancel the limit: the process has ended."""
        if self._timer is not None:
            self._timer.cancel()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _inherited() -> dict[str, str]:
    """Return our environment without `REDELIVERY_` variables: they belong to the message, and one has our password."""
    return {k: v for k, v in os.environ.items() if not k.startswith("REDELIVERY_")}


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


def _tee(stream: IO[bytes], tail: bytearray) -> None:
    with stream:
        while chunk := os.read(stream.fileno(), 65536):
            tail += chunk
            del tail[:-TAIL]
            with suppress(OSError, ValueError):
                sys.stderr.write(chunk.decode("utf-8", "replace"))
                sys.stderr.flush()


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
