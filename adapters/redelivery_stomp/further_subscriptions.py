"""Begins and ends the further subscriptions of a consumer that goes on."""

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
    """Return the command for a consumer whose only subscription must have room for all that it may be given."""
    wide = max(command.window, command.most) + command.room
    # Of the kind that has all of its room at once.
    return replace(command, window=wide, room=0, most=0, ordering="per_group")


def begin_further(io: FurtherIo, source: Subscription) -> None:
    """Begin the subscriptions that the consumer's window needs. With the connection's `order` held."""
    if source.window is not None:
        for number, command in source.window.further():
            io.turns.widen(source, number, command)


def end_behind(io: FurtherIo, own: Sequence[StompDelivery]) -> bytes:
    """Return the frames that end subscriptions of a consumer which are not needed behind what settles these messages.

    Each has no other message, but what its ACK makes the broker send: that goes back when it ends.
    """
    source = own[0].source
    if source.window is None or not source.window.accepted(own):
        return b""
    numbers = () if isinstance(source.window, ByteWindow) else [number_of(io, each) for each in own]
    return end_idle(io, source, numbers)


def end_idle(io: FurtherIo, source: Subscription, numbers: Iterable[int] = ()) -> bytes:
    """Return the frames that end subscriptions without a message. `numbers`: those that have had one."""
    window = source.window
    return b"" if window is None else b"".join(_end(io, source, each) for each in window.ending(numbers))


def number_of(io: FurtherIo, delivery: StompDelivery) -> int:
    """Return the number of the subscription that brought a message, among its consumer's."""
    return int(io.subscriptions.name_of(delivery.head).partition(".")[2] or 0)


def counted(io: FurtherIo, deliveries: list[StompDelivery]) -> list[StompDelivery]:
    """Count the messages of one consumer against its window; return those that the broker does not take back.

    Runs on the reading thread. A SUBSCRIBE that it leads to is written here: no write waits for the broker.
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
            # What came by one that has been ended comes again by another.
            deliveries = [each for each in deliveries if subscriptions.name_of(each.head) in subscriptions]
            for each in deliveries:
                window.came(each, number_of(io, each))
            window.checked()
        begin_further(io, source)
    return deliveries


def _let_groups_go(io: FurtherIo, window: ByteWindow, deliveries: Sequence[StompDelivery]) -> None:
    """Have message groups come by one wide subscription, which is begun for the first.

    A narrow one that has brought nothing else is ended: its messages go back, uncounted and unmarked (measured:
    docs/measured/stomp.md), and come by the wide one. Another one ends when nothing of it is unsettled.
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
            "%s: its messages have groups, which Artemis binds to one subscription: this consumer may be given "
            "credit + maxParked of them (%d)",
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
    """Take the end of a subscription. Messages of it may still come: see `Subscriptions.end_further`."""
    del error
