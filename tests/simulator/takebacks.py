"""Take-backs over a connection that stands, until the library has settled them and its engines know of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.events import TakenBack

if TYPE_CHECKING:
    from tests.simulator.world import World

__all__ = ["Takebacks"]


class Takebacks:
    """Their actions in one world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def _do_takeback(self, consumer: int, name: str | None) -> bool:
        """Take deliveries back over a connection that stands: they stayed unsettled for too long."""
        world = self._world
        if not world.up or consumer not in world.process.engines:
            return False
        world.budget["takeback"] -= 1
        world.note("broker", f"takes back {name or 'all'} of consumer {consumer}")
        world.broker.take_back(consumer, name, world.now)
        return True

    def _do_notice(self) -> bool:
        """Make the library read of it, and settle the deliveries."""
        broker = self._world.broker
        if not broker.notices:
            return False
        self._world.note("library", f"settles what was taken back of consumer {broker.notices[0][0]}")
        broker.settle_taken()
        return True

    def _do_learn(self) -> bool:
        """Make the consumer learn of it."""
        world = self._world
        if not world.broker.settled:
            return False
        consumer, own = world.broker.settled.pop(0)
        world.open |= {each.message.kin for each in world.handlers if each in own}
        for delivery in own:
            if delivery not in world.broker.vain:
                world.truth.relaxation.given_back(delivery.message.kin)
        if own:
            world.note("library", f"knows what was taken back of consumer {consumer}")
            world.feed(consumer, TakenBack(consumer, own))
        return True

    def catch_up(self) -> None:
        """Make the library learn all of it."""
        while self._do_notice() or self._do_learn():
            pass
