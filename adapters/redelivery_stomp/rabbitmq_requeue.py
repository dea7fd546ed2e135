"""Releases messages on RabbitMQ after UNSUBSCRIBE.

RabbitMQ takes nothing back before the connection ends: a message of an ended subscription can be neither acknowledged
nor released, and one that was already sent is never delivered. So the id is subscribed again, to a topic without
producers. Under it, unsettled messages can be released and late ones arrive. The second subscription ends when no more
of them can arrive (measured on RabbitMQ 3.10.8: docs/measured-stomp.md, section j).
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from redelivery_stomp.frames import frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.errors import RedeliveryError
    from redelivery_stomp.ports import FrameWriter
    from redelivery_stomp.unsettled_deliveries import UnsettledDeliveries

__all__ = ["give_back"]

NOWHERE = f"/topic/redelivery.nowhere.{uuid.uuid4().hex}"


def give_back(
    io: FrameWriter, identity: str, unsettled: UnsettledDeliveries, forget: Callable[[], None]
) -> None:
    """End the subscription of this id; release its unsettled messages, and those that still arrive.

    `forget` is called when no more messages of the subscription can arrive.
    """
    ended = frame(b"UNSUBSCRIBE", [("id", identity)])

    # An error means that the connection is over: then RabbitMQ takes everything back itself.
    def nowhere(error: RedeliveryError | None) -> None:
        if error is None:
            # The broker answers in order: after the next answer, no message of the ended subscription can arrive.
            within = [("transaction", f"nothing-{identity}")]
            asked = frame(b"ABORT", [*within, io.receipt(empty)])
            io.write(_released(unsettled) + frame(b"BEGIN", within) + asked)

    def empty(error: RedeliveryError | None) -> None:
        if error is None:
            forget()
            io.write(_released(unsettled) + ended)

    again = [
        ("id", identity),
        ("destination", NOWHERE),
        ("ack", "client-individual"),
        io.receipt(nowhere, address=NOWHERE),
    ]
    io.write(ended + frame(b"SUBSCRIBE", again) + _released(unsettled))


def _released(unsettled: UnsettledDeliveries) -> bytes:
    return b"".join(each.returned() for each in unsettled.end())
