"""Bulk intake over AMQP: what a link releases at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.amqp.test_link_registry import COMMAND, Wire, arrived, links, wire

from redelivery.core.events import Arrived, Connected
from redelivery.driver.consumer.bulk_intake import BulkIntake
from redelivery_amqp.io_thread import ACCEPTED, RELEASED
from redelivery_amqp.profiles import AmqpArtemis

if TYPE_CHECKING:
    from redelivery.testing import ManualClock
    from redelivery_amqp.link_registry import LinkRegistry

__all__ = ["links", "wire"]


def test_a_link_that_ends_releases_what_was_not_taken(
    wire: Wire, links: LinkRegistry, redelivery_clock: ManualClock
) -> None:
    """A link that ends releases the messages that were not taken; taken ones are left to their owner."""
    intake = BulkIntake(redelivery_clock)
    intake.connect(Connected(2, AmqpArtemis.capabilities))
    receiver = links.add(COMMAND, lambda _: None)
    assert intake.intercept(Arrived(7, arrived(receiver, "a", "b", "c", "d")), ()) is None
    taken = intake.take(2, 1 << 20, 0.0)
    own, credit = intake.accept(taken[:1])
    assert credit == 1
    links.settlements.settle(own, ACCEPTED)  # type: ignore[arg-type]
    links.detach(COMMAND.consumer)
    assert wire.settled == {"a": ACCEPTED, "c": RELEASED, "d": RELEASED}
