"""A delayed copy that is sent another time: after a refusal, or because a connection was lost."""

from __future__ import annotations

from tests.core.model import WALL_OFFSET, Letter
from tests.core.test_broker_redelivery import CONFIRMED, REFUSED, bench, confirm, one

from redelivery.core.dead_lettering.routing import COPY
from redelivery.core.events import Tick


def test_what_expires_before_its_copy_could_go_is_a_dead_letter() -> None:
    """After an outage, or between refusals: the broker would drop a copy that has expired."""
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
    """So consumers, and Artemis, can tell that both are one."""
    at = bench(CONFIRMED)
    letter = Letter(1)
    delivery = at.run(letter)
    first = one(at.fail(delivery))
    confirm(at, delivery)  # and the acceptance is lost with the connection
    at.lose()
    at.connect()
    at.again(letter)
    again = one(at.commands)
    assert again.copy.headers[COPY] == first.copy.headers[COPY]
    other = at.run(Letter(2))
    assert one(at.fail(other)).copy.headers[COPY] != first.copy.headers[COPY]
