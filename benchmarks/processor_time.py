"""Processor time by role while a query runs: the broker, Spark's JVM, the stream runner, the workers. Linux only.

A process that has ended counts with its last known time. pyspark's daemon does not wait for its workers: no parent
process has their time.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["ROLES", "ProcessorTime", "busy"]

ROLES = ("broker", "jvm", "runner", "workers")
TICK = os.sysconf("SC_CLK_TCK")
MEBI = 1024
# Roles whose ended child processes count: a JVM starts tools that end before `look` can find them.
WITH_CHILDREN = ("broker", "jvm")


class ProcessorTime:
    """Seconds by role, of a broker and of all processes that a process has started.

    Call `look` often: it cannot find a process that begins and ends between two calls.
    """

    def __init__(self, broker: int, root: int) -> None:
        """`broker` and `root` are pids."""
        self._broker = broker
        self._root = root
        self._seen: dict[int, tuple[str, float]] = {}
        self.peaks = dict.fromkeys(ROLES, 0)
        """Peak memory of one process of each role, in MiB."""

    def look(self) -> None:
        """Read the times of all processes."""
        children = _children()
        found = [(self._broker, "broker")]
        found += [(pid, "broker") for pid in children.get(self._broker, [])]
        todo = [(pid, "") for pid in children.get(self._root, [])]
        while todo:
            pid, parent = todo.pop()
            role = _role(pid, parent)
            todo += [(child, role) for child in children.get(pid, [])]
            if role:
                found.append((pid, role))
        for pid, role in found:
            with suppress(OSError, StopIteration):
                self._seen[pid] = role, _seconds(pid, children=role in WITH_CHILDREN)
                self.peaks[role] = max(self.peaks[role], _peak(pid))

    def totals(self) -> dict[str, float]:
        """Return the seconds of each role until now."""
        self.look()
        totals = dict.fromkeys(ROLES, 0.0)
        for role, seconds in self._seen.values():
            totals[role] += seconds
        return totals


def busy() -> float:
    """Return the seconds that all processors have worked since the machine started."""
    first = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    ticks = [int(each) for each in first]
    return (sum(ticks) - ticks[3] - ticks[4]) / TICK


def _fields(pid: int | str) -> list[str]:
    """Return the fields after the name in a `stat` file: the state, the parent, and so on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found.setdefault(int(_fields(folder.name)[1]), []).append(int(folder.name))
    return found


def _role(pid: int, parent: str) -> str:
    """Return the role of a process; empty for a tool that a JVM runs for a moment."""
    if parent in {"runner", "workers"}:
        return parent
    try:
        argv = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return ""
    if Path(argv[0]).name == "java":
        return "jvm"
    if any("python_streaming_source_runner" in each for each in argv):
        return "runner"
    return "workers" if any(each.startswith("pyspark") for each in argv) else ""


def _seconds(pid: int, *, children: bool) -> float:
    ticks = _fields(pid)[11 : 15 if children else 13]
    return sum(map(int, ticks)) / TICK


def _peak(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // MEBI
