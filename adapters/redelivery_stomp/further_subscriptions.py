"""Begins and ends the further subscriptions of a running consumer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from redelivery.log import logger
from redelivery_stomp.byte_windows import ByteWindow, CountedWindow
from redelivery_stomp.frames import frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from redelivery.core.commands import Subscribe
    from redelivery_stomp.delivery import StompDelivery, Subscription
    from redelivery_stomp.ports import FurtherIo

__all__ = ["begin_further", "counted", "end_behind", "end_idle", "number_of", "whole"]


def whole(command: Subscribe) -> Subscribe:
    """Return the command for a consumer whose only subscription must have room for all messages that it may get."""
    wide = max(command.window, command.most) + command.room
    # The kind of subscription that has its whole window from the begin.
    return replace(command, window=wide, room=0, most=0, ordering="per_group")


def begin_further(io: FurtherIo, source: Subscription) -> None:
    """Begin the subscriptions that the consumer's window needs. The caller holds the connection's `order`."""
    if source.window is not None:
        for number, command in source.window.further():
            io.turns.widen(source, number, command)


def end_behind(io: FurtherIo, own: Sequence[StompDelivery]) -> bytes:
    """Return the frames that end a consumer's subscriptions which are not needed after these messages are settled.

    None of them has another unsettled message. A message that the broker sends in answer to the ACK is released by the
    end of its subscription.
    """
    source = own[0].source
    if source.window is None or not source.window.accepted(own):
        return b""
    numbers = () if isinstance(source.window, ByteWindow) else [number_of(io, each) for each in own]
    return end_idle(io, source, numbers)


def end_idle(io: FurtherIo, source: Subscription, numbers: Iterable[int] = ()) -> bytes:
    """Return the frames that end subscriptions without a message. `numbers`: those whose message was settled."""
    window = source.window
    return b"" if window is None else b"".join(_end(io, source, each) for each in window.ending(numbers))


def number_of(io: FurtherIo, delivery: StompDelivery) -> int:
    """Return the number, among its consumer's, of the subscription on which a message arrived."""
    return int(io.subscriptions.name_of(delivery.head).partition(".")[2] or 0)


def counted(io: FurtherIo, deliveries: list[StompDelivery]) -> list[StompDelivery]:
    """Count the messages of one consumer against its window; return those of subscriptions that have not ended.

    Runs on the reading thread. If a further subscription is needed, its SUBSCRIBE is written here: no write waits for
    the broker.
    """
    source = deliveries[0].source
    window = source.window
    if not isinstance(window, ByteWindow):
        return deliveries
    window.sampled(deliveries[-1])
    if not window.watches and window.usual <= window.limit:
        return deliveries
    with io.order:
        if source.ended:
            return deliveries
        if window.watches:
            _let_groups_go(io, window, deliveries)
            subscriptions = io.subscriptions
            # The broker redelivers the messages of an ended subscription on another.
            deliveries = [each for each in deliveries if subscriptions.name_of(each.head) in subscriptions]
            for each in deliveries:
                window.came(each, number_of(io, each))
            window.checked()
        begin_further(io, source)
    return deliveries


def _let_groups_go(io: FurtherIo, window: ByteWindow, deliveries: Sequence[StompDelivery]) -> None:
    """Move message groups to one wide subscription, which is begun for the first grouped message.

    A narrow subscription without other unsettled messages is ended. Its messages are released: their delivery count and
    redelivered flag do not change (measured: docs/measured/artemis-stomp-windows.md), and the wide one gets them. Other
    narrow subscriptions end when none of their messages is unsettled.
    """
    if not (isinstance(window, CountedWindow) and window.group):
        return
    grouped = [each for each in deliveries if window.group in each.head]
    if not grouped:
        return
    source = grouped[0].source
    if (wide := window.widen()) is not None:
        command = source.command
        logger.info(
            "%s: messages with a group arrived, and Artemis binds each group to one subscription; this consumer "
            "may get credit + maxParked messages (%d)",
            command.destination,
            command.window + command.room,
        )
        io.turns.widen(source, *wide)
    numbers = {number_of(io, each) for each in grouped}
    if data := b"".join(_end(io, source, each) for each in numbers if window.came_alone(each)):
        io.write(data)


def _end(io: FurtherIo, source: Subscription, number: int) -> bytes:
    """Return the frame that ends a subscription; empty if it has not begun, or has ended."""
    subscriptions, window = io.subscriptions, source.window
    name = f"{source.identity}.{number}" if number else source.identity
    if name not in subscriptions or window is None:
        return b""
    subscriptions.end_further(name)
    window.ended(number)
    return frame(b"UNSUBSCRIBE", [("id", io.wire_id(name)), io.receipt(_no_answer)])


def _no_answer(error: object) -> None:
    """Ignore the answer to an UNSUBSCRIBE. Messages may still arrive: see `Subscriptions.end_further`."""
    del error
