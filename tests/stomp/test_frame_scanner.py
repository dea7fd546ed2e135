"""MESSAGE frames cut out of a stream: the same whatever pieces the bytes come in."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from redelivery_stomp.frame_scanner import FrameScanner
from redelivery_stomp.frames import frame, frame_end

Cut = tuple[list[tuple[bytes, bytes]], bytes]

NAMES = st.text(min_size=1, max_size=8).filter(lambda name: "\0" not in name and name != "content-length")
HEADERS = st.lists(st.tuples(NAMES, st.text(max_size=12).filter(lambda v: "\0" not in v)), max_size=4)
EOLS = st.sampled_from([b"", b"\n", b"\n", b"\r\n", b"\n\n\n"])
# Among others what stands between two frames, and a frame.
BODIES = st.one_of(
    st.binary(max_size=40), st.sampled_from([b"\0\nMESSAGE", b"a\0\nMESSAGE\nb:c\n\nd", b"\n\n", b"\0"])
)


def message(
    headers: list[tuple[str, str]], body: bytes, *, sized: bool, last: bool = True
) -> tuple[bytes, tuple[bytes, bytes]]:
    """A MESSAGE frame, with its length before the other headers or behind them, and what must be cut out of it."""
    length = [("content-length", str(len(body)))] if sized else []
    own = [("message-id", "1"), *headers]
    whole = frame(b"MESSAGE", [*own, *length] if last else [*length, *own], body)
    return whole, (whole[len(b"MESSAGE") : whole.index(b"\n\n")], body)


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, Cut]:
    """A stream of frames with heart-beats between them, and what must be cut out of it."""
    stream, messages, other = b"", [], b""
    for _ in range(draw(st.integers(0, 5))):
        stream += draw(EOLS)
        kind = draw(st.sampled_from(["sized", "plain", "RECEIPT", "ERROR", "CRLF"]))
        body = draw(BODIES)
        if kind == "sized" or (kind == "plain" and b"\0" not in body):
            whole, cut = message(draw(HEADERS), body, sized=kind == "sized", last=draw(st.booleans()))
            messages.append(cut)
        elif kind == "CRLF":
            whole = b"MESSAGE\r\ncontent-length:%d\r\nx:y\r\n\r\n%b\0" % (len(body), body)
            other += whole
        else:
            name = b"ERROR" if kind == "ERROR" else b"RECEIPT"
            sized = [("content-length", len(body))]
            whole = frame(
                name, [("receipt-id", "r1"), *(sized if kind == "ERROR" else [])], body * (kind == "ERROR")
            )
            other += whole
        stream += whole
    return stream + draw(EOLS), (messages, other)


def feed(pieces: list[bytes]) -> Cut:
    """What one cutter makes of these pieces."""
    scanner, messages, other = FrameScanner(), [], b""
    for piece in pieces:
        found, rest = scanner.feed(piece)
        messages += found
        other += rest
    assert not scanner.garbled
    return messages, other


@given(streams(), st.data())
def test_any_split_cuts_the_same(stream: tuple[bytes, Cut], data: st.DataObject) -> None:
    """In one piece, byte by byte, and in random pieces: bodies with NUL, CRLF frames and heart-beats included."""
    raw, expected = stream
    ends = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=10)))
    random = [raw[a:b] for a, b in zip([0, *ends], [*ends, len(raw)], strict=True)]
    for pieces in ([raw], [raw[i : i + 1] for i in range(len(raw))], random):
        assert feed(pieces) == expected


@given(st.binary(max_size=60))
@example(b"\0\n\0MESSAGE\n\n\0")
def test_a_sized_body_may_hold_anything(body: bytes) -> None:
    """Frames inside a body are not seen as frames."""
    first, cut = message([], body, sized=True)
    second, after = message([("a", "b")], b"x", sized=False)
    assert feed([first + b"\n" + second]) == ([cut, after], b"")


@pytest.mark.parametrize(
    "garbage",
    [
        b"MESSAGE\ncontent-length:abc\n\nx\0",
        b"MESSAGE\ncontent-length:-5\n\nx\0",
        b"MESSAGE\ncontent-length:1\n\nlonger\0",
        b"half\0\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n\0",
    ],
)
def test_what_is_no_stomp_ends_the_cutting(garbage: bytes) -> None:
    """What came before is cut, nothing after it is."""
    scanner, (whole, cut) = FrameScanner(), message([], b"first", sized=False)
    receipt = b"RECEIPT\nreceipt-id:1\n\n\0"
    assert scanner.feed(receipt + whole + garbage + whole) == ([cut], receipt)
    assert scanner.garbled


def test_a_text_with_a_nul_is_noticed() -> None:
    """Without content-length a body ends at its first NUL; the rest is no frame."""
    scanner, (whole, _) = FrameScanner(), message([], b"bad\0half", sized=False)
    messages, other = scanner.feed(whole + b"\n")
    assert ([body for _, body in messages], other, scanner.garbled) == ([b"bad"], b"", True)


def test_too_short_a_length_is_noticed_and_too_long_a_one_waits() -> None:
    """A length beyond what came is no mistake yet."""
    scanner = FrameScanner()
    assert scanner.feed(b"MESSAGE\ncontent-length:9\n\nabc\0") == ([], b"")
    assert scanner.feed(b"defgh\0") == ([(b"\ncontent-length:9", b"abc\0defgh")], b"")


@pytest.mark.parametrize(
    ("data", "end"),
    [
        (b"RECEIPT\nreceipt-id:1\n\n\0", 23),
        (b"RECEIPT\nreceipt-id:1\n\n", -1),
        (b"ERROR\ncontent-length:3\n\na\0b\0rest", 28),
        (b"ERROR\r\ncontent-length:3\r\n\r\na\0b\0", 31),
        (b"ERROR\ncontent-length:3\n\na\0b", -1),
        (b"noise\0", 6),
        (b"noise", -1),
    ],
)
def test_where_a_frame_ends(data: bytes, end: int) -> None:
    """Behind its NUL, or -1 when that has not come."""
    assert frame_end(data, 0) == end
