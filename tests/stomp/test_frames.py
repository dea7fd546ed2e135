"""Building and reading STOMP frames: values are read as they were written, and none can become a header."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from redelivery_stomp.frames import Headers, RawHeaders, escape, frame, read_headers

TEXT = st.text(max_size=30).filter(lambda text: "\0" not in text)
NAME = TEXT.filter(bool)


def head_of(raw: bytes) -> bytes:
    """The header block as the scanner returns it."""
    return raw[: raw.index(b"\n\n")]


@given(st.dictionaries(NAME, TEXT, max_size=6))
@example({"a": "b:c\\n\n\r\\"})
@example({"a:b": ""})
def test_headers_round_trip(headers: dict[str, str]) -> None:
    """Names and values with colons, line ends, backslashes and any other character are read as written."""
    head = head_of(frame(b"MESSAGE", headers.items()))
    assert read_headers(head) == headers
    raw = RawHeaders(head)
    assert {name: raw.get(name) for name in headers} == headers
    assert raw.read() == headers
    assert dict(Headers(head, frozenset())) == headers


@given(NAME, TEXT, st.binary(max_size=20))
@example("x", "\n\n\0", b"")
@example("x\n\n", "y\r\nSEND\ndestination:z", b"")
def test_no_header_can_begin_a_line_or_end_the_block(name: str, value: str, body: bytes) -> None:
    """A header is one line, for any name and value: header injection is impossible."""
    raw = frame(b"SEND", [("first", "1"), (name, value), ("last", "2")], body)
    head, _, rest = raw.partition(b"\n\n")
    lines = head.split(b"\n")
    assert len(lines) == 4
    assert (lines[0], lines[1], lines[3], rest) == (b"SEND", b"first:1", b"last:2", body + b"\0")
    assert lines[2].count(b":") == 1
    assert b"\0" not in head
    assert b"\r" not in head


@given(TEXT)
def test_an_escaped_text_has_nothing_that_stomp_reads(text: str) -> None:
    """An escaped text has no colon and no line end."""
    assert not set(escape(text)) & {":", "\n", "\r", "\0"}


def test_values_are_written_as_jms_reads_them() -> None:
    """Booleans are written in lower case, numbers as digits, bytes as text; None writes no header."""
    raw = frame(b"SEND", [("a", True), ("b", False), ("c", 3), ("d", b"x"), ("e", None), ("f", 1.5)])
    assert raw == b"SEND\na:true\nb:false\nc:3\nd:x\nf:1.5\n\n\0"


def test_the_first_of_repeated_headers_wins() -> None:
    """The first of repeated headers counts, as in STOMP 1.2, read one by one or all at once."""
    head = b"MESSAGE\na:1\na:2\nb:3"
    assert read_headers(head) == {"a": "1", "b": "3"}
    assert RawHeaders(head).get("a") == "1"


def test_lines_may_end_with_crlf() -> None:
    """Header lines may end with CRLF, as STOMP 1.2 allows."""
    head = b"MESSAGE\r\na:1\r\nb:x\\cy\r"
    assert read_headers(head) == {"a": "1", "b": "x:y"}
    assert RawHeaders(head).get("b") == "x:y"
    assert RawHeaders(head).get("a") == "1"


def test_hidden_headers_are_not_shown() -> None:
    """The protocol's own headers are not application properties."""
    headers = Headers(b"MESSAGE\nack:1\nmine:2", frozenset({"ack"}))
    assert dict(headers) == {"mine": "2"}
    assert "ack" not in headers
    assert len(headers) == 1
