"""Which message should have gone before another: where the broker and the application have kept the order."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulator.broker import SimDelivery
    from tests.simulator.profiles import Message
    from tests.simulator.world import World

__all__ = ["out_of_order"]


def out_of_order(world: World, delivery: SimDelivery) -> Message | None:
    """Return a message that had to go first, or None.

    Not asked of several consumers, of a broker that puts elsewhere what comes again, of what was released, taken by
    another process or handled before, nor of messages that nobody can tell apart: they may have changed places.
    """
    ordering, process = world.case.ordering, world.process
    several = len(process.engines) + len(process.closed) > 1
    if (
        ordering == "non_blocking"
        or several
        or (world.epoch > 1 and not world.profile.front)
        or world.truth.moved
    ):
        return None
    if ordering == "per_group" and delivery.message.group is None:
        return None
    if ordering == "per_group" and world.epoch > 1 and delivery.message.name in world.begun:
        # It leads its group since it was begun, on whichever connection, in whatever order the broker sends again.
        return None
    for other in world.broker.unsettled[delivery.consumer]:
        if other is delivery or (ordering == "per_group" and other.message.group != delivery.message.group):
            continue
        exempt = world.truth.size[other.message.like] > 1 or world.truth.successes[other.message.like]
        before = other.seq < delivery.seq and other.message.sent < delivery.message.sent
        waits = before and other.state in ("ready", "parked") and other.message.name not in world.released
        runs = ordering == "per_group" and other.state == "running"
        if not exempt and (waits or runs):
            return other.message
    return None
