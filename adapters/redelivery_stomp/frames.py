"""STOMP frames as bytes: escaping, building, and reading a header block.

Frames are built here, and written through stomp.py's transport. stomp.py itself escapes values but not names, and
always sets `content-length` for a body, which makes a JMS TextMessage a BytesMessage.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from redelivery.adapter_support.wire_log import WIRE, body_shown, header_shown
from redelivery.core.dead_lettering.dead_letter_headers import LONGEST
from redelivery.core.destination import Destination
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import ItemsView, Iterable, Iterator

__all__ = [
    "MESSAGE",
    "NEVER",
    "Headers",
    "RawHeaders",
    "date_of",
    "escape",
    "frame",
    "frame_end",
    "is_text",
    "makes_sense",
    "number",
    "read_headers",
    "show_answer",
    "show_messages",
    "show_written",
    "unescape",
    "watched",
]


# ---- Frames ----------------------------------------------------------------------------------------------

MESSAGE: Final = b"MESSAGE\n"
# Most digits of a number that is read. No broker writes a longer one.
DIGITS: Final = 18
# Milliseconds: the year 10000, for which Python has no date.
NEVER: Final = 253402300800000
_ESCAPES: Final = {"\\": "\\\\", "\n": "\\n", ":": "\\c", "\r": "\\r"}
_UNESCAPES: Final = {"\\\\": "\\", "\\n": "\n", "\\c": ":", "\\r": "\r"}


def escape(text: str) -> str:
    """Escape a header name or value, so that it can end neither its line nor its name."""
    if text.isalnum():
        return text
    return "".join(_ESCAPES.get(c, c) for c in text).replace("\0", "")


def unescape(text: str) -> str:
    """Return the unescaped header name or value."""
    if "\\" not in text:
        return text
    # Without an escaped backslash, every backslash begins an escape.
    if "\\\\" not in text:
        return text.replace("\\c", ":").replace("\\n", "\n").replace("\\r", "\r")
    parts: list[str] = []
    i = 0
    while (j := text.find("\\", i)) >= 0:
        parts += (text[i:j], _UNESCAPES.get(text[j : j + 2], text[j : j + 2]))
        i = j + 2
    parts.append(text[i:])
    return "".join(parts)


def text_of(value: Any) -> str:
    """Return a header value as the text that JMS clients expect: booleans in lower case."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def is_text(body: bytes) -> bool:
    """True if a body may be a text: texts are UTF-8 in STOMP."""
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def frame(command: bytes, headers: Iterable[tuple[str, Any]], body: bytes = b"") -> bytes:
    """Build a frame. A header whose value is None is left out. No `content-length` is added."""
    lines = [f"{escape(name)}:{escape(text_of(value))}\n" for name, value in headers if value is not None]
    return b"%b\n%b\n%b\0" % (command, "".join(lines).encode(), body)


def read_headers(block: bytes) -> dict[str, str]:
    """Read the header lines of a frame, its command line included. The first of repeated headers wins (STOMP 1.2)."""
    text = block.decode("utf-8", "replace")
    lines = text.split("\n")
    if "\r" in text:
        lines = [line.removesuffix("\r") for line in lines]
    del lines[0]
    lines.reverse()
    if "\\" not in text:
        return {name: value for name, colon, value in [line.partition(":") for line in lines] if colon}
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            # Most lines have no escape. On Classic the lines of ids have one, for their colons.
            headers[unescape(name) if "\\" in name else name] = unescape(value) if "\\" in value else value
    return headers


@lru_cache(maxsize=1024)
def _line_start(name: str) -> bytes:
    return f"\n{escape(name)}:".encode()


class RawHeaders:
    """All headers of one frame. Each is found in the bytes on its own until all are needed."""

    __slots__ = ("_head", "_read")

    def __init__(self, head: bytes) -> None:
        self._head = head
        self._read: dict[str, str] | None = None

    def read(self) -> dict[str, str]:
        """Return all headers."""
        read = self._read
        if read is None:
            read = self._read = read_headers(self._head)
        return read

    def get(self, name: str) -> str | None:
        """Return one header, or None."""
        if self._read is not None:
            return self._read.get(name)
        head = self._head
        key = _line_start(name)
        at = head.find(key)
        if at < 0:
            return None if b"\r" not in head else self.read().get(name)
        at += len(key)
        end = head.find(b"\n", at)
        value = head[at:end] if end >= 0 else head[at:]
        if b"\\" in value or value.endswith(b"\r"):
            return self.read().get(name)
        return value.decode("utf-8", "replace")


