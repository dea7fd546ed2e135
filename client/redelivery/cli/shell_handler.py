"""Handler that runs a shell command: the body is its stdin, its exit status decides."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
import time
from math import inf
from typing import TYPE_CHECKING

from redelivery.cli.command_environment import environment_for
from redelivery.cli.command_run import CommandRun
from redelivery.errors import ConfigurationError
from redelivery.handler_exceptions import Discard, Poison

if TYPE_CHECKING:
    from redelivery.message import Message

__all__ = ["CommandFailed", "CommandHandler", "NotStarted", "ServiceDown"]

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
