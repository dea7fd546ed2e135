"""Begins and ends the further subscriptions of a consumer that goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.log import logger
from redelivery_stomp.frames import frame
from redelivery_stomp.windows import SlotWindow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery_stomp.delivery import StompDelivery, Subscription
    from redelivery_stomp.ports import FurtherIo

__all__ = ["begin_further", "end_behind", "without_groups"]


def begin_further(io: FurtherIo, source: Subscription) -> None:
    """Begin the subscriptions that the consumer's window needs. With the connection's `order` held."""
    if source.window is not None:
        for number, command in source.window.further():
            io.turns.widen(source, number, command)


def end_behind(io: FurtherIo, own: Sequence[StompDelivery]) -> bytes:
    """Return the frames that end subscriptions which are not needed any longer, behind the ACKs of their messages.

    Each has no other message, but what its ACK makes the broker send: that goes back when it ends.
    """
    return b"".join(_ended(io, each) for each in own)


def without_groups(io: FurtherIo, deliveries: list[StompDelivery]) -> list[StompDelivery]:
    """Return the messages of one consumer that are not of a group, or that came by the subscription for groups.

    The others go back, uncounted and unmarked (measured: docs/measured-stomp.md), and come by that one.
    """
    source = deliveries[0].source
    window = source.window
    if (
        not isinstance(window, SlotWindow)
        or not window.group
        or not any(window.group in each.head for each in deliveries)
    ):
        return deliveries
    with io.order:
        if source.ended:
            return deliveries
        if window.widen():
            command = source.command
            logger.info(
                "%s: its messages have groups, which Artemis binds to one subscription: this consumer may be given "
                "credit + maxParked of them (%d)",
                command.destination,
                command.window + command.room,
            )
            begin_further(io, source)
        ended = {each: _ended(io, each) for each in deliveries if window.group in each.head}
        if data := b"".join(ended.values()):
            io.write(data)
    return [each for each in deliveries if not ended.get(each)]


def _ended(io: FurtherIo, delivery: StompDelivery) -> bytes:
    """Return the frame that ends the subscription of a message; empty if it is needed, or has ended."""
    subscriptions, window = io.subscriptions, delivery.source.window
    name = subscriptions.name_of(delivery.head)
    number = int(name.partition(".")[2] or 0)
    if name not in subscriptions or window is None or not window.ends(number):
        return b""
    subscriptions.end_further(name)

    def answer(_: object) -> None:
        with io.order:
            subscriptions.further_ended()

    return frame(b"UNSUBSCRIBE", [("id", io.wire_id(name)), io.receipt(answer)])
