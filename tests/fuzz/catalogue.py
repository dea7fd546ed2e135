"""All targets: each module in `tests/fuzz/targets/` has a tuple `TARGETS`."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fuzz.target import Target

__all__ = ["targets"]


def targets() -> dict[str, Target]:
    """Return the targets by name."""
    found: dict[str, Target] = {}
    for path in sorted((Path(__file__).parent / "targets").glob("*.py")):
        module = importlib.import_module(f"tests.fuzz.targets.{path.stem}")
        for target in module.TARGETS:
            assert target.name not in found, f"two targets are named {target.name}"
            found[target.name] = target
    return found
