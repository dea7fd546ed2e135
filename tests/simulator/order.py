"""Violations of the order: a message that should have gone before another, where broker and application kept it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulator.profiles import Message
    from tests.simulator.sim_delivery import SimDelivery
    from tests.simulator.world import World

__all__ = ["out_of_order"]


def out_of_order(world: World, delivery: SimDelivery) -> Message | None:
    """Return a message of the same consumer that had to go first, by the order of arrival; or None."""
    ordering = world.case.ordering
    if ordering == "non_blocking" or (ordering == "per_group" and delivery.message.group is None):
        return None
    if ordering == "per_group" and delivery.message.kin in world.open:
        # Its handler outlived the connection: it leads its group, whatever was redelivered before it.
        return None
    for other in world.broker.unsettled[delivery.consumer]:
        if other is delivery or (ordering == "per_group" and other.message.group != delivery.message.group):
            continue
        # Two messages that nothing distinguishes may change places; not before anything is known of them.
        kin = world.truth.size[other.message.kin] > 1 and world.epoch > 1
        waits = other.seq < delivery.seq and other.state in ("ready", "parked")
        runs = ordering == "per_group" and other.state == "running"
        if not kin and (waits or runs):
            return other.message
    return None