class Headers(RawHeaders, Mapping[str, str]):
    """The application's headers of one frame, without the protocol's own."""

    __slots__ = ("_hidden", "_shown")

    def __init__(self, head: bytes, hidden: frozenset[str], raw: RawHeaders | None = None) -> None:
        """`hidden`: the protocol's own headers; `raw`: the same headers, which may have been read already."""
        self._head = head
        self._read = None if raw is None else raw._read
        self._hidden = hidden
        self._shown: dict[str, str] | None = None

    def __getitem__(self, name: str) -> str:
        value = None if name in self._hidden else RawHeaders.get(self, name)
        if value is None:
            raise KeyError(name)
        return value

    def get(self, name: str, default: Any = None) -> Any:
        value = None if name in self._hidden else RawHeaders.get(self, name)
        return default if value is None else value

    def items(self) -> ItemsView[str, str]:
        """Return all headers at once; the mixin's method looks up each one."""
        return self._all().items()

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return repr(self._all())

    def _all(self) -> dict[str, str]:
        shown = self._shown
        if shown is None:
            shown = self._shown = {n: v for n, v in self.read().items() if n not in self._hidden}
        return shown


def number(value: str | bytes | None) -> int | None:
    """Return the number in a header; None if it is not a plain number, as a producer may write any text."""
    return int(value) if value and len(value) <= DIGITS and value.isascii() and value.isdigit() else None


def date_of(milliseconds: str | None) -> datetime | None:
    """Return the date in a header; None if it has no date."""
    value = number(milliseconds)
    return datetime.fromtimestamp(value / 1000, UTC) if value and value < NEVER else None


def frame_end(data: bytes, start: int) -> int:
    """Return where the frame at `start` ends (after its NUL), or -1 if its end has not arrived."""
    lf, crlf = data.find(b"\n\n", start), data.find(b"\r\n\r\n", start)
    nul = data.find(b"\0", start)
    ends = [(at, width) for at, width in ((lf, 2), (crlf, 4)) if at >= 0]
    if not ends or (0 <= nul < min(ends)[0]):
        # No header block: these bytes are not a frame.
        return nul + 1 if nul >= 0 else -1
    at, width = min(ends)
    length = _content_length(data[start:at])
    if length is None:
        nul = data.find(b"\0", at + width)
        return nul + 1 if nul >= 0 else -1
    end = at + width + length + 1
    return end if end <= len(data) else -1


def _content_length(block: bytes) -> int | None:
    at = block.find(b"\ncontent-length:")
    if at < 0:
        return None
    digits = block[at + 16 :].split(b"\n", 1)[0].strip()
    return number(digits)


# ---- Frame log -------------------------------------------------------------------------------------------
# STOMP frames in the wire log.

# Headers of an ERROR that are not logged: brokers repeat the user's name in its message.
_HIDDEN = frozenset({"message"})


def watched() -> bool:
    """True if frames are logged."""
    return WIRE.isEnabledFor(logging.DEBUG)


def show_written(data: bytes) -> None:
    """Log the frames of one write."""
    at = 0
    while (end := frame_end(data, at)) > 0:
        head, _, body = data[at : end - 1].partition(b"\n\n")
        _show("->", head, _headers(head), body)
        at = end


def show_messages(messages: Iterable[tuple[bytes, bytes]]) -> None:
    """Log MESSAGE frames that arrived, each as header block and body."""
    for head, body in messages:
        _show("<-", head, _headers(head), body)


def show_answer(command: str, headers: Mapping[str, str]) -> None:
    """Log another frame that arrived. The text of an ERROR is hidden: the error that follows has it, masked."""
    kept = {name: value for name, value in headers.items() if name not in _HIDDEN}
    _show("<-", command.encode(), kept, b"")


def _headers(head: bytes) -> dict[str, str]:
    # In the order of the frame.
    return dict(reversed(read_headers(head).items()))


def _show(direction: str, head: bytes, headers: Mapping[str, str], body: bytes) -> None:
    command = head.partition(b"\n")[0].decode("utf-8", "replace").strip()
    shown = [header_shown(name, value) for name, value in headers.items()]
    WIRE.debug("%s %s", direction, " ".join(filter(None, [command, *shown, body_shown(body)])))


# ---- Made up names ---------------------------------------------------------------------------------------
# Check of destination names that a producer may have made up.


def makes_sense(destination: str) -> bool:
    """True if the destination that a message names can be parsed.

    A producer to a topic or a pattern chooses the name, such as `a.b,` or `a.,topic://`, or one of a megabyte, which
    takes seconds to parse.
    """
    if len(destination) > LONGEST:
        return False
    try:
        Destination.parse(destination)
    except ConfigurationError:
        return False
    return True
