"""A program as users start it: in a process of its own, with its output and its exit code."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from integration.brokers.ports import HOST, free_ports
from integration.eventually import PATIENCE, eventually
from integration.running import Running

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

__all__ = ["EXAMPLES", "Program", "WebProgram"]

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples" / "embedding"


class Program(Running):
    """A running Python program. The end of the test kills it, with its child processes."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        folder: Path = EXAMPLES,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Set the arguments of the interpreter, and the folder to run in."""
        self._arguments = [sys.executable, *arguments]
        self._folder = folder
        sources = [str(ROOT / name) for name in ("client", "adapters")]
        # Unbuffered, `print` writes a line's end by itself: the lines of two processes run into each other.
        left_out = ("REDELIVERY_URL", "PYTHONUNBUFFERED")
        inherited = {name: value for name, value in os.environ.items() if name not in left_out}
        path = os.pathsep.join([*sources, str(folder), str(EXAMPLES)])
        self._environment = {**inherited, "PYTHONPATH": path, **(environment or {})}
        self._output, name = tempfile.mkstemp()
        os.unlink(name)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process, after its start."""
        assert self._process is not None
        return self._process

    @property
    def output(self) -> str:
        """Output so far, of stdout and stderr."""
        return os.pread(self._output, os.fstat(self._output).st_size, 0).decode()

    def start(self) -> Self:
        """Start it, in a process group of its own."""
        self._process = subprocess.Popen(
            self._arguments,
            cwd=self._folder,
            env=self._environment,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        return self

    def prints(self, text: str, seconds: float = PATIENCE) -> None:
        """Wait until it has printed this text."""
        eventually(lambda: text in self.output or self.ended(), seconds, message=f"{text!r} is printed")
        assert text in self.output, self.output

    def ended(self) -> bool:
        """True if it has ended."""
        return self.process.poll() is not None

    def terminated(self, within: float = PATIENCE) -> int:
        """Send SIGTERM, and return the exit code. Raises subprocess.TimeoutExpired after `within` seconds."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(within)

    def close(self) -> None:
        """Kill its process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)
        os.close(self._output)


class WebProgram(Program):
    """A program that listens on a port."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        folder: Path = EXAMPLES,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Choose a port, which replaces `PORT` in the arguments."""
        (self.port,) = free_ports(1)
        self.url = f"http://{HOST}:{self.port}"
        given = [each.replace("PORT", str(self.port)) for each in arguments]
        super().__init__(given, folder=folder, environment=environment)
