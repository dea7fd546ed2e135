"""Processor seconds of each test, and of a run: `--budget` refuses a quick test, or a quick tier, that became slow.

Processor time, because the clock of a busy machine says nothing of a test. It is in seconds of the machine on which the
limits were chosen: each process measures a piece of work of its own now and then, since processors that share a core
with other work need half as much time again for everything. The children of a test count once they have ended. The
run's own time is the sum of its processes' from when they have collected the tests: the first run in a clone compiles
all modules, for 10 s in each process.
"""

from __future__ import annotations

import resource
import time
from statistics import mean
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from _pytest.terminal import TerminalReporter

__all__ = ["Budget", "exceeded"]

SHOWN, MOST = 0.5, 2.0
"""Processor seconds of one unit test: above the first it is listed, above the second it is a failure."""
RUN_SHOWN, RUN_MOST = 100.0, 130.0
"""Processor seconds of all quick unit tests, without their collection."""
YARDSTICK = 0.005
"""Processor seconds of `yardstick` on the machine on which the limits were chosen, with nothing else to do."""
EVERY = 50
"""Number of tests between two measurements of it."""
_SENT = "redelivery_processor_time"


def used() -> float:
    """Return the processor seconds of this process, and of its children that have ended."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in spent)


def yardstick() -> float:
    """Return the processor seconds of a fixed piece of work."""
    began, found = time.process_time(), dict[int, str]()
    for number in range(40_000):
        found[number % 997] = str(number)
    return time.process_time() - began


class Finding(NamedTuple):
    """A test, or the run, that took long."""

    what: str
    seconds: float
    limit: float

    @property
    def fails(self) -> bool:
        """True if it exceeds its limit."""
        return self.seconds > self.limit


def exceeded(tests: Mapping[str, float], run: float) -> list[Finding]:
    """Return what is worth a line, the longest first."""
    found = [Finding(name, seconds, MOST) for name, seconds in tests.items() if seconds > SHOWN]
    found.sort(key=lambda each: -each.seconds)
    return [Finding("all quick unit tests", run, RUN_MOST), *found] if run > RUN_SHOWN or found else []


class Budget:
    """Reads the processor time of each test; in the process that reports, of all processes."""

    def __init__(self, config: pytest.Config) -> None:
        """Begin with what the start has taken."""
        self._config = config
        self._tests: dict[str, float] = {}
        # Of the other processes of the run, in seconds of the machine of the limits.
        self._others_tests: dict[str, float] = {}
        self._others = 0.0
        self._collected = 0.0
        self._yardsticks = [yardstick()]

    def pytest_collection_finish(self) -> None:
        """Read what start and collection took."""
        self._collected = used()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Read the time before and after a test with its fixtures."""
        before = used()
        try:
            return (yield)
        finally:
            self._tests[item.nodeid] = used() - before
            if len(self._tests) % EVERY == 0:
                self._yardsticks.append(yardstick())

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send the times to the process that reports; there, fail a run that exceeds a limit."""
        output: dict[str, Any] | None = getattr(self._config, "workeroutput", None)
        if output is not None:
            output[_SENT] = {"tests": self._scaled(), "run": self._run(used())}
        elif session.exitstatus == pytest.ExitCode.OK and any(each.fails for each in self.found()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take the times of another process of the run."""
        sent: dict[str, Any] = getattr(node, "workeroutput", {}).get(_SENT) or {"tests": {}, "run": 0.0}
        self._others_tests.update(sent["tests"])
        self._others += sent["run"]

    def _slowness(self) -> float:
        """Return how often more time this process has needed than the machine of the limits."""
        return mean(self._yardsticks) / YARDSTICK

    def _scaled(self) -> dict[str, float]:
        slowness = self._slowness()
        return {name: seconds / slowness for name, seconds in self._tests.items()}

    def _whole(self) -> float:
        # The children of the process that reports are the others of the run: they have sent theirs.
        own = resource.getrusage(resource.RUSAGE_SELF)
        return self._others + self._run(own.ru_utime + own.ru_stime)

    def _run(self, spent: float) -> float:
        return (spent - self._collected) / self._slowness()

    def found(self) -> list[Finding]:
        """Return what took long."""
        return exceeded(self._others_tests | self._scaled(), self._whole())

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """List what took long."""
        terminalreporter.section(
            f"processor time: {self._whole():.0f} s (more than {RUN_MOST:.0f} s is a failure)"
        )
        for each in self.found():
            failed = f" FAILED: more than {each.limit:g} s" if each.fails else ""
            terminalreporter.line(f"{each.seconds:8.2f} s {each.what}{failed}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of this module."""
    parser.getgroup("redelivery").addoption(
        "--budget",
        action="store_true",
        help="list the slow tests by processor time; fail if one or all exceed a limit",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Read processor times where they are asked for."""
    if config.getoption("--budget"):
        config.pluginmanager.register(Budget(config), "redelivery-budget")
