"""Splits the bytes that were read into messages and other frames, and proves that the broker wrote each.

Why not stomp.py's parser: it costs 18 µs a message, most of it in regular expressions for headers that are never read;
the split costs about 1 µs. Also, that parser trusts every frame, has no limits, and raises on some frames.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from redelivery_stomp.frames import MESSAGE, number

if TYPE_CHECKING:
    from redelivery.settings import Settings

__all__ = ["BROWSES", "FrameLimits", "FrameScanner", "OtherFrame", "ends_browse"]


# ---- Frame proof -----------------------------------------------------------------------------------------
# Proof that the broker wrote a frame: it has the connection's token, which no producer knows.
#
# The token is part of every id that this library chooses, of subscriptions and of receipts. Measured on ActiveMQ
# Classic
# 6.1.7 (docs/measured/activemq-stomp-messages.md, "Forged frames"): the bytes behind a NUL in a text arrive as frames,
# and a line end in the name of a property arrives as a line end.

# A frame's first line, after another line.
COMMAND_LINE = re.compile(rb"\n(?:CONNECTED|RECEIPT|ERROR|MESSAGE)\r?\n")
RECEIPT_ID = b"\nreceipt-id:"
# In every MESSAGE of Classic except the last of a browse: a property can replace this header, but not remove it.
OF_MESSAGE = b"\npriority:"
# In the frame after the last message of a browse, and in any message with such a property.
ENDS = b"\nbrowser:end"
# Follows the token in the id of a subscription that browses: its messages have no handle.
BROWSES = "b"
# Handles of one connection that are kept, at least: more than a broker has unacknowledged on one connection.
HANDLES = 32768


class FrameProof:
    """The token of one connection, and the checks of each of its frames.

    `handle`: begin of the header line that an ACK takes its id from, if a producer can write one too; else empty.
    """

    def __init__(self, token: str) -> None:
        self.message = f"\nsubscription:{token}".encode()
        self.browse = f"{self.message.decode()}-{BROWSES}".encode()
        # True after a subscription that browses was begun.
        self.browses = False
        self._receipt = f"{token}-".encode()
        # If it is in a body, behind a NUL, the body holds another frame of the broker.
        self.mark = f":{token}".encode()
        self.seam = max(len(self.mark), len("\nCONNECTED\r\n")) - 1
        self.handle = b""
        # Handles of messages that arrived, and the handles before those.
        self._handles: set[bytes] = set()
        self._older: set[bytes] = set()
        # True after CONNECTED.
        self.connected = False

    def proves(self, command: bytes, head: bytes) -> bool:
        """True if the broker wrote this header block."""
        if command == b"MESSAGE":
            return self.message in head and not swallows(head)
        if b"\0" in head:
            return False
        if command == b"CONNECTED":
            return not self.connected
        # An ERROR may name no request. Before the log-in there are no receipt ids of this connection.
        may_lack = command == b"ERROR" and (RECEIPT_ID not in head or not self.connected)
        return may_lack or self.names_request(head)

    def names_request(self, head: bytes) -> bool:
        """True if the receipt id is one of this connection."""
        at = head.find(RECEIPT_ID)
        return at >= 0 and head.startswith(self._receipt, at + len(RECEIPT_ID))

    def whole(self, part: bytes, head: bytes, body: bytes) -> bool:
        """True if a message, whose bytes are `part`, does not hold another frame."""
        return b"\0" not in part or not (self.mark in body or swallows(head))

    def fresh(self, head: bytes, body: bytes) -> bool:
        """True if a message has one handle, and no other message arrived with it. Called once for each message.

        If there are two handles, a producer wrote one of them, and the first would be used: on ActiveMQ Classic the
        producer can choose the order of the headers. A browsed message has no handle of the broker; a producer's
        handle in it acknowledges nothing.
        """
        if self.browses and self.browse in head:
            return True
        name = self.handle
        at = head.find(name)
        if at < 0:
            return True
        at += len(name)
        end = head.find(b"\n", at)
        handle = head[at:end] if end >= 0 else head[at:]
        return not (name in head[at:] or self.has_another(handle, body)) and self.add([handle])

    def add(self, handles: list[bytes]) -> bool:
        """Keep the handles of messages that arrived; False, and none is kept, if one of them arrived before."""
        new = set(handles)
        known = self._handles
        if len(new) < len(handles) or not (known.isdisjoint(new) and self._older.isdisjoint(new)):
            return False
        known |= new
        if len(known) >= HANDLES:
            self._older, self._handles = known, set()
        return True

    def has_another(self, handle: bytes, body: bytes) -> bool:
        """True if a body holds another handle of this connection, which is then one of the broker's header lines.

        A text may have such lines too, but not with the beginning that this connection's handles share: they differ
        in the number at their end only. A handle of another connection acknowledges nothing here.
        """
        return self.handle + handle.rstrip(b"0123456789") in body

    def answers(self, head: bytes, body: bytes) -> bool:
        """True if a frame other than a MESSAGE holds neither another frame nor a message's headers."""
        if b"\0" in body and self.mark in body:
            return False
        return not self.handle or not any(name in head or name in body for name in (self.handle, OF_MESSAGE))


