"""Fewer cases of a test that is the same for several pairs of broker and protocol: each night all, else one of each.

One pair is kept of each test, another one of the next test, so that each pair has about as many tests. Tests of one
pair, and the conformance suite's, of which each class is one pair, all run. REDELIVERY_PAIRS overrides the number.
"""

from __future__ import annotations

import os
import zlib
from typing import TYPE_CHECKING

import pytest
from tests.tiers import chosen

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["kept_pairs", "left_out", "pairs_of_each_test"]

Pair = tuple[str, str]


def pairs_of_each_test() -> int | None:
    """Return the number of pairs of each test, or None: all."""
    text = os.environ.get("REDELIVERY_PAIRS") or ("all" if chosen() == "full" else "1")
    if text == "all":
        return None
    if not text.isdecimal() or not int(text):
        raise pytest.UsageError(f"REDELIVERY_PAIRS must be a number of pairs, or all; not {text!r}")
    return int(text)


def left_out(pairs: Mapping[str, Pair], count: int | None) -> set[str]:
    """Return the cases that do not run, of the ids of all cases of brokers and their pairs."""
    if count is None:
        return set()
    of_tests: dict[str, set[Pair]] = {}
    for case, pair in pairs.items():
        of_tests.setdefault(_test(case), set()).add(pair)
    kept = {test: kept_pairs(test, own, count) for test, own in of_tests.items()}
    return {case for case, pair in pairs.items() if pair not in kept[_test(case)]}


def kept_pairs(test: str, pairs: Iterable[Pair], count: int) -> set[Pair]:
    """Return `count` of a test's pairs, or all if it has fewer: the same in each run, others for the next test."""
    ordered = sorted(pairs)
    # Not `hash`, which differs from process to process. Far apart in their order: pairs of several brokers.
    begin = zlib.crc32(test.encode())
    return {ordered[(begin + number * len(ordered) // count) % len(ordered)] for number in range(count)}


def _test(case: str) -> str:
    """Return the id of a test without its parameters."""
    return case.partition("[")[0]
