"""Splits a STOMP stream at the ends of its frames."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLANK_LINE = re.compile(rb"\n\r?\n")
_LENGTH = re.compile(rb"^content-length:\s*(\d+)\s*$", re.MULTILINE)
_LOOK = 4096  # bytes that are searched for the end of a head at a time

EOL = ""  # name of a line end between frames in `feed`: a heart-beat, or a frame's optional tail


class FrameSplitter:
    """Splits a byte stream, given in any pieces, at the exact ends of its frames."""

    def __init__(self) -> None:
        """Start between two frames."""
        self._head = bytearray()
        self._in_body = False
        self._command = ""
        self._left: int | None = None  # bytes of the body and its NUL still to come; None: up to the next NUL

    @property
    def inside(self) -> bool:
        """True if the stream is in the middle of a frame."""
        return self._in_body or bool(self._head)

    def feed(self, data: bytes) -> Iterator[tuple[bytes, str | None]]:
        """Yield pieces of `data`, each with the command of the frame that it completes, `EOL`, or None."""
        start = at = 0
        while at < len(data):
            at, done = self._body(data, at) if self._in_body else self._before_body(data, at)
            if done is not None:
                yield data[start:at], done
                start = at
        if start < len(data):
            yield data[start:], None

    def _before_body(self, data: bytes, at: int) -> tuple[int, str | None]:
        if not self._head and data[at] in b"\r\n":
            return at + 1, EOL
        known = len(self._head)
        self._head += data[at : at + _LOOK]
        blank = _BLANK_LINE.search(self._head, max(0, known - 2))
        if blank is None:
            return min(at + _LOOK, len(data)), None
        head = bytes(self._head[: blank.end()])
        length = _LENGTH.search(head)
        self._left = int(length[1]) + 1 if length else None
        self._command = head.split(b"\n", 1)[0].strip().decode(errors="replace")
        self._head.clear()
        self._in_body = True
        return at + blank.end() - known, None

    def _body(self, data: bytes, at: int) -> tuple[int, str | None]:
        if self._left is None:
            end = data.find(b"\0", at) + 1
            if not end:
                return len(data), None
        else:
            end = min(at + self._left, len(data))
            self._left -= end - at
            if self._left:
                return end, None
        self._in_body = False
        return end, self._command
