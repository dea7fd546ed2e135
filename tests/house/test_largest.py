"""The report of large files and long pages."""

from __future__ import annotations

from tests.house.largest import largest


def test_the_largest_are_first() -> None:
    """The largest come first, equal ones by name, and no more than asked for."""
    assert largest({"a": 1, "c": 3, "b": 3, "d": 2}, 3) == [(3, "b"), (3, "c"), (2, "d")]
