"""Choice of cases from a matrix: all with REDELIVERY_FULL=1, else each value of each axis at least once."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FULL", "cover", "named", "pairwise", "some"]

FULL = os.environ.get("REDELIVERY_FULL") == "1"


def cover(*axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return all combinations of the axes' values, or a fixed few that have each value at least once.

    Each value of the longest axis is used once, those of the others in rotation.
    """
    if FULL:
        return list(itertools.product(*axes))
    longest = max(len(axis) for axis in axes)
    return [tuple(axis[number % len(axis)] for axis in axes) for number in range(longest)]


def pairwise(one: Sequence[Any], two: Sequence[Any], three: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return all combinations, or the few with each pair of values of two axes; `three` is not longer than `two`."""
    if FULL:
        return list(itertools.product(one, two, three))
    return [
        (first, second, three[(i + j) % len(three)])
        for i, first in enumerate(one)
        for j, second in enumerate(two)
    ]


def named(value: object) -> str | None:
    """Return the name of a case that is a tuple of names, for `ids` of a parameter."""
    return "-".join(value) if isinstance(value, tuple) else None


def some(every: Sequence[Any], few: Sequence[Any]) -> list[Any]:
    """Return all cases, or the few that represent them."""
    assert set(few) <= set(every), "the few are some of all"
    return list(every if FULL else few)
