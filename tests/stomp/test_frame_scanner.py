"""Frames read from a stream: the result is the same for all pieces in which the bytes arrive."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from redelivery_stomp.frame_scanner import BROKEN, FrameLimits, FrameScanner, OtherFrame
from redelivery_stomp.frames import frame, frame_end

Cut = tuple[list[tuple[bytes, bytes]], list[OtherFrame]]

TOKEN = "0123456789abcdef"
OURS = "subscription", f"{TOKEN}-1"
# As the connection sets it for Classic.
HANDLE = b"\nack:"
NAMES = st.text(min_size=1, max_size=8).filter(
    lambda name: "\0" not in name and name not in ("content-length", "ack", "receipt-id")
)
HEADERS = st.lists(st.tuples(NAMES, st.text(max_size=12).filter(lambda v: "\0" not in v)), max_size=4)
EOLS = st.sampled_from([b"", b"\n", b"\n", b"\r\n", b"\n\n\n"])
# Also the bytes between two frames, and a whole frame.
BODIES = st.one_of(
    st.binary(max_size=40), st.sampled_from([b"\0\nMESSAGE", b"a\0\nMESSAGE\nb:c\n\nd", b"\n\n", b"\0"])
)


def message(
    headers: list[tuple[str, str]], body: bytes, *, sized: bool, last: bool = True
) -> tuple[bytes, tuple[bytes, bytes]]:
    """A MESSAGE frame, with its length before or after the other headers, and the expected result."""
    length = [("content-length", str(len(body)))] if sized else []
    own = [OURS, ("message-id", "1"), *headers]
    whole = frame(b"MESSAGE", [*own, *length] if last else [*length, *own], body)
    return whole, (whole[len(b"MESSAGE") : whole.index(b"\n\n")], body)


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, Cut]:
    """A stream of frames with heart-beats between them, and the expected result."""
    stream, messages, others = b"", [], []
    for _ in range(draw(st.integers(0, 5))):
        stream += draw(EOLS)
        kind = draw(st.sampled_from(["sized", "plain", "RECEIPT", "ERROR", "CRLF"]))
        body = draw(BODIES)
        if kind == "sized" or (kind == "plain" and b"\0" not in body):
            whole, cut = message(draw(HEADERS), body, sized=kind == "sized", last=draw(st.booleans()))
            messages.append(cut)
        elif kind == "CRLF":
            head = b"\nsubscription:%b-1\ncontent-length:%d" % (TOKEN.encode(), len(body))
            whole = b"MESSAGE%b\r\n\r\n%b\0" % (head.replace(b"\n", b"\r\n"), body)
            messages.append((head, body))
        else:
            # An ERROR with a header of a message is refused: a text may have made it.
            body = body if kind == "ERROR" and b"\npriority:" not in body and HANDLE not in body else b""
            sized = [("content-length", len(body))] if kind == "ERROR" else []
            name = "ERROR" if kind == "ERROR" else "RECEIPT"
            whole = frame(name.encode(), [("receipt-id", f"{TOKEN}-r1"), *sized], body)
            others.append(OtherFrame(name, whole[len(name) : whole.index(b"\n\n")], body))
        stream += whole
    return stream + draw(EOLS), (messages, others)


def classic(limits: FrameLimits | None = None) -> FrameScanner:
    """Return the scanner of a connection that is logged in at Classic."""
    scanner = FrameScanner(TOKEN, limits)
    scanner.proof.connected, scanner.proof.handle = True, HANDLE
    return scanner


def feed(pieces: list[bytes], limits: FrameLimits | None = None) -> tuple[Cut, str]:
    """Return the result of one scanner for these pieces, and its fault."""
    scanner = classic(limits)
    messages: list[tuple[bytes, bytes]] = []
    others: list[OtherFrame] = []
    for piece in pieces:
        found, rest = scanner.feed(piece)
        messages += found
        others += rest
    return (messages + scanner._held, others), scanner.fault


def splits(raw: bytes, data: st.DataObject) -> list[list[bytes]]:
    """The bytes in one piece, byte by byte, and in random pieces."""
    ends = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=10)))
    random = [raw[a:b] for a, b in zip([0, *ends], [*ends, len(raw)], strict=True)]
    return [[raw], [raw[i : i + 1] for i in range(len(raw))], random]


@given(streams(), st.data())
def test_any_split_cuts_the_same(stream: tuple[bytes, Cut], data: st.DataObject) -> None:
    """A stream has the same frames in one piece, byte by byte, and in random pieces; with NUL, CRLF, heart-beats."""
    raw, expected = stream
    for pieces in splits(raw, data):
        assert feed(pieces) == (expected, "")


PIECES = (
    b"\0", b"\n", b"\r\n", b"\n\n", b"\r\n\r\n", b":", b"\\", b"MESSAGE\n", b"\0\nMESSAGE\n", b"RECEIPT\n",
    b"ERROR\n", b"CONNECTED\n", b"MESSAGE\r\n", b"\nsubscription:0123456789abcdef-1", b"\nack:1",
    b"\nreceipt-id:0123456789abcdef-r1", b"\ncontent-length:", b"3", b"99999999999999999999",
    b":0123456789abcdef", b"\nsubscription:1", b"\xff\xfe",
)  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A stream, changed in a few places; or pieces of frames in any order."""
    raw = bytearray(draw(streams())[0] if draw(st.booleans()) else b"")
    for _ in range(draw(st.integers(1, 8))):
        at = draw(st.integers(0, len(raw)))
        kind = draw(st.sampled_from(["insert", "random", "delete"]))
        if kind == "delete":
            del raw[at : at + draw(st.integers(1, 8))]
        else:
            raw[at:at] = draw(st.sampled_from(PIECES) if kind == "insert" else st.binary(max_size=6))
    return bytes(raw)