def swallows(head: bytes) -> bool:
    """True if a header block continues after the end of its frame, and holds the beginning of another."""
    # The last line of a header block has no line end here.
    return b"\0" in head and COMMAND_LINE.search(head + b"\n") is not None


def ends_browse(head: bytes, body: bytes) -> bool:
    """True if this frame is not a message, but the end of a browse."""
    return ENDS in head and not body and OF_MESSAGE not in head


# ---- Frame scanner ---------------------------------------------------------------------------------------

# The end of one message and the beginning of the next, as every broker writes them.
BETWEEN = b"\0\nMESSAGE"
LENGTH = b"\ncontent-length:"
# Every command that a STOMP broker may write.
COMMANDS = (b"MESSAGE", b"RECEIPT", b"ERROR", b"CONNECTED")
FIRST_LINES = tuple(command + end for command in COMMANDS for end in (b"\n", b"\r\n"))
LONGEST = max(map(len, FIRST_LINES))
COMMAND = len(b"MESSAGE")
NEWLINE = ord("\n")
# Heart-beats, and the optional line ends after a frame.
LINE_ENDS = re.compile(rb"[\r\n]+")

BROKEN = "a body is longer than its frame says (a JMS text with a NUL in it, on ActiveMQ Classic)"
UNPROVEN = (
    "a frame arrived that the broker did not write (in a JMS text with a NUL, or in the name of a property, on "
    "ActiveMQ Classic)"
)


class FrameLimits(NamedTuple):
    """Largest header block and body of a frame, in bytes."""

    header: int = 2**24
    body: int = 2**28

    @classmethod
    def of(cls, settings: Settings) -> FrameLimits:
        """Return the limits in the connection's options."""
        return cls(settings.maximum_header_bytes, settings.maximum_message_bytes)


class OtherFrame(NamedTuple):
    """A frame other than a MESSAGE."""

    command: str
    head: bytes
    body: bytes


class _Fault(Exception):
    """Ends the scanning. `culprit`: see `FrameScanner`."""

    def __init__(self, text: str, culprit: bytes | None = None) -> None:
        super().__init__(text)
        self.culprit = culprit


