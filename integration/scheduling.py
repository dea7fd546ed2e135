"""Distributes tests to the processes of a parallel run: a whole group to one process, other tests one by one.

pytest-xdist's own `--dist loadgroup` does the same, but its release 3.8 finds no groups with pytest 9.2.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

__all__ = ["ByGroup"]


class ByGroup(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """Groups in the order of their tests. `folder` has a file from each process with the groups that it has found."""

    def __init__(self, config: pytest.Config, log: Any, folder: Path) -> None:
        """Read no file before the processes have collected their tests."""
        super().__init__(config, log)
        # Otherwise the group with the most tests would be first, and Spark's, the longest, last.
        config.option.loadscopereorder = False
        self._folder = folder
        self._groups: dict[str, str] | None = None

    def _split_scope(self, nodeid: str) -> str:
        if self._groups is None:
            self._groups = json.loads(next(self._folder.glob("groups-*.json")).read_text(encoding="utf-8"))
        return self._groups.get(nodeid, nodeid)
