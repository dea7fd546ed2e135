"""Messages left in a world in which nothing can happen any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulator.world import World

__all__ = ["leftovers"]


def leftovers(world: World) -> tuple[list[str], bool]:
    """Return the messages that are neither accepted nor dead; and whether one is held until its consumer closes."""
    broker = world.broker
    left = [name for name in broker.numbers if name not in world.truth.gone]
    mine = [each for unsettled in broker.unsettled.values() for each in unsettled]
    # A message that is copied, or dead, must be settled too.
    left += [each.message.name for each in mine if each.message.name not in left]
    left += [each.name for each in broker.queue if each.name not in left]
    aside = {each.message.name for each in mine if each.state == "aside"}
    left = [name for name in left if name not in aside]
    if not world.process.engines:
        # All consumers have stopped: the rest stays where it was.
        there = [*broker.queue, *world.theirs, *(copy for _, copy in broker.delayed.values())]
        names = {message.name for message in there}
        left = [name for name in left if name not in names]
    return left, any(each.state == "held" for each in mine)
