"""Fewer cases of a test that is the same for several pairs of broker and protocol; `.ci/run` asks for two of each.

REDELIVERY_PAIRS=2 keeps two pairs of each test, another two of the next test, so that each pair has about as many
tests. Without it, all run. Tests of one pair, and the conformance suite's, of which each class is one pair, all run.
"""

from __future__ import annotations

import os
import zlib
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["kept_pairs", "selected", "wanted"]

Pair = tuple[str, str]
Item = TypeVar("Item", bound=pytest.Item)


def wanted() -> int | None:
    """Return the number of pairs of each test that REDELIVERY_PAIRS asks for, or None: all."""
    text = os.environ.get("REDELIVERY_PAIRS") or "all"
    if text == "all":
        return None
    if not text.isdecimal() or not int(text):
        raise pytest.UsageError(f"REDELIVERY_PAIRS must be a number of pairs, or all; not {text!r}")
    return int(text)


def kept_pairs(test: str, pairs: Iterable[Pair], count: int) -> set[Pair]:
    """Return `count` of a test's pairs: the same in each run, others for the next test, far apart in their order."""
    ordered = sorted(pairs)
    # Not `hash`, which differs from process to process.
    begin = zlib.crc32(test.encode())
    return {ordered[(begin + number * len(ordered) // count) % len(ordered)] for number in range(count)}


def selected(
    items: Sequence[Item], pair_of: Callable[[Item], Pair | None], count: int | None
) -> tuple[list[Item], list[Item]]:
    """Return the tests that run, and those that are left out."""
    pairs: dict[str, set[Pair]] = {}
    found = {item: pair_of(item) for item in items}
    for item, pair in found.items():
        if pair is not None:
            pairs.setdefault(_test(item), set()).add(pair)
    kept = {
        test: of_test if count is None or len(of_test) <= count else kept_pairs(test, of_test, count)
        for test, of_test in pairs.items()
    }
    run = [item for item, pair in found.items() if pair is None or pair in kept[_test(item)]]
    going = set(run)
    return run, [item for item in items if item not in going]


def _test(item: pytest.Item) -> str:
    """Return the id of a test without its parameters."""
    return item.nodeid.partition("[")[0]