@given(mutated(), st.data())
@example(b"MESSAGE\n\nsubscription:0123456789abcdef-1\nMESSAGE\n\0", None)
@example(b"MESSAGE\nsubscription:0123456789abcdef-1\0\nMESSAGE\n\n", None)
@example(b"MESSAGE\r\nsubscription:0123456789abcdef-1\r\n\0\r\nERROR\r\n\r\n\0", None)
def test_whatever_comes_is_read_the_same_at_every_split(raw: bytes, data: st.DataObject | None) -> None:
    """Any bytes are messages, a fault, or nothing; never an exception; each message has the token in its headers."""
    limits = FrameLimits(120, 60)
    pieces = [[raw], [raw[i : i + 1] for i in range(len(raw))]] if data is None else splits(raw, data)
    # If there are two faults, either may be found first.
    results = [(cut, bool(fault)) for cut, fault in (feed(each, limits) for each in pieces)]
    assert all(result == results[0] for result in results)
    assert all(f"\nsubscription:{TOKEN}".encode() in head for head, _ in results[0][0][0])


@given(st.binary(max_size=60))
@example(b"\0\n\0MESSAGE\n\n\0")
def test_a_sized_body_may_hold_anything(body: bytes) -> None:
    """Frames inside a body with a length are not read as frames."""
    first, cut = message([], body, sized=True)
    second, after = message([("a", "b")], b"x", sized=False)
    assert feed([first + b"\n" + second]) == (([cut, after], []), "")


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
def test_what_is_no_stomp_ends_the_scanning(garbage: bytes) -> None:
    """Bytes that are not STOMP end the scanning: frames before them are returned, none after them."""
    whole, cut = message([], b"first", sized=False)
    receipt = f"RECEIPT\nreceipt-id:{TOKEN}-r1\n\n\0".encode()
    proven = garbage.replace(b"MESSAGE\n", f"MESSAGE\nsubscription:{TOKEN}-1\n".encode())
    (messages, others), fault = feed([receipt + whole + proven + whole])
    assert (messages, len(others), fault) == ([cut], 1, BROKEN)


def test_a_text_with_a_nul_is_noticed() -> None:
    """A text with a NUL and without content-length ends at the NUL; the rest is not a frame."""
    whole, _ = message([], b"bad\0half", sized=False)
    (messages, others), fault = feed([whole + b"\n"])
    assert ([body for _, body in messages], others, fault) == ([b"bad"], [], BROKEN)


def test_a_text_waits_for_the_proof_of_what_follows_it() -> None:
    """A text is kept until the bytes after it are proven a frame: no handler gets a text that ends at its NUL."""
    scanner, (first, cut), (second, after) = (
        classic(),
        message([], b"a", sized=False),
        message([], b"b", sized=False),
    )
    assert scanner.feed(first + b"\n" + second[:20]) == ([], [])
    assert scanner.feed(second[20:45]) == ([], [])
    assert scanner.feed(second[45:-1]) == ([cut], [])
    assert scanner.feed(second[-1:]) == ([after], [])


def test_too_short_a_length_is_noticed_and_too_long_a_one_waits() -> None:
    """A length beyond the bytes that arrived is not a fault: the scanner waits for more."""
    scanner, head = classic(), f"\nsubscription:{TOKEN}-1\ncontent-length:9".encode()
    assert scanner.feed(b"MESSAGE" + head + b"\n\nabc\0") == ([], [])
    assert scanner.feed(b"defgh\0") == ([(head, b"abc\0defgh")], [])


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
    """A frame ends after its NUL; -1 if the NUL has not arrived."""
    assert frame_end(data, 0) == end
