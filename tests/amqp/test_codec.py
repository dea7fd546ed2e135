"""In-place decoder: it reads the same as proton, or raises `Unknown`."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.amqp.peer import proton

from redelivery_amqp import codec

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
SIMPLE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    TEXT,
    st.binary(max_size=300),
    st.uuids(),
    st.integers(0, 2**32 - 1).map(proton.uint),
    st.integers(0, 255).map(proton.ubyte),
    st.integers(-(2**15), 2**15 - 1).map(proton.short),
    st.integers(-(2**31), 2**31 - 1).map(proton.int32),
    st.integers(0, 2**64 - 1).map(proton.ulong),
    st.integers(-(2**53), 2**53).map(proton.timestamp),
)


def encoded(body: Any = None, **fields: Any) -> bytes:
    message = proton.Message(body=body, **fields)
    message.inferred = isinstance(body, bytes)
    return bytes(message.encode())


def section(data: bytes, code: int) -> int:
    return next(begin for found, begin, _ in codec.sections(data) if found == code)


@given(st.dictionaries(TEXT, SIMPLE, max_size=20))
def test_properties_are_read_as_they_were_written(properties: dict[str, Any]) -> None:
    """Properties of every simple type, in maps of every size, are read as they were written."""
    data = encoded(properties=properties or {"one": 1})
    read = codec.read_map(data, section(data, codec.APPLICATION_PROPERTIES))
    assert read == (properties or {"one": 1})


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (proton.byte, (-128, -1, 0, 127)),
        (proton.short, (-(2**15), -1, 2**15 - 1)),
        (proton.int32, (-(2**31), -128, -1, 0, 127, 128, 2**31 - 1)),
        (int, (-(2**63), -128, -1, 0, 127, 128, 2**63 - 1)),
        (proton.ubyte, (0, 255)),
        (proton.ushort, (0, 2**16 - 1)),
        (proton.uint, (0, 1, 255, 256, 2**32 - 1)),
        (proton.ulong, (0, 1, 255, 256, 2**64 - 1)),
    ],
)
def test_numbers_at_their_bounds(kind: Any, values: tuple[int, ...]) -> None:
    """Numbers at the ends of their ranges, and at the limits of their short forms, are read as they were written."""
    data = encoded(properties={str(value): kind(value) for value in values})
    read = codec.read_map(data, section(data, codec.APPLICATION_PROPERTIES))
    assert read == {str(value): value for value in values}


# proton ends a subject at its first NUL; the library refuses such text.
@given(
    st.binary(max_size=70000),
    TEXT.map(lambda text: text.replace("\0", "")),
    st.one_of(TEXT, st.uuids(), st.binary(max_size=40)),
    st.booleans(),
)
def test_sections_are_found(body: bytes, subject: str, identity: Any, durable: bool) -> None:
    """The sections are found wherever they begin, and whatever their length is."""
    data = encoded(body, subject=subject, id=identity, durable=durable, ttl=7, priority=3)
    header = codec.read_list(data, section(data, codec.HEADER), 5)
    assert header[:3] == [durable or None, 3, 7000] or header[:3] == [durable, 3, 7000]
    properties = codec.read_list(data, section(data, codec.PROPERTIES), 13)
    assert properties[0] == identity
    assert properties[3] == subject
    assert codec.read(data, section(data, codec.DATA))[0] == body


@given(st.binary(max_size=200))
def test_nonsense_is_refused(data: bytes) -> None:
    """Bytes that are not a message are cut into whole sections or raise `Unknown`, never another error."""
    try:
        found = codec.sections(data)
    except codec.Unknown:
        return
    assert [begin - 3 for _, begin, _ in found] == [0, *(end for _, _, end in found[:-1])][: len(found)]
    assert not found or found[-1][2] == len(data)


@given(st.binary(min_size=1, max_size=100), st.integers(0, 100))
def test_a_message_that_is_cut_off_is_unknown(body: bytes, cut: int) -> None:
    """A message whose last section ends after the data raises `Unknown`."""
    data = encoded(body, subject="s")
    with pytest.raises(codec.Unknown):
        codec.sections(data[: len(data) - 1 - cut % len(body)])


@pytest.mark.parametrize(
    "value", [{"a": [1]}, {"a": {"b": 1}}, {"a": proton.decimal32(1)}, {"a": proton.char("x")}]
)
def test_compound_values_are_not_simple(value: dict[str, Any]) -> None:
    """A map inside a map, a list, a decimal or a character raises `Unknown`."""
    data = encoded(properties=value)
    with pytest.raises(codec.Unknown):
        codec.read_map(data, section(data, codec.APPLICATION_PROPERTIES))


def test_a_key_that_is_no_text() -> None:
    """A map with a key that is not text raises `Unknown`."""
    message = proton.Message(instructions=None)
    message.annotations = {proton.ulong(1): "x"}
    data = bytes(message.encode())
    with pytest.raises(codec.Unknown, match="no text"):
        codec.read_map(data, section(data, codec.MESSAGE_ANNOTATIONS))


def test_a_time_says_that_it_is_one() -> None:
    """A timestamp is read as a number of milliseconds with its own type."""
    data = encoded(properties={"at": proton.timestamp(5), "n": 5, "u": uuid.UUID(int=7)})
    read = codec.read_map(data, section(data, codec.APPLICATION_PROPERTIES))
    assert isinstance(read["at"], codec.Timestamp)
    assert not isinstance(read["n"], codec.Timestamp)
    assert read["u"] == uuid.UUID(int=7)
