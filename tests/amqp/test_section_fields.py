"""Types of header and properties fields: a field with a wrong type is absent."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from redelivery_amqp import codec
from redelivery_amqp.codec import Timestamp
from redelivery_amqp.sections import HEADER_FIELDS, PROPERTIES_FIELDS, typed

VALUES = st.sampled_from([None, True, False, 1, Timestamp(1), 1.5, "a", b"a"])
HEADER: list[set[type]] = [{bool}, {int, Timestamp}, {int, Timestamp}, {bool}, {int, Timestamp}]


@given(st.lists(st.lists(VALUES, max_size=HEADER_FIELDS), max_size=4))
def test_fields_of_a_header(messages: list[list[Any]]) -> None:
    """A boolean in the place of a number is absent, and the reverse, whatever earlier messages had."""
    for fields in messages:
        wanted = [
            field if type(field) in kinds else None for field, kinds in zip(fields, HEADER, strict=False)
        ]
        assert [repr(each) for each in typed(fields, codec.HEADER)] == [repr(each) for each in wanted]


@given(st.lists(VALUES, max_size=PROPERTIES_FIELDS))
def test_what_is_right_stays_right(fields: list[Any]) -> None:
    """A combination of types that was correct is remembered once."""
    once = typed(fields, codec.PROPERTIES)
    assert typed(once, codec.PROPERTIES) == once
    assert [each for each in once if each is not None] == [
        each for each, kept in zip(fields, once, strict=True) if kept is not None
    ]
