"""Choice of cases from a matrix by the tier: a few in each run, the others marked for a higher tier."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

__all__ = ["cover", "named", "pairwise", "parts", "some"]

WHY = "more cases of a matrix of which some run"


def some(
    every: Iterable[Any],
    quick: Collection[Any],
    *,
    ci: Collection[Any] | None = None,
    why: str = WHY,
    spread: bool = False,
) -> list[Any]:
    """Return all cases; those that are not in `quick` are marked for ci, and those that are not in `ci` for full.

    Without `ci` all others are ci's. An empty `ci` leaves all others to full. `spread`: a case is a tuple of the values
    of several arguments.
    """
    cases = list(every)
    later = cases if ci is None else [*quick, *ci]
    assert all(each in cases for each in (*quick, *later)), "the few are some of all"
    marks = {False: pytest.mark.full(why), True: pytest.mark.ci(why)}
    return [
        each if each in quick else pytest.param(*(each if spread else (each,)), marks=marks[each in later])
        for each in cases
    ]


def cover(*axes: Sequence[Any], why: str = WHY) -> list[Any]:
    """Return all combinations of the axes' values; a fixed few have each value at least once, the others are full's.

    Each value of the longest axis is used once, those of the others in rotation.
    """
    longest = max(len(axis) for axis in axes)
    few = {tuple(place % len(axis) for axis in axes) for place in range(longest)}
    return _combined(axes, few, why)


def pairwise(one: Sequence[Any], two: Sequence[Any], three: Sequence[Any], *, why: str = WHY) -> list[Any]:
    """Return all combinations; few have each pair of values of two axes. `three` is not longer than `two`."""
    few = {(i, j, (i + j) % len(three)) for i in range(len(one)) for j in range(len(two))}
    return _combined((one, two, three), few, why)


def parts(number: int, size: int) -> list[range]:
    """Return the seeds below a number, in parts: cases that end within their limit on a busy machine, too."""
    return [range(first, min(first + size, number)) for first in range(0, number, size)]


def _combined(axes: Sequence[Sequence[Any]], few: Collection[tuple[int, ...]], why: str) -> list[Any]:
    places = itertools.product(*(range(len(axis)) for axis in axes))
    return [
        pytest.param(
            *(axis[i] for axis, i in zip(axes, at, strict=True)),
            marks=() if at in few else pytest.mark.full(why),
        )
        for at in places
    ]


def named(value: object) -> str | None:
    """Return the name of a case that is a tuple of names or a range, for `ids` of a parameter."""
    if isinstance(value, range):
        return f"{value.start}-{value.stop - 1}"
    return "-".join(value) if isinstance(value, tuple) else None
