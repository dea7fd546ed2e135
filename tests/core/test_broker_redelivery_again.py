"""A delayed copy that is sent again: after a refusal, or because a connection was lost."""

from __future__ import annotations

from tests.core.model import WALL_OFFSET, Letter
from tests.core.test_broker_redelivery import CONFIRMED, REFUSED, bench, confirm, one

from redelivery.core.dead_lettering.routing import COPY
from redelivery.core.events import Tick


def test_what_expires_before_its_copy_could_go_is_a_dead_letter() -> None:
    """A message that expires in an outage, or between refusals, is dead-lettered: the broker would drop the copy."""
    for outage in (True, False):
        at = bench()
        letter = Letter(1, expires_at=WALL_OFFSET + at.now + 90)
        delivery = at.run(letter)
        assert one(at.fail(delivery)).delayed
        if outage:
            at.lose()
            at.now += 120
            at.connect()
            at.again(letter)
        else:
            confirm(at, delivery, REFUSED)
            at.now += 120
            at.commands = at.feed(Tick())
        forward = one(at.commands)
        assert (forward.delayed, forward.cause.text) == (False, "expired")


def test_a_copy_that_is_sent_again_keeps_its_name() -> None:
    """A copy that is sent again keeps its name: consumers and Artemis recognise the duplicate by it."""
    at = bench(CONFIRMED)
    letter = Letter(1)
    delivery = at.run(letter)
    first = one(at.fail(delivery))
    confirm(at, delivery)  # the acceptance is then lost
    at.lose()
    at.connect()
    at.again(letter)
    again = one(at.commands)
    assert again.copy.headers[COPY] == first.copy.headers[COPY]
    other = at.run(Letter(2))
    assert one(at.fail(other)).copy.headers[COPY] != first.copy.headers[COPY]
