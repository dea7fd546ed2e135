"""Kind of the body of an Artemis message. Some bodies of AMQP producers do not arrive whole over STOMP.

Measured (docs/measured/artemis-stomp-messages.md): the place of `content-length` shows if a body is bytes or a text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redelivery.core.delivery import BodyKind
    from redelivery_stomp.frames import RawHeaders

__all__ = ["kind_on_artemis"]

# Headers that Artemis adds to a message that came over AMQP. A message without a time is from an AMQP producer, or
# from a JMS client with `setDisableMessageTimestamp`.
FROM_AMQP = re.compile(rb"\n(?:JMS_AMQP_|NATIVE_MESSAGE_ID:)")
UNDATED = b"\ntimestamp:0\n"
# First bytes of an encoded AMQP message: the descriptor of a section.
ENCODED = re.compile(rb"\0(?:S|\x80\0{7})[\x70-\x78]")

# Values of `JMS_AMQP_ORIGINAL_ENCODING` for AMQP data, and for a binary value.
AMQP_BYTES = frozenset({"2", "6"})


def kind_on_artemis(head: bytes, body: bytes, headers: RawHeaders) -> BodyKind:
    """Return the type that a copy of a message must have, or why its body cannot be copied."""
    length, identity = head.find(b"\ncontent-length:"), head.find(b"\nmessage-id:")
    core, amqp = headers.get("__AMQ_CID"), headers.get("JMS_AMQP_ORIGINAL_ENCODING")
    if not body:
        # A message of the broker's own JMS client has `__AMQ_CID`; one of an AMQP producer has the encoding. An
        # Object, a Map or a list of either arrives empty, like an empty text.
        if core or amqp:
            return "unknown" if length < 0 else "unknown-bytes"
        return "text" if length < 0 else "bytes"
    if 0 <= length < identity:
        # An AMQP number or symbol arrives in its encoding, or as that many arbitrary bytes (2.40.0). Such a message
        # has AMQP headers, or, unlike a STOMP producer's message, no time. An answer may have copied `__AMQ_CID` and
        # the encoding from its question, with all other properties: the other signs are stronger.
        if amqp:
            # A text or a Map with a property `content-length` also gets here, in the broker's own encoding (2.40.0).
            whole = amqp in AMQP_BYTES
        else:
            # A JMS client that sets no time sends bytes.
            undated = UNDATED in head and not core
            whole = not (undated or FROM_AMQP.search(head) or (core and _encoded_text(body)))
        return "bytes" if whole and not ENCODED.match(body) else "partial"
    # A Map arrives as a text in the broker's own encoding, which begins with a NUL.
    return "partial" if body.startswith(b"\0") else "text"


def _encoded_text(body: bytes) -> bool:
    """True if a body is a text in the broker's encoding: a byte 1, the size in four bytes, then UTF-16."""
    if body[:1] != b"\1" or int.from_bytes(body[1:5], "big") != len(body) - 5:
        return False
    try:
        body[5:].decode("utf-16-le")
    except UnicodeDecodeError:
        return False
    return True
