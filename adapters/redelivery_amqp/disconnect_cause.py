"""Over which message a connection ended, as far as that can be told.

A connection that is cut says nothing, and one that the broker closes for reasons of its own is nobody's fault. One that
the broker closes with an error right after a message came or was settled may be that message's; one that ends because
what came makes no sense is. Both would happen again on every connection.
"""

from __future__ import annotations

import time
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from redelivery_amqp.delivery import AmqpDelivery
    from redelivery_amqp.receiver import ReceiverLink

__all__ = ["AmqpDisconnectCause", "End", "end_of"]

End = Literal["cut", "refused", "garbled"]
# Seconds. A connection that closes within them after a message arrived or was settled closes because of it.
AT_ONCE = 1.0
# An administrator, a broker that stops, another one to go to; heart-beats or memory that are missing.
_OWN_REASONS = frozenset({
    "amqp:connection:forced", "amqp:connection:redirect", "amqp:link:detach-forced", "amqp:link:redirect",
    "amqp:resource-limit-exceeded",
})  # fmt: skip


def end_of(condition: str | None) -> End:
    """Return what a broker's condition says of the end of a connection, or of a link that ends it."""
    return "cut" if condition is None or condition in _OWN_REASONS else "refused"


def _digest(body: bytes) -> str:
    """Tell one message without an id from another."""
    return blake2b(body, digest_size=8).hexdigest()


class AmqpDisconnectCause:
    """The last message of one connection."""

    def __init__(self) -> None:
        self._last: AmqpDelivery | None = None
        self._at = float("-inf")

    def saw(self, delivery: AmqpDelivery) -> None:
        """Note that a message came, or that its settlement goes out."""
        self._last, self._at = delivery, time.monotonic()

    def suspect(
        self, end: End, receivers: Sequence[ReceiverLink], partial: Sequence[ReceiverLink]
    ) -> tuple[Hashable | None, int | None]:
        """Return the message that is to blame and the consumer that it came for, where they are known.

        `partial`: the links over which a message had begun to come, and not ended.
        """
        last = self._last
        if end == "garbled":
            concerned = partial if len(partial) == 1 else receivers
            if len(concerned) == 1:
                return f"what cannot be decoded, from {concerned[0].destination}", concerned[0].consumer
            return "what cannot be decoded", None
        if end == "refused" and last is not None and time.monotonic() - self._at < AT_ONCE:
            name = last.proof or f"a message without an id, from {last.destination}: {_digest(last.body)}"
            return name, last.consumer
        return None, None
