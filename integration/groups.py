"""Groups of tests for the processes of a parallel run: a whole group is run by one process.

Tests that only use a broker share it with all processes (`shared.py`): they are grouped by file, and the conformance
suite of a pair by four parts, so that several processes can take those of one broker. Tests with `own_broker`, which
kill it, freeze it or read all its dead letters, are one group for each broker and protocol (in the quick tier, where
they are few, for each broker), because a group's process starts the broker for itself. Then two for Spark; the site.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeGuard

import pytest
from tests.tiers import leave_out, runs_all_of

from integration.availability import remember
from integration.brokers import ALL_BROKERS, Progress
from integration.brokers.toolchain import progress
from integration.prepare import prepare
from integration.rotation import WHY, left_out, on_each_pair, pairs_of_each_test
from integration.run_folder import is_worker, run_folder
from integration.run_folder import log as write_log

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

__all__ = [
    "Priority",
    "brokers_of",
    "group_of",
    "owns",
    "pair_of",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_xdist_auto_num_workers",
    "pytest_xdist_make_scheduler",
]

_GROUP = pytest.StashKey[str]()

PROCESSES = 7
BYTES = 3 << 29  # 1.5 GiB: a broker, its Java clients, or Spark, and the process itself
NICE = 5  # a third of the processor's time that Spark's processes get
USUAL = os.getpriority(os.PRIO_PROCESS, 0)
# Tests of these modules start Spark in processes that they kill; those of Spark's other modules share a session. In the
# full run, which takes four times as long, each pair has its own group. With one for each broker, the last process went
# on for half an hour with the kills of one, while the others had nothing to do.
QUERIES = {
    "test_spark.py",
    "test_spark_broker_killed.py",
    "test_spark_cuts.py",
    "test_spark_idle.py",
    "test_spark_killed.py",
    "test_spark_readers.py",
    "test_spark_recipes_killed.py",
}
WITHOUT_SPARK = {"test_spark_drain_killed.py"}  # needs the package, and starts no Spark
CONFORMANCE = "test_conformance.py"
PARTS = 4  # of a pair's conformance tests
SITE = "test_site.py"  # each process would build the site for its own tests


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return the number of processes for `-n auto`: seven, or fewer if the memory is not enough for them.

    REDELIVERY_PROCESSES overrides it. Most tests of brokers wait: the conformance suite of nine pairs took 119 s with
    seven processes on two processors, and 190 s with four on a busier machine.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(os.environ.get("REDELIVERY_PROCESSES") or max(1, min(PROCESSES, memory // BYTES)))


def prepared(brokers: Collection[str]) -> None:
    """Fetch what is missing of these brokers, before the first test, in one process; from now on, report to the log."""

    def failed(what: str, error: Exception) -> None:
        remember(what, error)
        progress(f"{what}: {error}")

    prepare(brokers, failed)
    Progress.write = staticmethod(write_log)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Prepare the brokers of the tests that were collected, if this is the only process."""
    if is_worker(session.config):
        Progress.write = staticmethod(write_log)
    elif not session.config.option.collectonly:
        prepared(brokers_of(session.items))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Distribute the tests by their groups, for any `--dist`."""
    from integration.scheduling import ByGroup  # noqa: PLC0415 -- pytest-xdist may be missing

    return ByGroup(config, log, run_folder(), prepared)


@pytest.hookimpl(trylast=True)  # after -k: no broker is fetched for a test that is not chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out cases of other pairs (rotation.py); find the group of each test, which reports of the run may read."""
    pairs = {
        item.nodeid: pair for item in items if (pair := pair_of(item)) and not on_each_pair(item, pair[1])
    }
    leave_out(config, items, dict.fromkeys(left_out(pairs, pairs_of_each_test()), WHY))
    groups: dict[str, str] = {}
    for item in items:
        group = group_of(item)
        if group is not None:
            groups[item.nodeid] = item.stash[_GROUP] = group
            item.user_properties.append(("group", group))
    if is_worker(config):
        file = run_folder() / f"groups-{os.getpid()}.json"
        file.write_text(json.dumps({"groups": groups, "brokers": brokers_of(items)}), encoding="utf-8")
        place = longest_first(groups)
        items.sort(key=lambda item: place(item.nodeid))


