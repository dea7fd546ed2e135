"""Cuts MESSAGE frames out of what was read; every other frame goes to stomp.py's own parser, whole.

Why: stomp.py's parser costs 18 µs a message, most of it in regular expressions for headers that nobody asks for; the
cut costs less than 1 µs. It handles what it recognises (`MESSAGE`, LF line ends) and passes on everything else.
"""

from __future__ import annotations

from redelivery_stomp.frames import MESSAGE, frame_end

__all__ = ["FrameScanner"]

BETWEEN = b"\0\nMESSAGE"  # the end of one message and the beginning of the next, as every broker writes them
LENGTH = b"\ncontent-length:"
ANSWERS = (b"CONNECTED", b"RECEIPT", b"ERROR", b"MESSAGE")  # all that a STOMP broker may say


COMMAND = len(b"MESSAGE")
NEWLINE = ord("\n")


class FrameScanner:
    """Splits a stream of bytes into messages and the rest. Keeps a partial frame until its end has come.

    `garbled`: what came is no STOMP, or no longer: a body was longer than its frame says (Classic writes a TextMessage
    with a NUL so). Nothing is cut from there on.
    """

    def __init__(self) -> None:
        self.garbled = False
        self._parts: list[bytes] = []
        self._size = 0
        self._need = 0  # bytes without which there is no point in looking
        self._until_nul = False  # a body without a length: nor before its NUL has come

    def feed(self, chunk: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
        """Take what was read; return whole messages as (header block, body), and other frames as bytes.

        A header block begins with the line end behind `MESSAGE`.
        """
        if self._parts:
            self._parts.append(chunk)
            self._size += len(chunk)
            if self._size < self._need or (self._until_nul and b"\0" not in chunk):
                return [], b""
            chunk = b"".join(self._parts)
            self._parts.clear()
        messages, other, rest = self._cut(chunk)
        if rest < len(chunk):
            self._parts = [chunk[rest:]]
            self._size = len(chunk) - rest
        return messages, other

    def _cut(self, data: bytes) -> tuple[list[tuple[bytes, bytes]], bytes, int]:
        messages, at = _cut_evenly(data) if data.startswith(MESSAGE) else ([], 0)
        size, find = len(data), data.find
        other = b""
        self._need = 0
        self._until_nul = False
        while at < size:
            if not data.startswith(MESSAGE, at):
                if data[at] in b"\n\r":  # a heart-beat, or the optional end of line behind a frame
                    at += 1
                    continue
                end = self._end_of_other(data, at)
                if end < 0:
                    break
                other += data[at:end]
                at = end
                continue
            head_end = find(b"\n\n", at)
            if head_end < 0:
                break
            length_at = find(LENGTH, at, head_end)
            if length_at >= 0:
                length = data[length_at + 16 : find(b"\n", length_at + 16)]
                if not length.isdigit():
                    self.garbled = True
                    break
                body_end = head_end + 2 + int(length)
                if body_end >= size:
                    self._need = body_end - at + 1
                    break
                if data[body_end]:  # no NUL where the body must end
                    self.garbled = True
                    break
            else:
                body_end = find(b"\0", head_end + 2)
                if body_end < 0:
                    self._until_nul = True
                    break
            messages.append((data[at + COMMAND : head_end], data[head_end + 2 : body_end]))
            at = body_end + 1
        return messages, other, at

    def _end_of_other(self, data: bytes, at: int) -> int:
        """Return where the frame at `at` ends, which is no MESSAGE with LF line ends; -1 if that is not known yet."""
        if MESSAGE.startswith(data[at : at + 8]):
            return -1  # could become a MESSAGE
        end = frame_end(data, at)
        if end >= 0 and not data.startswith(ANSWERS, at):
            self.garbled = True
            return -1
        return end


def _cut_evenly(data: bytes) -> tuple[list[tuple[bytes, bytes]], int]:
    """Cut what one split can cut, up to what it does not recognise or to the last frame; return where that begins.

    Half the cost of looking for each frame's end. A body that holds what stands between frames does not have the
    length that its frame says, or has a NUL where its frame says none: there it ends.
    """
    messages: list[tuple[bytes, bytes]] = []
    parts = data[COMMAND:].split(BETWEEN)
    parts.pop()  # nobody knows yet whether it is whole
    at, size, said = 0, -1, b""
    for part in parts:
        head, blank, body = part.partition(b"\n\n")
        length_at = head.find(LENGTH)
        if length_at >= 0:
            if len(body) != size:
                size = len(body)
                said = b"%b%d\n" % (LENGTH, size)
            # The second form: RabbitMQ writes it as the last header.
            if not head.startswith(said, length_at) and head[length_at:] != said[:-1]:
                break
        elif b"\0" in part:
            break
        if not blank or part[0] != NEWLINE:
            break
        messages.append((head, body))
        at += len(part) + len(BETWEEN)
    return messages, at
