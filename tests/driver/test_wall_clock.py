"""Changes of the machine's clock during a connection: expiry and times of day follow, delays do not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from tests.driver.twins import body_of

if TYPE_CHECKING:
    from tests.driver.twins import Twin

HOUR = 3600.0


def test_expiry_follows_a_clock_that_is_put_forward(twin: Twin) -> None:
    """A parked message expires by the clock as it is now, not as it was at the connect."""
    consumer = twin.call(twin.connect().consumer("orders"))
    twin.broker.send("orders", "a", expires_at=twin.clock.time() + HOUR)
    twin.clock._offset += HOUR
    assert twin.receive(consumer) is None
    assert [letter.cause for letter in twin.broker.dead_letters()] == ["expired"]


def test_expiry_follows_a_clock_that_is_put_back(twin: Twin) -> None:
    """A message that was sent by the right time is not expired after the clock was put back by an hour."""
    twin.clock._offset += HOUR
    consumer = twin.call(twin.connect().consumer("orders"))
    twin.broker.send("orders", "a", expires_at=twin.clock.time() + 1)
    twin.clock._offset -= HOUR
    twin.advance(2)
    assert body_of(twin.receive(consumer)) == "a"


def test_a_clock_that_is_set_moves_no_redelivery(twin: Twin) -> None:
    """A change of the clock does not move a redelivery."""
    consumer = twin.call(twin.connect().consumer("orders"))
    twin.broker.send("orders", "a")
    twin.receive(consumer).fail()
    twin.clock._offset += HOUR
    assert twin.receive(consumer, 0.999) is None
    assert body_of(twin.receive(consumer, 0.001)) == "a"


@pytest.mark.parametrize("set_at", ["before the dispatch", "while it runs", "before the next try"])
@pytest.mark.parametrize("route", ["", "redelivery.deadLetter=forward&"])
def test_dead_letters_tell_the_time_of_the_clock_as_it_is(twin: Twin, route: str, set_at: str) -> None:
    """The times of failures in a dead letter are of the clock at the moment of dead-lettering."""
    connection = twin.connect(f"?{route}jms.redeliveryPolicy.maximumRedeliveries=0")
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "a")
    twin.broker.refuse_settlements(1 if set_at == "before the next try" else 0)
    now = twin.clock.time()
    if set_at == "before the dispatch":
        twin.clock._offset += HOUR
    message = twin.receive(consumer)
    if set_at == "while it runs":
        twin.clock._offset += HOUR
    message.fail()
    if set_at == "before the next try":
        twin.clock._offset += HOUR
        twin.advance(1)
    (letter,) = twin.broker.dead_letters()
    told = datetime.fromisoformat(letter.headers["redeliveryLastFailure"])
    assert told == datetime.fromtimestamp(round(now + HOUR, 3), UTC)


def test_the_life_of_a_copy_begins_by_the_clock_as_it_is(twin: Twin) -> None:
    """The expiry of a dead letter counts from the moment at which it is made."""
    connection = twin.connect("?redelivery.deadLetter=forward&redelivery.deadLetterExpiration=1000")
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "a")
    message = twin.receive(consumer)
    twin.clock._offset += HOUR
    message.poison()
    assert [letter.expires_at for letter in twin.broker.dead_letters()] == [twin.clock.time() + 1]
