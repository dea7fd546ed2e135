"""Proof that the broker wrote a frame: it has the connection's token, which no producer knows.

The token is part of every id that this library chooses, of subscriptions and of receipts. Measured on ActiveMQ Classic
6.1.7 (docs/measured/activemq-stomp-messages.md, "Forged frames"): the bytes behind a NUL in a text arrive as frames,
and a line end in the name of a property arrives as a line end.
"""

from __future__ import annotations

import re

__all__ = ["BROWSES", "FrameProof", "ends_browse"]

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
