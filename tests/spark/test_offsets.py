"""Offsets as Spark stores them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redelivery.errors import ConfigurationError
from redelivery_spark.stream.lanes import log_of, offset_of, vector_of


@given(st.dictionaries(st.integers(0, 31), st.integers(1, 2**33)))
def test_an_offset_is_read_as_it_was_written(vector: dict[int, int]) -> None:
    """An offset survives JSON unchanged."""
    offset = json.loads(json.dumps(offset_of(vector, "abc")))

    assert (vector_of(offset), log_of(offset)) == (vector, "abc")


def test_an_offset_of_the_first_design_is_refused_with_the_way_out() -> None:
    """A checkpoint of the first design is not taken for one of a new log."""
    with pytest.raises(ConfigurationError, match="drain its walDir with the version"):
        vector_of({"n": 4, "log": "abc"})


@pytest.mark.parametrize("offset", [{"orders": {"0": 5}}, {"0": "7"}, {"logOffset": 3}, {"1": True}])
def test_an_offset_of_another_source_is_refused(offset: dict[str, object]) -> None:
    """A checkpoint of Kafka's source, or of files, is refused."""
    with pytest.raises(ConfigurationError, match="not written by this source"):
        vector_of(offset)
