"""Which process of a parallel run has which tests: one for each broker and protocol, and two for Spark.

A process of the run starts every broker that its tests ask for. So tests of one group stay together, and a broker that
is killed, stopped or frozen is no other process's.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from integration.brokers import ALL_BROKERS
from integration.matrix import FULL

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

__all__ = [
    "group_of",
    "pair_of",
    "pytest_collection_modifyitems",
    "pytest_configure_node",
    "pytest_runtest_setup",
    "pytest_xdist_auto_num_workers",
    "pytest_xdist_make_scheduler",
]

_FOLDER = pytest.StashKey[Path]()
_GROUP = pytest.StashKey[str]()
_FILE = "redelivery_groups"

PROCESSES = 6
BYTES = 3 << 29  # 1.5 GiB: a broker, its Java clients, or Spark, and the process itself
NICE = 5  # a third of the processor's time that Spark's processes get
USUAL = os.getpriority(os.PRIO_PROCESS, 0)
# The tests of these modules start Spark in processes that they kill, those of Spark's other modules share a session. In
# the full run each broker has its own group, because that takes four times as long.
QUERIES = {
    "test_spark.py",
    "test_spark_broker_killed.py",
    "test_spark_cuts.py",
    "test_spark_idle.py",
    "test_spark_killed.py",
    "test_spark_readers.py",
    "test_spark_recipes_killed.py",
}
WITHOUT_SPARK = {"test_spark_drain_killed.py"}  # it needs the package, and starts none


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process of the run where to write down the groups that it finds."""
    config: pytest.Config = node.config
    if _FOLDER not in config.stash:
        folder = tempfile.TemporaryDirectory(prefix="redelivery-groups-")
        config.add_cleanup(folder.cleanup)
        config.stash[_FOLDER] = Path(folder.name)
    node.workerinput[_FILE] = str(config.stash[_FOLDER] / f"{node.gateway.id}.json")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """How many processes `-n auto` means: six, or as many as the memory is enough for.

    REDELIVERY_PROCESSES says otherwise. Six keep two processors busy; nine took as long, and were late more often.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(os.environ.get("REDELIVERY_PROCESSES") or max(1, min(PROCESSES, memory // BYTES)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Deal the tests out by their groups, whatever `--dist` says."""
    from integration.scheduling import ByGroup  # noqa: PLC0415 -- pytest-xdist may be missing

    return ByGroup(config, log, config.stash[_FOLDER])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Find the group of each test; what reports on the run may read it, too."""
    groups: dict[str, str] = {}
    for item in items:
        group = group_of(item) if isinstance(item, pytest.Function) else None
        if group is not None:
            groups[item.nodeid] = item.stash[_GROUP] = group
            item.user_properties.append(("group", group))
    told = getattr(config, "workerinput", {}).get(_FILE)
    if told is not None:
        Path(told).write_text(json.dumps(groups), encoding="utf-8")
        place = longest_first(groups)
        items.sort(key=lambda item: place(item.nodeid))


def longest_first(groups: Mapping[str, str]) -> Callable[[str], tuple[bool, int, str]]:
    """Return the place of a test's id when they are sorted: Spark's groups first, then the one with the most tests.

    Spark computes all the time and the others mostly wait: side by side they take as long as Spark alone.
    """
    sizes = Counter(groups.values())

    def place(nodeid: str) -> tuple[bool, int, str]:
        group = groups.get(nodeid, "")
        return (not group.startswith("spark"), -sizes[group], group)

    return place


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give way to Spark, in a process of a parallel run that has other tests: what it starts gives way too.

    A Python process that Spark starts must answer within 10 s, which no setting of Spark changes.
    """
    group = item.stash.get(_GROUP, None)
    if group is not None and hasattr(item.config, "workerinput"):
        wanted = USUAL if group.startswith("spark") else USUAL + NICE
        if os.getpriority(os.PRIO_PROCESS, 0) != wanted:
            with contextlib.suppress(PermissionError):  # only root can take it back
                os.setpriority(os.PRIO_PROCESS, 0, wanted)


def group_of(item: pytest.Function) -> str | None:
    """Return the name of a test's group, or None."""
    if item.path.parent.name != "integration":
        return None
    if item.path.name.startswith("test_spark") and item.path.name not in WITHOUT_SPARK:
        return _spark(item)
    pair = pair_of(item)
    return None if pair is None else "-".join(pair)


def pair_of(item: pytest.Function) -> tuple[str, str] | None:
    """Return the broker and the protocol that a test is about, or None."""
    broker = next(_named(_asked(item), ALL_BROKERS), None)
    return None if broker is None else (broker, _protocol(item, broker))


def _spark(item: pytest.Function) -> str:
    if item.path.name not in QUERIES:
        return "spark"
    peer: Any = item.callspec.params.get("peer")
    return f"spark-queries-{peer[0]}" if FULL and peer else "spark-queries"


def _protocol(item: pytest.Function, broker: str) -> str:
    """The protocol that a test asks for; one that asks for none is where its module's name or the shorter group is."""
    if "stomp" not in ALL_BROKERS[broker].services:
        return "amqp"
    usual = "stomp" if "stomp" in item.path.name else "amqp"
    return next(_named(_asked(item), ("stomp", "amqp")), usual)


def _asked(item: pytest.Function) -> Iterator[Any]:
    """What a test asks for: by its class or its module, its parameters, and the names of its fixtures."""
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
