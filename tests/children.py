"""Programs that a test has started and left behind: they end with the test that failed.

A test that is ended by its time limit cannot end them itself. What the session has started for all tests, brokers and
Java clients, is started without the variable by which a test's own programs are known, and goes on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import uuid
from pathlib import Path

import pytest

__all__ = ["end_children_of_test", "for_all_tests", "pytest_runtest_makereport"]

# Programs inherit both: the run's own mark, so that another run on this machine is left alone, and pytest's.
_MARK = "REDELIVERY_TEST_MARK"
_MARKED = f"{_MARK}={os.environ.setdefault(_MARK, uuid.uuid4().hex)}".encode()
_CURRENT = "PYTEST_CURRENT_TEST"
_FAILED = pytest.StashKey[bool]()


def for_all_tests() -> dict[str, str]:
    """Return the environment of a program that outlives the test which happens to start it."""
    return {name: value for name, value in os.environ.items() if name != _CURRENT}


def end_children_of_test(nodeid: str) -> list[int]:
    """Kill what this test has started and left, in any process group; return the pids."""
    own = Path("/proc/self/environ")
    if not own.exists():
        return []
    mine, started_by = own.read_bytes(), f"{_CURRENT}={nodeid} (".encode()
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile, or is another user's
            pid, variables = int(path.name), (path / "environ").read_bytes()
            parts = variables.split(b"\0")
            programs = _MARKED in parts and any(part.startswith(started_by) for part in parts)
            # A fork has the environment of this process' own start.
            forked = variables == mine and _parent(path) == os.getpid()
            if pid != os.getpid() and (programs or forked) and b"resource_tracker" not in _command(path):
                os.kill(pid, signal.SIGKILL)
                found.append(pid)
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """End the programs of a test that has failed, after its teardown."""
    if call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception):
        item.stash[_FAILED] = True
    if call.when == "teardown" and item.stash.get(_FAILED, False):
        end_children_of_test(item.nodeid)


def _parent(path: Path) -> int:
    return int((path / "stat").read_text().rpartition(")")[2].split()[1])


def _command(path: Path) -> bytes:
    return (path / "cmdline").read_bytes()
