"""A server as a local process: its own process group, ended by pid, dead when the test run is dead."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Protocol

from integration.brokers.toolchain import BrokerError, run
from integration.eventually import eventually

# Blocks on a pipe that only the test run holds open: its end, however it comes, ends the server's group.
_WATCHDOG = 'read -r _ || kill -KILL -"$1"'


class Server(Protocol):
    """What runs a broker: a local process, or a container."""

    @property
    def running(self) -> bool:
        """Whether it is there (a paused one is)."""
        ...

    @property
    def pid(self) -> int:
        """The pid of its first process."""
        ...

    def start(self, timeout: float = 90.0) -> None:
        """Start, and wait until the log says that it serves; BrokerError with the log's tail otherwise."""
        ...

    def stop(self, timeout: float = 30.0) -> None:
        """End in good order (SIGTERM), by force after `timeout` seconds."""
        ...

    def kill(self) -> None:
        """SIGKILL."""
        ...

    def pause(self) -> None:
        """Freeze it: the sockets stay open and nothing answers."""
        ...

    def resume(self) -> None:
        """Let it go on, after `pause()`."""
        ...

    def execute(self, argv: list[str]) -> str:
        """Run a tool beside it, with its variables, and return what it printed; BrokerError when it fails."""
        ...

    def close(self) -> None:
        """Stop, and remove what it leaves behind."""
        ...

    def log_tail(self, characters: int = 4000) -> str:
        """The end of the log."""
        ...


class ServerProcess:
    """One run of a server. `ready` is the text in its log that says that it serves."""

    def __init__(self, argv: list[str], *, log: Path, ready: str, env: dict[str, str] | None = None) -> None:
        """Remember how to start; nothing runs before `start()`."""
        self._argv = argv
        self._log = log
        self._ready = ready.encode()
        self._env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether the process is there (a paused one is)."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The pid, which is also the process group's id."""
        if self._process is None:
            raise BrokerError("not started")
        return self._process.pid

    def start(self, timeout: float = 90.0) -> None:
        """Start, and wait until the log says that it serves; BrokerError with the log's tail otherwise."""
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
            raise BrokerError(f"{self._argv[0]} did not start:\n{self.log_tail()}") from error

    def stop(self, timeout: float = 30.0) -> None:
        """End in good order (SIGTERM), by force after `timeout` seconds."""
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)
        self._reap(timeout)

    def kill(self) -> None:
        """SIGKILL the whole group: what a crash of the machine looks like to the clients."""
        self._signal(signal.SIGKILL)
        self._reap(10.0)

    def pause(self) -> None:
        """SIGSTOP: the sockets stay open and nothing answers, from the return on."""
        self._signal(signal.SIGSTOP)
        if self._process is not None:
            group = self._process.pid
            # Its threads stop one by one, late on a busy machine.
            eventually(lambda: _running(group) == 0, 30.0, 0.005, "all threads are stopped")

    def resume(self) -> None:
        """SIGCONT, after `pause()`."""
        self._signal(signal.SIGCONT)

    def execute(self, argv: list[str]) -> str:
        """Run a tool beside it, with its variables, and return what it printed; BrokerError when it fails."""
        tool = shutil.which(argv[0], path=self._env["PATH"]) or argv[0]
        return run([tool, *argv[1:]], argv[0], env=self._env)

    def close(self) -> None:
        """Stop."""
        self.stop()

    def log_tail(self, characters: int = 4000) -> str:
        """The end of the log."""
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
        # Only while it is unreaped: after that the pid may belong to somebody else.
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
    """How many threads of a process group are not stopped; 0 where there is no /proc."""
    found = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(_fields(stat)[2]) == group:
                found += len(
                    [1 for task in stat.parent.glob("task/*/stat") if _fields(task)[0] not in "TtZX"]
                )
    return found


def _fields(stat: Path) -> list[str]:
    """What follows the name in a `stat` file: the state, the parent, the process group, and so on."""
    return stat.read_text().rpartition(")")[2].split()
