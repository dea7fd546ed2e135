"""Groups of the rows of a failed batch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redelivery_spark.stream.slicing import split


@given(st.lists(st.integers(), max_size=100), st.integers(1, 9))
def test_groups_have_all_rows_and_about_the_same_size(rows: list[int], most: int) -> None:
    """A batch that is split loses no row."""
    groups = split(rows, most)

    assert [row for group in groups for row in group] == rows
    assert len(groups) == min(most, len(rows))
    assert not groups or max(map(len, groups)) - min(map(len, groups)) <= 1


def test_a_batch_of_few_rows_has_as_many_groups() -> None:
    """No group is empty: each is a batch of its own."""
    assert split([], 8) == []
    assert split("ab", 8) == [["a"], ["b"]]
