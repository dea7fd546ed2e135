"""What kind of body a message of Artemis has: of an AMQP producer's not all arrive over STOMP.

Measured (docs/measured/stomp.md): the place of `content-length` tells bytes from a text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redelivery.core.delivery import BodyKind
    from redelivery_stomp.frames import RawHeaders

__all__ = ["kind_on_artemis"]

# What it adds to a message that came over AMQP. Who sets no time is an AMQP producer, or a JMS client that was
# told to set none.
FROM_AMQP = re.compile(rb"\n(?:JMS_AMQP_|NATIVE_MESSAGE_ID:)")
UNDATED = b"\ntimestamp:0\n"
# Begin of an encoded AMQP message: the descriptor of a section.
ENCODED = re.compile(rb"\0(?:S|\x80\0{7})[\x70-\x78]")

# What `JMS_AMQP_ORIGINAL_ENCODING` says of AMQP data, and of a binary value.
AMQP_BYTES = frozenset({"2", "6"})


def kind_on_artemis(head: bytes, body: bytes, headers: RawHeaders) -> BodyKind:
    """Return how a copy of a message must be typed, or what its body lacks."""
    length, identity = head.find(b"\ncontent-length:"), head.find(b"\nmessage-id:")
    core, amqp = headers.get("__AMQ_CID"), headers.get("JMS_AMQP_ORIGINAL_ENCODING")
    if not body:
        # A message of a JMS client of the broker's has the one, of an AMQP producer the other. Its Object, Map or
        # list arrives empty, like an empty text.
        if core or amqp:
            return "unknown" if length < 0 else "unknown-bytes"
        return "text" if length < 0 else "bytes"
    if 0 <= length < identity:
        # An AMQP number or symbol arrives in its encoding, or as so many bytes of anything (2.40.0). It has headers
        # of its own, or, unlike a STOMP producer's message, no time. `__AMQ_CID` and the encoding may be properties of
        # an answer that has all those of its question: they do not outweigh the other signs.
        if amqp:
            # With a property `content-length` a text or a Map comes here, too, in the broker's own encoding (2.40.0).
            whole = amqp in AMQP_BYTES
        else:
            # A JMS client that sets no time sends bytes.
            undated = UNDATED in head and not core
            whole = not (undated or FROM_AMQP.search(head) or (core and _encoded_text(body)))
        return "bytes" if whole and not ENCODED.match(body) else "partial"
    # A Map arrives as a text in the broker's own encoding, which begins with a NUL.
    return "partial" if body.startswith(b"\0") else "text"


def _encoded_text(body: bytes) -> bool:
    """Whether a body is a text in the broker's encoding: that there is one, its size in four bytes, and UTF-16."""
    if body[:1] != b"\1" or int.from_bytes(body[1:5], "big") != len(body) - 5:
        return False
    try:
        body[5:].decode("utf-16-le")
    except UnicodeDecodeError:
        return False
    return True
