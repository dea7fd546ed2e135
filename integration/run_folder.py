"""Folder of one run of pytest, which all its processes see: groups of tests, failures, brokers' data, a log.

What the run has started ends with it, however it ends. A guard waits for the end of the process that began the run, and
then kills all that has inherited the variable with the folder's name: processes of pytest-xdist that go on with a test
although their controller is gone, and programs in process groups of their own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest
    from _pytest.terminal import TerminalReporter

__all__ = ["LINES", "RUN", "LastOfTheLog", "begin", "is_worker", "log", "run_folder"]

RUN = "REDELIVERY_TEST_RUN"
"""Variable with the folder's path. The processes of a parallel run, and all programs of the tests, inherit it."""
# Reads from a pipe that only the process that began the run keeps open. Twice: the first ones may have started others.
_GUARD = """read -r _
for _ in 1 2; do
  for file in $(grep -lszFx "$1=$2" /proc/[0-9]*/environ); do
    pid=${file#/proc/}; kill -KILL "${pid%/environ}" 2>/dev/null
  done
done
rm -rf "$2"
"""
LINES = 30
"""Last lines of the log that a run with failures shows."""


class LastOfTheLog:
    """Shows the end of the log of a run with failures, in the process that reports: the folder is removed then."""

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Show it, if there is one."""
        file = run_folder() / "log"
        if file.exists() and terminalreporter.stats.keys() & {"failed", "error"}:
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
            terminalreporter.section("end of the run's log: downloads, builds, starts of brokers")
            terminalreporter.line("\n".join(lines[-LINES:]))


def is_worker(config: pytest.Config) -> bool:
    """True in a process that another one, which runs no test, has started to run tests."""
    return hasattr(config, "workerinput")


def begin(config: pytest.Config) -> Path:
    """Return the folder; the process that begins the run makes it, and removes it at its end."""
    if not is_worker(config):
        folder = tempfile.mkdtemp(prefix="redelivery-run-")
        plain = {name: value for name, value in os.environ.items() if name != RUN}
        os.environ[RUN] = folder
        if sys.platform == "linux":
            guard = subprocess.Popen(
                ["sh", "-c", _GUARD, "guard", RUN, folder],
                env=plain,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is not for it
            )
            config.add_cleanup(lambda: _ended(guard))
        else:
            config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        config.pluginmanager.register(LastOfTheLog(), "last-of-the-log")
    return run_folder()


def _ended(guard: subprocess.Popen[bytes]) -> None:
    guard.communicate()  # closes its pipe


def run_folder() -> Path:
    """Return the folder of this run, of which there is one since `begin`."""
    return Path(os.environ[RUN])


def log(text: str) -> None:
    """Write a line into the log of the run."""
    with (run_folder() / "log").open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")
