"""Choice of cases from a matrix by the tier."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from tests import matrix

if TYPE_CHECKING:
    from collections.abc import Sequence

ONE, TWO, THREE = "abcdefg", "12", "xy"


def split(cases: Sequence[Any]) -> dict[str, list[tuple[Any, ...]]]:
    """Return the values of the cases by tier."""
    found: dict[str, list[tuple[Any, ...]]] = {"quick": [], "ci": [], "full": []}
    for case in cases:
        marks = [mark.name for mark in case.marks] if hasattr(case, "marks") else []
        found[marks[0] if marks else "quick"].append(tuple(getattr(case, "values", (case,))))
    return found


def test_each_value_is_covered() -> None:
    """The few cases have each value of each axis; all cases are the product."""
    found = split(matrix.cover(ONE, TWO, THREE))
    assert (len(found["quick"]), len(found["ci"]), len(found["full"])) == (7, 0, 21)
    for axis, values in enumerate((ONE, TWO, THREE)):
        assert {case[axis] for case in found["quick"]} == set(values)
    assert {*found["quick"], *found["full"]} == {*itertools.product(ONE, TWO, THREE)}


def test_each_two_values_are_covered() -> None:
    """The few cases have each pair of values of two axes; all cases are the product."""
    axes: Sequence[str] = (ONE, TWO, THREE)
    found = split(matrix.pairwise(ONE, TWO, THREE))
    assert (len(found["quick"]), len(found["full"])) == (14, 14)
    for one, two in itertools.combinations(range(3), 2):
        pairs = {(case[one], case[two]) for case in found["quick"]}
        assert pairs == {*itertools.product(axes[one], axes[two])}


def test_few_stand_for_all() -> None:
    """The few cases are quick, others are of ci or of full; a case that is not one of all is an error."""
    assert split(matrix.some("abc", "b")) == {"quick": [("b",)], "ci": [("a",), ("c",)], "full": []}
    assert split(matrix.some("abc", "b", ci="a")) == {"quick": [("b",)], "ci": [("a",)], "full": [("c",)]}
    assert split(matrix.some("abc", "b", ci="")) == {"quick": [("b",)], "ci": [], "full": [("a",), ("c",)]}
    pairs = [("a", 1), ("b", 2)]
    assert split(matrix.some(pairs, [], spread=True))["ci"] == pairs
    assert split(matrix.some(pairs, []))["ci"] == [(pair,) for pair in pairs]
    with pytest.raises(AssertionError):
        matrix.some("abc", "d")