class FrameScanner:
    """Splits a stream of bytes into messages and other frames. Keeps a partial frame until its end arrives.

    `fault`: why the bytes are not the broker's frames, or empty; after a fault nothing more is returned. `culprit`:
    header block of the message that has the fault; None: it is the message before.
    """

    def __init__(self, token: str, limits: FrameLimits | None = None) -> None:
        self.proof = FrameProof(token)
        self.fault = ""
        self.culprit: bytes | None = None
        self._limits = limits or FrameLimits()
        self._kept = bytearray()
        # Of the partial frame: the bytes that end its header block; where its body begins, or 0; its size, or 0 if it
        # ends at a NUL.
        self._ends, self._body, self._need = b"", 0, 0
        # Most bytes that the partial frame may have without an end of its header block, or without a NUL.
        self._most = 0
        # True if its body, or its incomplete header block, has a NUL; and if it has the beginning of another frame.
        self._nul = self._other = False
        # True if the partial frame is not proven to be the broker's.
        self._doubtful = False
        self._held: list[tuple[bytes, bytes]] = []

    def feed(self, chunk: bytes) -> tuple[list[tuple[bytes, bytes]], list[OtherFrame]]:
        """Add bytes; return the whole messages as (header block, body), and the other whole frames.

        A header block begins with the line end after the command. Its line ends are LF. A message without a length is
        kept while a partial frame that is not proven follows it: the message may have that in its text.
        """
        messages: list[tuple[bytes, bytes]] = []
        others: list[OtherFrame] = []
        if self.fault:
            return messages, others
        kept = self._kept
        if kept:
            seam = bytes(kept[-self.proof.seam :]) + chunk
            known = len(kept) >= LONGEST
            kept += chunk
            if known and self._waits(chunk, seam):
                return messages, others
            chunk = bytes(kept)
            kept.clear()
        try:
            at = self._cut_evenly(chunk, messages)
            while at < len(chunk):
                line_ends = LINE_ENDS.match(chunk, at)
                end = line_ends.end() if line_ends else self._cut(chunk, at, messages, others)
                if end < 0:
                    kept += chunk[at:]
                    break
                at = end
        except _Fault as fault:
            self.fault, self.culprit = str(fault), fault.culprit
        held, self._held = self._held, []
        if kept and self._doubtful:
            if not messages and not others:
                self._held = held
                return messages, others
            if messages and LENGTH not in messages[-1][0]:
                self._held = [messages.pop()]
        return held + messages if held else messages, others

    @property
    def starving(self) -> bool:
        """True if a message is kept because the partial frame after it may not be the broker's."""
        return bool(self._held)

    def give_up(self) -> list[tuple[bytes, bytes]]:
        """Treat the partial frame after a kept message as a part of that message's text; return the message.

        If it was the broker's own frame, and only slow, the broker redelivers the message.
        """
        held, self._held = self._held, []
        if held:
            self.fault = self.fault or UNPROVEN
        return held

    def _waits(self, chunk: bytes, seam: bytes) -> bool:
        """True if the partial frame is still incomplete and has no fault. No byte is searched twice.

        `seam`: the chunk, and the bytes before it in which a searched sequence may have begun.
        """
        size = len(self._kept)
        self._nul = self._nul or b"\0" in chunk
        if not self._body:
            self._other = self._other or COMMAND_LINE.search(seam) is not None
            ended = self._ends in seam
        else:
            self._other = self._other or self.proof.mark in seam
            ended = size >= self._need if self._need else self._nul
        return not (ended or (self._nul and self._other) or size > self._most)

    def _cut_evenly(self, data: bytes, messages: list[tuple[bytes, bytes]]) -> int:
        """Split at the bytes between two messages; add the messages, and return where the rest begins.

        This takes half the time of a search for each frame's end. The rest begins at the last frame, or at the first
        frame that is not recognised. That includes a frame whose body contains the bytes between two messages: its
        body differs from its length, or has a NUL without a length.
        """
        begin = LINE_ENDS.match(data)
        at = begin.end() if begin else 0
        if not data.startswith(MESSAGE, at) or len(data) > min(self._limits):
            return at
        parts = data[at + COMMAND :].split(BETWEEN)
        # The last part may be incomplete.
        parts.pop()
        size, said = -1, b""
        # `find` costs half of `in`.
        message, handle = self.proof.message, self.proof.handle
        browses, browse = self.proof.browses, self.proof.browse
        whole, another, skip, handles = self.proof.whole, self.proof.has_another, len(handle), list[bytes]()
        for part in parts:
            head, blank, body = part.partition(b"\n\n")
            length_at = head.find(LENGTH)
            if length_at >= 0:
                if len(body) != size:
                    size = len(body)
                    said = b"%b%d\n" % (LENGTH, size)
                # The second form: RabbitMQ writes the length as the last header.
                if not head.startswith(said, length_at) and head[length_at:] != said[:-1]:
                    break
                if part.find(b"\0") >= 0 and not whole(part, head, body):
                    break
            elif part.find(b"\0") >= 0:
                break
            if not blank or part[0] != NEWLINE or head.find(message) < 0:
                break
            if handle and not (browses and head.find(browse) >= 0) and (found := head.find(handle)) >= 0:
                found += skip
                end = head.find(b"\n", found)
                own = head[found:end] if end >= 0 else head[found:]
                if head.find(handle, found) >= 0 or (body.find(b"\n") >= 0 and another(own, body)):
                    break
                handles.append(own)
            messages.append((head, body))
            at += len(part) + len(BETWEEN)
        if not self.proof.add(handles):
            # The caller then reads one by one, and finds the message with the fault.
            messages.clear()
            return begin.end() if begin else 0
        return at

    def _cut(
        self, data: bytes, at: int, messages: list[tuple[bytes, bytes]], others: list[OtherFrame]
    ) -> int:
        """Add the frame that begins at `at`; return where it ends, or -1 if it is incomplete."""
        first = next((line for line in FIRST_LINES if data.startswith(line, at)), None)
        if first is None:
            if not any(line.startswith(data[at : at + LONGEST]) for line in FIRST_LINES):
                raise _Fault(BROKEN)
            self._doubtful = True
            return -1
        command = first.rstrip()
        begin = at + len(command)
        ends = first[len(command) :] * 2
        head_end = data.find(ends, begin)
        if head_end < 0:
            self._keep_head(data, at, begin, ends)
            return -1
        head = data[begin:head_end]
        if len(head) > self._limits.header:
            raise self._too_long(head)
        if len(ends) > 2:
            head = head.replace(b"\r\n", b"\n")
        if not self.proof.proves(command, head):
            raise _Fault(UNPROVEN)
        culprit = head if command == b"MESSAGE" else None
        self._doubtful = command == b"ERROR" and not self.proof.names_request(head)
        start = head_end + len(ends)
        end = self._body_end(data, at, start, head, culprit)
        if end < 0:
            return -1
        body = data[start:end]
        part = data[begin:end]
        if culprit is None:
            sound = self.proof.answers(head, body)
        else:
            sound = self.proof.whole(part, head, body) and (
                not self.proof.handle or self.proof.fresh(head, body)
            )
        if not sound:
            raise _Fault(UNPROVEN, culprit)
        if culprit is None:
            self.proof.connected = self.proof.connected or command == b"CONNECTED"
            others.append(OtherFrame(command.decode(), head, body))
        else:
            messages.append((head, body))
        return end + 1

    def _keep_head(self, data: bytes, at: int, begin: int, ends: bytes) -> None:
        """Keep a frame whose header block has no end yet."""
        self._ends, self._body, self._need = ends, 0, 0
        self._doubtful = True
        self._most = begin - at + self._limits.header + len(ends) - 1
        self._nul = data.find(b"\0", begin) >= 0
        self._other = COMMAND_LINE.search(data, begin) is not None
        if self._nul and self._other:
            raise _Fault(UNPROVEN)
        if len(data) - at > self._most:
            raise self._too_long(data[begin:])

    def _body_end(self, data: bytes, at: int, start: int, head: bytes, culprit: bytes | None) -> int:
        """Return where the body ends that begins at `start`; -1 if its end has not arrived."""
        most = self._limits.body
        too_large = _Fault(f"a message has more than {most} bytes (redelivery.maximumMessageBytes)", culprit)
        self._body = start - at
        length_at = head.find(LENGTH)
        if length_at < 0:
            end = data.find(b"\0", start)
            if (len(data) if end < 0 else end) - start > most:
                raise too_large
            self._need, self._most = 0, self._body + most
        else:
            length = number(head[length_at + len(LENGTH) :].partition(b"\n")[0].strip())
            if length is None:
                raise _Fault(BROKEN, culprit)
            if length > most:
                raise too_large
            end = start + length
            if end < len(data):
                if data[end]:
                    raise _Fault(BROKEN, culprit)
                return end
            end = -1
            self._need = self._most = self._body + length + 1
        if end < 0:
            self._nul = data.find(b"\0", start) >= 0
            self._other = data.find(self.proof.mark, start) >= 0
            if self._nul and self._other:
                # The body would include other frames: a property named `content-length`, on ActiveMQ Classic.
                raise _Fault(UNPROVEN, culprit)
        return end

    def _too_long(self, head: bytes) -> _Fault:
        fault = (
            f"a frame has more than {self._limits.header} bytes of headers (redelivery.maximumHeaderBytes)"
        )
        return _Fault(fault, head if self.proof.message in head else None)