def brokers_of(items: Iterable[pytest.Item]) -> list[str]:
    """Return the names of the brokers that these tests use."""
    return sorted({pair[0] for item in items if (pair := pair_of(item)) is not None})


def longest_first(groups: Mapping[str, str]) -> Callable[[str], tuple[int, int, str]]:
    """Return the sort key of a test's id: Spark's groups first, then those with their own broker, the largest first.

    Spark computes all the time, and the others mostly wait: together they take as long as Spark alone. Groups that
    share a broker are short, and fill what is left.
    """
    sizes = Counter(groups.values())

    def place(nodeid: str) -> tuple[int, int, str]:
        group = groups.get(nodeid, "")
        kind = 0 if group.startswith("spark") else 1 if group.endswith("-own") else 2 if group else 3
        return (kind, -sizes[group], group)

    return place


class Priority:
    """Lowers the priority of a process of the run while it has no tests of Spark, and of its child processes.

    A Python process that Spark starts must answer within 10 s, which no setting of Spark changes. A plugin of the whole
    run, not a hook of this folder: unit tests compute, too.
    """

    @staticmethod
    def pytest_runtest_setup(item: pytest.Item) -> None:
        """Choose the priority for a test."""
        wanted = USUAL if item.stash.get(_GROUP, "").startswith("spark") else USUAL + NICE
        if os.getpriority(os.PRIO_PROCESS, 0) != wanted:
            with contextlib.suppress(PermissionError):  # only root can undo it
                os.setpriority(os.PRIO_PROCESS, 0, wanted)


def group_of(item: pytest.Item) -> str | None:
    """Return the name of a test's group, or None."""
    if not _is_ours(item):
        return None
    if item.path.name.startswith("test_spark") and item.path.name not in WITHOUT_SPARK:
        return _spark(item)
    if item.path.name == SITE:
        return "site"
    pair = pair_of(item)
    if pair is None:
        return None
    broker, protocol = pair
    if owns(item):
        together = item.config.getoption("--tier", "") == "quick"
        return f"{broker}-own" if together else f"{broker}-{protocol}-own"
    # Not `hash`, which differs from process to process.
    part = zlib.crc32(item.name.encode()) % PARTS if item.path.name == CONFORMANCE else item.path.stem
    return f"{broker}-{protocol}-{part}"


def owns(item: pytest.Item) -> bool:
    """True if the test changes its broker, and so has one that no other process uses."""
    return item.get_closest_marker("own_broker") is not None


def pair_of(item: pytest.Item) -> tuple[str, str] | None:
    """Return the broker and the protocol of a test, or None."""
    if not _is_ours(item):
        return None
    broker = next(_named(_asked(item), ALL_BROKERS), None)
    return None if broker is None else (broker, _protocol(item, broker))


def _is_ours(item: pytest.Item) -> TypeGuard[pytest.Function]:
    """Return True for an integration test. Unit tests also have names of brokers, but no broker."""
    return isinstance(item, pytest.Function) and item.path.parent.name == "integration"


def _spark(item: pytest.Function) -> str:
    if item.path.name not in QUERIES:
        return "spark"
    peer: Any = item.callspec.params.get("peer")
    return "-".join(("spark-queries", *peer)) if runs_all_of("spark") and peer else "spark-queries"


def _protocol(item: pytest.Function, broker: str) -> str:
    """Return the protocol that a test uses; without one, that of its module's name or of the smaller group."""
    if "stomp" not in ALL_BROKERS[broker].services:
        return "amqp"
    usual = "stomp" if "stomp" in item.path.name else "amqp"
    return next(_named(_asked(item), ("stomp", "amqp")), usual)


def _asked(item: pytest.Function) -> Iterator[Any]:
    """Yield the values that select a broker: of the test's class or module, its parameters, and its fixtures' names."""
    yield from getattr(item.module, "PAIR", ())
    pair = getattr(item.cls, "pair", None)
    if pair is not None:
        yield from (pair.broker, pair.scheme)
    callspec = getattr(item, "callspec", None)
    for value in callspec.params.values() if callspec is not None else ():
        yield from value if isinstance(value, tuple) else (value,)
    yield from item.fixturenames


def _named(asked: Iterable[Any], names: Collection[str]) -> Iterator[str]:
    return (value for value in asked if isinstance(value, str) and value in names)
