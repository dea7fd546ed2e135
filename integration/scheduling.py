"""Distributes tests to the processes of a parallel run: a whole group to one process, other tests by their files.

pytest-xdist's own `--dist loadgroup` does the same, but its release 3.8 finds no groups with pytest 9.2.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path

    import pytest

__all__ = ["ByGroup", "next_scope"]

COMPUTING = 3  # each third process begins with tests without a broker


class ByGroup(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """Groups in the order of their tests. `folder` has a file from each process with the groups that it has found."""

    def __init__(
        self, config: pytest.Config, log: Any, folder: Path, prepared: Callable[[Collection[str]], None]
    ) -> None:
        """Read no file before the processes have collected their tests; then call `prepared` with their brokers."""
        super().__init__(config, log)
        # Otherwise the group with the most tests would be first, and Spark's, the longest, last.
        config.option.loadscopereorder = False
        self._folder = folder
        self._prepared = prepared
        self._groups: dict[str, str] = {}
        self._brokers: dict[Any, str] = {}

    def schedule(self) -> None:
        """Begin with the first tests, when all brokers are fetched."""
        if self.collection is None:
            found = json.loads(next(self._folder.glob("groups-*.json")).read_text(encoding="utf-8"))
            self._groups = found["groups"]
            self._prepared(found["brokers"])
        super().schedule()

    def remove_node(self, node: Any) -> str | None:
        """Return the test in which a process has ended. Only the others of its groups are run by other processes.

        pytest-xdist would run that test again, which may end each process, after its time limit (tests/limits.py).
        """
        units = self.assigned_work[node].values()
        crashed = next((test for unit in units for test, done in unit.items() if not done), None)
        for unit in units:
            if crashed in unit:
                unit[crashed] = True
        super().remove_node(node)
        return crashed

    def _reschedule(self, node: Any) -> None:
        # One that replaces an ended process asks for itself, once it has collected the tests.
        if node in self.registered_collections:
            super()._reschedule(node)

    def _split_scope(self, nodeid: str) -> str:
        return self._groups.get(nodeid) or nodeid.partition("::")[0]

    def _assign_work_unit(self, node: Any) -> None:
        computes = self.nodes.index(node) % COMPUTING == 0 and len(self.nodes) > 1
        scope = next_scope(self.workqueue, self._brokers.get(node, ""), computes=computes)
        self._brokers[node] = broker_of(scope)
        self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)


def next_scope(scopes: Iterable[str], broker: str, *, computes: bool) -> str:
    """Return the next group, or file of tests without a group, for a process whose last one was of this broker.

    Tests of brokers mostly wait: while some processes run them, others compute. A process goes on with the same broker
    if it can, because it has a Java client for it; but what takes long, Spark and tests with a broker of their own,
    comes first.
    """

    def rank(scope: str) -> tuple[bool, bool, bool]:
        own = broker_of(scope)
        long = own == "spark" or scope.endswith("-own")
        return bool(own) == computes, not long, own != broker

    return min(scopes, key=rank)


def broker_of(scope: str) -> str:
    """Return the first part of a group's name; empty for a file."""
    return "" if scope.endswith(".py") else scope.partition("-")[0]
