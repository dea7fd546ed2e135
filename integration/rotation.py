"""Fewer cases of a test that is the same for several pairs of broker and protocol: each night all, else one of each.

One pair is kept of each test, another one of the next test, so that each pair has about as many tests. Tests of one
pair all run. REDELIVERY_PAIRS overrides the number. The conformance suite runs on each pair from the tier ci on; in the
tier quick so do the behaviours in which brokers differ most, and the others run on one pair each.
"""

from __future__ import annotations

import os
import re
import zlib
from typing import TYPE_CHECKING

import pytest
from tests.tiers import chosen, kind_of, runs_all_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["ON_EACH_PAIR", "WHY", "kept_pairs", "left_out", "on_each_pair", "pairs_of_each_test"]

Pair = tuple[str, str]
WHY = "other pairs of broker and protocol, of a test that runs on one"
CLASS = re.compile(r"::Test\w+")
# What a broker decides: who counts, what comes after a cut, where poison goes, what arrives whole.
ON_EACH_PAIR = {
    "test_a_cut_before_the_commit_rolls_back_and_charges_nothing",
    "test_a_cut_while_parked_keeps_count_and_due_time",
    "test_a_cut_while_running_and_a_failure",
    "test_a_cut_while_running_and_a_success",
    "test_a_lost_acknowledgement_is_repeated_and_not_the_handling",
    "test_a_lost_confirmation_of_poison",
    "test_a_lost_poison_acknowledgement_is_repeated",
    "test_an_expired_message_is_never_dispatched",
    "test_blocking_keeps_strict_order",
    "test_closing_gives_back_what_is_held",
    "test_cuts_while_poisoning_keep_each_verdict",
    "test_cuts_while_settling_lose_nothing",
    "test_each_redelivery_comes_when_it_is_due",
    "test_each_route_takes_poison_away",
    "test_headers_arrive_and_are_copied",
    "test_non_blocking_lets_others_overtake",
    "test_past_max_parked_nothing_fresh_comes",
    "test_poison_at_the_first_delivery",
    "test_the_attempt_log_is_the_same_everywhere",
    "test_what_the_broker_counts_never_poisons_before_a_dispatch",
}
"""Behaviours of the conformance suite that the tier quick, too, has on each pair."""


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


def on_each_pair(item: pytest.Item, protocol: str) -> bool:
    """Return True for a test that this run has on each pair, by its kind or as a behaviour of the conformance suite."""
    if item.path.name == "test_conformance.py":
        return chosen() != "quick" or item.name.partition("[")[0] in ON_EACH_PAIR
    return runs_all_of(protocol) or runs_all_of(kind_of(item))


def _test(case: str) -> str:
    """Return the id of a test without its parameters, and without the class: a pair of the conformance suite."""
    return CLASS.sub("", case.partition("[")[0])
