"""Lines of a run: its tier and length at the start, progress each half minute, and what it left out at the end."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.tiers import chosen, counts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from _pytest.terminal import TerminalReporter

EVERY = 30.0
"""Seconds between two lines of progress."""
LONG = 30.0
"""Seconds after which a running test is named."""
MOST = 12
"""Reasons in a table."""
HELP = {
    "quick": "for each change, each test on one broker, without slow tests and most cases of matrices. "
    "--tier ci is what .ci/run tests, --tier full what .ci/full tests",
    "ci": "before a merge, each test on one broker, without tests of minutes and most cases of matrices",
    "full": "each night, all tests",
}
# On two cores: of a run of `tests` alone, and with `integration`.
TIMES = {
    ("quick", False): "about 1 minute",
    ("quick", True): "about 5 minutes",
    ("ci", False): "about 5 minutes",
    ("ci", True): "about 10 minutes",
    ("full", True): "hours",
}


class Progress:
    """Counts finished tests, and writes each half minute how far the run is. In the process that reports."""

    def __init__(self, write: Callable[[str], object]) -> None:
        """Begin without tests: their number is known once they are collected."""
        self._write = write
        self._began = time.monotonic()
        self._all = self._done = 0
        self._failed: list[str] = []
        self._named = 0
        self._running: dict[str, float] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="progress-of-the-run", daemon=True)

    def begin(self, count: int) -> None:
        """Take the number of tests; the first call begins the lines."""
        self._all = count
        if not self._thread.is_alive() and not self._ended.is_set():
            self._began = time.monotonic()
            self._thread.start()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Begin a run in one process."""
        if session.items and not session.config.option.collectonly:
            self.begin(len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Begin a run in several processes; all of them have the same tests."""
        self.begin(len(ids))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note the begin of a test, in whichever process."""
        with self._lock:
            self._running[nodeid] = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that failed."""
        if report.failed:
            self._failed.append(_failure(report))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Count a finished test."""
        with self._lock:
            self._done += self._running.pop(nodeid, None) is not None

    def line(self, now: float) -> str:
        """Return the line of this time, and the tests that have failed since the one before."""
        with self._lock:
            done, slow = self._done, max(self._running.items(), key=lambda one: now - one[1], default=None)
        took = now - self._began
        text = f"{done} of {self._all} tests in {took:.0f} s"
        if done:
            text += f", about {took / done * (self._all - done):.0f} s left"
        if self._failed:
            text += f", {len(self._failed)} FAILED"
        if slow is not None and now - slow[1] > LONG:
            text += f"; for {now - slow[1]:.0f} s: {slow[0]}"
        named, self._named = self._named, len(self._failed)
        return "\n".join([text, *(f"FAILED {nodeid}" for nodeid in self._failed[named:])])

    def pytest_sessionfinish(self) -> None:
        """End the lines."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(EVERY):
            self._write(f"\n{self.line(time.monotonic())}\n")


def _failure(report: pytest.TestReport) -> str:
    """Return the test's name, and where and how it failed: a run that is ended early shows no more of it."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:
        return report.nodeid
    said = crash.message.splitlines() or [""]
    return f"{report.nodeid} - {os.path.basename(crash.path)}:{crash.lineno}: {said[0]}"


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Show progress in the process that reports."""
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput"):
        return
    try:
        # Of its own: while a test runs in this process, standard output is captured.
        output = os.dup(sys.stdout.fileno())
    except (OSError, ValueError):
        return  # no file: the output of a run inside of another one
    config.add_cleanup(lambda: os.close(output))
    config.pluginmanager.register(
        Progress(lambda text: os.write(output, text.encode())), "redelivery-progress"
    )


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Write the header with `-q`, too, which leaves it out."""
    reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    quiet = session.config.get_verbosity() < 0
    if reporter is not None and quiet and not hasattr(session.config, "workerinput"):
        reporter.write_line(pytest_report_header(session.config))


def pytest_report_header(config: pytest.Config) -> str:
    """Return the tier, how long this run takes if it is a whole one, and what the tier leaves out."""
    time_of_it = TIMES.get((chosen(), "integration" in folders(config))) if is_whole(config) else None
    about = "" if time_of_it is None else f", {time_of_it} on two cores"
    return f"tier {chosen()}{about}: {HELP[chosen()]}"


def folders(config: pytest.Config) -> set[str]:
    """Return the whole folders of tests that were asked for."""
    return {"tests", "integration"} & {os.path.normpath(each) for each in config.args}


def is_whole(config: pytest.Config) -> bool:
    """True for a run of whole folders, without a choice by names."""
    return bool(folders(config)) and not config.option.keyword and not config.option.markexpr


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    """Count what was left out and what was skipped by their reasons. Failures come after them."""
    counts = counts_of(config)
    if is_whole(config):
        table(terminalreporter, f"left out by the tier {chosen()}, by the reason at the test", counts)
    elif counts and not terminalreporter.stats.get("passed"):
        terminalreporter.line(
            f"{counts.total()} tests of these files are of higher tiers: --tier ci, --tier full"
        )
    skipped = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", []))
    table(terminalreporter, "skipped", skipped)


def table(reporter: TerminalReporter, title: str, counts: Counter[str]) -> None:
    """Write the most frequent reasons, and the number of the others."""
    if not counts:
        return
    reporter.section(title)
    for why, count in counts.most_common(MOST):
        reporter.line(f"{count:6} {why}")
    others = counts.most_common()[MOST:]
    if others:
        reporter.line(f"{sum(count for _, count in others):6} for {len(others)} other reasons")


def _reason(report: Any) -> str:
    place: Any = report.longrepr
    text = place[2] if isinstance(place, tuple) else str(place)
    return str(text).removeprefix("Skipped: ")
