"""What kind of body a message of Artemis has: of an AMQP producer's not all arrive over STOMP.

Measured (docs/measured-stomp.md): the place of `content-length` tells bytes from a text.
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
        # of its own, or, unlike a STOMP producer's message, no time. Both names may be properties of an answer that
        # has all those of its question: they do not excuse what else tells.
        other = not amqp and (FROM_AMQP.search(head) or (not core and UNDATED in head))
        return "partial" if other or ENCODED.match(body) else "bytes"
    # A Map arrives as a text in the broker's own encoding, which begins with a NUL.
    return "partial" if body.startswith(b"\0") else "text"
