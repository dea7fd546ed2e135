"""Suspect of a lost connection: the message over which it ended, if one can be named.

A cut connection names no message, and neither does one that the broker closes for its own reasons. If the broker closes
with an error right after a message arrived or was settled, that message can be the cause. If the bytes of a message
cannot be decoded, that message is the cause. Both would end every later connection in the same way, and so would a
message that the broker cannot deliver: it ends the connection right after it got credit for the queue.
"""

from __future__ import annotations

import time
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal

from redelivery.core.protocol_poison import HeadOfQueue

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from redelivery_amqp.delivery import AmqpDelivery
    from redelivery_amqp.receiver import ReceiverLink

__all__ = ["AmqpDisconnectCause", "End", "end_of"]

End = Literal["cut", "refused", "garbled"]
# Seconds. A connection that the broker closes within them after a message arrived or was settled closes because of it.
# The same holds after it got credit (RabbitMQ 4.3.6 on a busy machine: 0.3 s).
AT_ONCE = 1.0
# The broker's own reasons: an administrator, a stop, a redirect, missing heart-beats or memory.
_OWN_REASONS = frozenset({
    "amqp:connection:forced", "amqp:connection:redirect", "amqp:link:detach-forced", "amqp:link:redirect",
    "amqp:resource-limit-exceeded",
})  # fmt: skip

# RabbitMQ 4 says `amqp:internal-error` when a node stops, as over a message that it cannot deliver
# (docs/measured/refusals.md, "A node that stops").
_FORCED = "Connection forced"


def end_of(condition: str | None, text: str | None = None) -> End:
    """Return the kind of end that a broker's condition of a connection or link, and its text, stand for."""
    own = condition is None or condition in _OWN_REASONS or (text or "").startswith(_FORCED)
    return "cut" if own else "refused"


def _digest(body: bytes) -> str:
    """Return a name for a message without an id."""
    return blake2b(body, digest_size=8).hexdigest()


class AmqpDisconnectCause:
    """Last message that arrived or was settled on one connection."""

    def __init__(self) -> None:
        self._last: AmqpDelivery | None = None
        self._at = float("-inf")

    def saw(self, delivery: AmqpDelivery) -> None:
        """Note that a message has arrived, or that its settlement is written."""
        self._last, self._at = delivery, time.monotonic()

    def suspect(
        self, end: End, receivers: Sequence[ReceiverLink], partial: Sequence[ReceiverLink]
    ) -> tuple[Hashable | None, int | None]:
        """Return the suspected message and its consumer; None where unknown.

        `partial`: links on which a message had begun to arrive and was not complete.
        """
        last = self._last
        if end == "garbled":
            concerned = partial if len(partial) == 1 else receivers
            if len(concerned) == 1:
                return f"bytes that cannot be decoded, from {concerned[0].destination}", concerned[0].consumer
            return "bytes that cannot be decoded", None
        if end == "refused" and last is not None and time.monotonic() - self._at < AT_ONCE:
            name = last.proof or f"a message without an id, from {last.destination}: {_digest(last.body)}"
            return name, last.consumer
        return None, None

    @staticmethod
    def undelivered(receivers: Sequence[ReceiverLink], cure: str) -> tuple[HeadOfQueue | None, int | None]:
        """Return the queue whose next message the broker could not deliver; None if it may be one of several.

        It is the queue for which the broker got credit within the last second. What was delivered is innocent.
        """
        # What proves that the node lives, also for the only consumer of a process: on this same connection it has
        # logged in, begun a session, and answered the declaration (a request to its management node) and the attach,
        # for which the queue's process answers; `receivers` are attached. Another consumer's success would prove no
        # more, and where a producer has sent such a message to every queue there is none: nothing would end the
        # reconnects.
        now = time.monotonic()
        credited = [each for each in receivers if now - each.credited < AT_ONCE]
        if len(credited) != 1:
            return None, None
        return HeadOfQueue(credited[0].destination, cure), credited[0].consumer
