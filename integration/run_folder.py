"""Folder of one run of pytest, which all its processes see: groups of tests, failures, brokers' data, a log.

What the run has started ends with it, however it ends. A guard waits for the end of the process that began the run, and
then kills all that has inherited the variable with the folder's name: processes of pytest-xdist that go on with a test
although their controller is gone, and programs in process groups of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

__all__ = ["RUN", "begin", "is_worker", "log", "run_folder"]

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
