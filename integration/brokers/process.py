"""A server as a local process with its own process group, which is ended by pid, and ends with the test run."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Protocol

from tests.children import for_all_tests

from integration.brokers.toolchain import BrokerError, run
from integration.eventually import eventually

# Blocks on a pipe that only the test run keeps open: any end of the test run ends the server's process group.
_WATCHDOG = 'read -r _ || kill -KILL -"$1"'


class Server(Protocol):
    """Runs a broker: as a local process, or in a container."""

    @property
    def running(self) -> bool:
        """True if it exists, also if it is paused."""
        ...

    @property
    def pid(self) -> int:
        """Pid of its first process."""
        ...

    def start(self, timeout: float = 240.0) -> None:
        """Start, and wait for the log line `ready`. Raises BrokerError with the end of the log."""
        ...

    def stop(self, timeout: float = 30.0) -> None:
        """End with a clean shutdown (SIGTERM), or by force after `timeout` seconds."""
        ...

    def kill(self) -> None:
        """Send SIGKILL."""
        ...

    def pause(self) -> None:
        """Freeze it: the sockets stay open and nothing answers."""
        ...

    def resume(self) -> None:
        """Continue after `pause()`."""
        ...

    def execute(self, argv: list[str]) -> str:
        """Run a tool next to it, with its variables, and return the output. Raises BrokerError if the tool fails."""
        ...

    def close(self) -> None:
        """Stop, and remove its data."""
        ...

    def log_tail(self, characters: int = 4000) -> str:
        """Return the end of the log."""
        ...


class ServerProcess:
    """One run of a server. `ready` is the log line that means that it serves."""

    def __init__(self, argv: list[str], *, log: Path, ready: str, env: dict[str, str] | None = None) -> None:
        """Store the configuration; nothing runs before `start()`."""
        self._argv = argv
        self._log = log
        self._ready = ready.encode()
        self._env = {**for_all_tests(), **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """True if the process exists, also if it is paused."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Pid of the process, which is also the process group's id."""
        if self._process is None:
            raise BrokerError("not started")
        return self._process.pid

    def start(self, timeout: float = 240.0) -> None:
        """Start, and wait for the log line `ready`. Raises BrokerError with the end of the log."""
        if self.running:
            raise BrokerError("already running")
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            offset = log.tell()
            self._process = subprocess.Popen(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._env,
                start_new_session=True,
            )
        self._watch(self._process.pid)
        try:
            eventually(lambda: self._is_ready(offset), timeout, message=f"log {self._log} says it serves")
        except (AssertionError, BrokerError) as error:
            self.kill()
            raise BrokerError(f"{self._argv[0]} did not start: {error}\n{self.log_tail()}") from error

    def stop(self, timeout: float = 30.0) -> None:
        """End with a clean shutdown (SIGTERM), or by force after `timeout` seconds."""
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)
        self._reap(timeout)

    def kill(self) -> None:
        """Send SIGKILL to the whole group: to clients this looks like a crash of the machine."""
        self._signal(signal.SIGKILL)
        self._reap(10.0)

    def pause(self) -> None:
        """Send SIGSTOP, and wait until it is effective: sockets stay open, but get no answer."""
        self._signal(signal.SIGSTOP)
        if self._process is not None:
            group = self._process.pid
            # Its threads stop one by one, late on a busy machine.
            eventually(lambda: _running(group) == 0, 30.0, 0.005, "all threads are stopped")

    def resume(self) -> None:
        """Send SIGCONT, after `pause()`."""
        self._signal(signal.SIGCONT)

    def execute(self, argv: list[str]) -> str:
        """Run a tool next to it, with its variables, and return the output. Raises BrokerError if the tool fails."""
        tool = shutil.which(argv[0], path=self._env["PATH"]) or argv[0]
        return run([tool, *argv[1:]], argv[0], env=self._env)

    def close(self) -> None:
        """Stop."""
        self.stop()

    def log_tail(self, characters: int = 4000) -> str:
        """Return the end of the log."""
        with contextlib.suppress(OSError):
            return self._log.read_text(errors="replace")[-characters:]
        return ""

    def _is_ready(self, offset: int) -> bool:
        if not self.running:
            raise BrokerError("it ended")
        with self._log.open("rb") as log:
            log.seek(offset)
            return self._ready in log.read()

    def _signal(self, number: signal.Signals) -> None:
        # Only before it is reaped: after that the pid may belong to another process.
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _reap(self, timeout: float) -> None:
        if self._process is not None:
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
                self._process.wait(10.0)
        self._unwatch()

    def _watch(self, group: int) -> None:
        self._unwatch()
        self._watchdog = subprocess.Popen(
            ["sh", "-c", _WATCHDOG, "watchdog", str(group)],
            env=for_all_tests(),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _unwatch(self) -> None:
        if self._watchdog is not None:
            self._watchdog.communicate(b"done\n")
            self._watchdog = None


def _running(group: int) -> int:
    """Return the number of threads of a process group that are not stopped; 0 without /proc."""
    found = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(_fields(stat)[2]) == group:
                found += len(
                    [1 for task in stat.parent.glob("task/*/stat") if _fields(task)[0] not in "TtZX"]
                )
    return found


def _fields(stat: Path) -> list[str]:
    """Return the fields after the name in a `stat` file: the state, the parent, the process group, and so on."""
    return stat.read_text().rpartition(")")[2].split()
