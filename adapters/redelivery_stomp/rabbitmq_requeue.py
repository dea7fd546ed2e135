"""Releases messages on RabbitMQ after UNSUBSCRIBE.

RabbitMQ redelivers no unsettled message before the connection ends. A message of an ended subscription can be neither
acknowledged nor released, and one that is on the wire is never delivered. For that reason the same id is subscribed
again, to a topic without producers: unsettled messages can be released under that id, and late ones arrive. The second
subscription ends when no more of them can arrive (measured on RabbitMQ 3.10.8:
docs/measured/rabbitmq-stomp.md, "Messages of an ended subscription").
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from redelivery_stomp.frames import frame

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.errors import RedeliveryError
    from redelivery_stomp.ports import FrameWriter
    from redelivery_stomp.unsettled_deliveries import UnsettledDeliveries

__all__ = ["give_back"]

NOWHERE = f"/topic/redelivery.nowhere.{uuid.uuid4().hex}"


def give_back(
    io: FrameWriter, identities: Sequence[str], unsettled: UnsettledDeliveries, forget: Callable[[], None]
) -> None:
    """End the subscriptions of a consumer; release its unsettled messages, and those that still arrive.

    `forget` is called when no more messages of them can arrive.
    """
    ended = b"".join(frame(b"UNSUBSCRIBE", [("id", identity)]) for identity in identities)

    # An error means that the connection ended, which releases all messages.
    def nowhere(error: RedeliveryError | None) -> None:
        if error is None:
            # The broker answers in order: after the next answer, no message of the ended subscription can arrive.
            within = [("transaction", f"nothing-{identities[0]}")]
            asked = frame(b"ABORT", [*within, io.receipt(empty)])
            io.write(_released(unsettled) + frame(b"BEGIN", within) + asked)

    def empty(error: RedeliveryError | None) -> None:
        if error is None:
            forget()
            io.write(_released(unsettled) + ended)

    # All subscriptions end before the first release: RabbitMQ would redeliver the message to one that has not ended.
    again = [
        [("id", identity), ("destination", NOWHERE), ("ack", "client-individual")] for identity in identities
    ]
    again[-1].append(io.receipt(nowhere, address=NOWHERE))
    io.write(ended + b"".join(frame(b"SUBSCRIBE", each) for each in again) + _released(unsettled))


def _released(unsettled: UnsettledDeliveries) -> bytes:
    return b"".join(each.returned() for each in unsettled.end())
