"""The report of large files and long pages."""

from __future__ import annotations

import pytest
from tests.house.largest import largest

pytestmark = pytest.mark.ci("rules of the house: the whole code is read")


def test_the_largest_are_first() -> None:
    """The largest come first, equal ones by name, and no more than asked for."""
    assert largest({"a": 1, "c": 3, "b": 3, "d": 2}, 3) == [(3, "b"), (3, "c"), (2, "d")]
