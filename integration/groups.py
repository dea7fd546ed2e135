"""Which process of a parallel run has which tests: one for each broker, and two for Spark, with brokers of their own.

A process of the run starts every broker that its tests ask for. So tests of one broker stay together, and a broker that
is killed, stopped or frozen is no other process's.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

import pytest

from integration.brokers import BROKERS
from integration.matrix import FULL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "group_of",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_runtest_setup",
]

NICE = 5  # a third of the processor's time that Spark's processes get
USUAL = os.getpriority(os.PRIO_PROCESS, 0)
# The tests of these modules start Spark in processes that they kill, those of Spark's other modules share a session. In
# the full run each broker and protocol has its own group, because that takes four times as long.
QUERIES = {"test_spark.py", "test_spark_idle.py", "test_spark_broker_killed.py"}
WITHOUT_SPARK = {"test_spark_drain_killed.py"}  # it needs the package, and starts none


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each integration test with its group, for `--dist loadgroup`; a test without a broker has none."""
    for item in items:
        group = group_of(item) if isinstance(item, pytest.Function) else None
        if group is not None and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(group))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse to run where the groups have no effect: pytest-xdist 3.8 ignores them under pytest 9.2."""
    if not getattr(session.config.option, "loadgroup", False):
        return
    for item in session.items:
        if item.get_closest_marker("xdist_group") is not None and "@" not in item.nodeid:
            raise pytest.UsageError(f"pytest {pytest.__version__} and pytest-xdist: no groups of tests")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give way to Spark, in a process of a parallel run that has other tests: what it starts gives way too.

    A Python process that Spark starts must answer within 10 s, which no setting of Spark changes.
    """
    mark = item.get_closest_marker("xdist_group")
    if mark is not None and "PYTEST_XDIST_WORKER" in os.environ:
        wanted = USUAL if mark.args[0].startswith("spark") else USUAL + NICE
        if os.getpriority(os.PRIO_PROCESS, 0) != wanted:
            with contextlib.suppress(PermissionError):  # only root can take it back
                os.setpriority(os.PRIO_PROCESS, 0, wanted)


def group_of(item: pytest.Function) -> str | None:
    """Return the name of a test's group, or None."""
    if item.path.parent.name != "integration":
        return None
    if item.path.name.startswith("test_spark") and item.path.name not in WITHOUT_SPARK:
        return _spark(item)
    return next(_brokers(item), None)


def _spark(item: pytest.Function) -> str:
    if item.path.name not in QUERIES:
        return "spark"
    peer: Any = item.callspec.params.get("peer")
    return "-".join(("spark-queries", *(peer if FULL and peer else ())))


def _brokers(item: pytest.Function) -> Iterator[str]:
    """The brokers that a test asks for: by its class, its parameters, and the names of its fixtures."""
    pair = getattr(item.cls, "pair", None)
    if pair is not None:
        yield pair.broker
    callspec = getattr(item, "callspec", None)
    yield from _named(callspec.params.values() if callspec is not None else ())
    yield from _named(item.fixturenames)


def _named(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        first = value[0] if isinstance(value, tuple) and value else value
        if isinstance(first, str) and first in BROKERS:
            yield first
