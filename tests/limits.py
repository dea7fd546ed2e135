"""Limits of time for each test: one that hangs fails, and the run goes on.

pytest-timeout watches them by SIGALRM, whose handler runs when the main thread is in Python. A test that waits in C for
longer ends its process, with the stacks of all threads on stderr; pytest-xdist reports it, and starts another one.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from typing import TYPE_CHECKING

import pytest
from tests.tiers import kind_of, runs_all_of

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

__all__ = ["seconds_of"]

UNIT, INTEGRATION, SPARK = 60, 300, 600
LONGER = 3
"""Factor where a run takes all tests of a kind: they draw more examples, and kill, cut and send more often."""
GRACE = 120
"""Seconds after its limit in which a test must end: its failure stops programs and brokers."""
_STDERR = pytest.StashKey[int]()


def seconds_of(path: Path) -> int:
    """Return the most seconds for a test of this file, with its fixtures: ten times those on an idle machine.

    A test with a marker `timeout` of its own has that one.
    """
    if "integration" not in path.parts[-3:]:
        return UNIT
    return SPARK if path.name.startswith("test_spark") else INTEGRATION


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test its limit, which pytest-timeout watches by SIGALRM: the test fails, and the run goes on."""
    for item in items:
        if item.get_closest_marker("timeout") is None:
            seconds = seconds_of(item.path)
            longer = runs_all_of(kind_of(item))
            item.add_marker(pytest.mark.timeout(seconds * LONGER if longer else seconds))


def pytest_configure(config: pytest.Config) -> None:
    """Keep the stderr of the process: while a test runs, pytest captures what is written there."""
    config.stash[_STDERR] = os.dup(2)
    config.add_cleanup(lambda: os.close(config.stash[_STDERR]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """End the process if a test does not end although its limit is over."""
    _watch(item)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Watch the rest of a test that has failed: pytest's own plug-in ends the watch then, for a debugger."""
    if isinstance(node, pytest.Item):
        _watch(node)


@pytest.hookimpl(tryfirst=True)
def pytest_enter_pdb() -> None:
    """Watch no test that a person debugs; with `-p no:faulthandler`, too."""
    faulthandler.cancel_dump_traceback_later()


def _watch(item: pytest.Item) -> None:
    limit = item.get_closest_marker("timeout")
    # With a debugger, or a measurement of coverage, a test may take any time.
    if limit is not None and sys.gettrace() is None and not item.config.option.usepdb:
        seconds = limit.args[0] if limit.args else limit.kwargs["timeout"]
        faulthandler.dump_traceback_later(seconds + GRACE, exit=True, file=item.config.stash[_STDERR])
