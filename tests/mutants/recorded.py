"""Recorded results of the faults, in `results.json`, which `--save` writes; no fault needs an entry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mutants.faults import faults
from tests.mutants.trial import SURVIVED, Result
from tests.tiers import TIERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["FILE", "as_json", "killed_above", "put", "stored", "untried", "write"]

FILE = Path(__file__).with_name("results.json")


def stored() -> dict[str, Result]:
    """Return the recorded results, by fault."""
    if not FILE.exists():
        return {}
    return {each["id"]: Result(**each) for each in json.loads(FILE.read_text(encoding="utf-8"))}


def write(results: Mapping[str, Result]) -> None:
    """Write the results of the faults that exist, in the order of the faults."""
    kept = [results[fault.id] for fault in faults() if fault.id in results]
    FILE.write_text(as_json(kept) + "\n", encoding="utf-8")


def as_json(results: Iterable[Result]) -> str:
    """Return the results as a JSON list, one a line."""
    return "[\n" + ",\n".join(json.dumps(each.as_dict()) for each in results) + "\n]"


def killed_above(result: Result | None, tier: str) -> bool:
    """True if the recorded killer of a fault is a test of a higher tier."""
    return (
        result is not None
        and result.verdict != SURVIVED
        and result.tier in TIERS
        and TIERS.index(result.tier) > TIERS.index(tier)
    )


def put(results: dict[str, Result], result: Result, tier: str) -> None:
    """Record a result of this tier. A survivor keeps its recorded killer of a higher tier, which has not run."""
    if result.verdict != SURVIVED or not killed_above(results.get(result.id), tier):
        results[result.id] = result


def untried(results: Mapping[str, Result]) -> list[str]:
    """Return the faults without a result."""
    return [fault.id for fault in faults() if fault.id not in results]
