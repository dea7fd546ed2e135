"""A dead letter that an operator puts back is a new message, though some brokers keep its identity."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.core.bench import CAUSE, NATIVE, Bench
from tests.core.model import Arrival, Letter

from redelivery.core.commands import Hold, Release
from redelivery.core.dead_lettering.redrive import Redrive
from redelivery.core.events import Confirmed, ConnectionLost, Deferred, Poisoned
from redelivery.core.message_history import RETURN
from redelivery.core.pending_confirms import ACKNOWLEDGED
from redelivery.errors import TransportError

if TYPE_CHECKING:
    from redelivery.core.capabilities import Capabilities

COPIED = replace(NATIVE, poison_persistent=False, poison_non_persistent=False, forward="confirmed")


def poisoned(able: Capabilities) -> Bench:
    """Poison a message, and confirm its dead letter: by the broker's own acknowledgement, or by a copy."""
    bench = Bench(able=able)
    delivery = bench.run(Letter(0))
    bench.feed(Poisoned(delivery, CAUSE))
    bench.feed(Confirmed(delivery))
    return bench


@pytest.mark.parametrize("able", [NATIVE, COPIED])
def test_a_verdict_ends_with_what_a_lost_connection_brings_again(able: Capabilities) -> None:
    """A verdict applies soon after the next connection began; later the message is handled."""
    for later, handled in ((RETURN - 1, False), (RETURN + 1, True)):
        bench = poisoned(able)
        bench.now += 1
        bench.lose()
        bench.now += 3600  # however long the outage was
        bench.connect()
        bench.now += later
        (again,) = bench.arrive(Letter(0))
        assert (bench.want() is again) is handled


def test_the_acknowledgement_behind_a_copy_is_lost_soon_or_not_at_all() -> None:
    """The acknowledgement behind a copy is in doubt only if the connection is lost soon."""
    bench = poisoned(COPIED)
    bench.now += ACKNOWLEDGED + 1
    bench.lose()
    bench.connect()
    (again,) = bench.arrive(Letter(0))
    assert bench.want() is again


def test_a_closed_consumer_leaves_no_verdict_of_a_copy_either() -> None:
    """After a consumer has closed, the next one of the connection handles the message: it has been put back."""
    bench = poisoned(COPIED)
    bench.feed(ConnectionLost(bench.epoch, TransportError("closed"), closed=True))
    bench.connect()
    again = bench.arrive(Letter(0))[0]
    assert bench.want() is again


def test_a_message_without_an_identity_is_given_back_in_the_middle_of_a_delay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is known again by its bytes and the redelivered flag: its deferrals are counted, and its delay goes on."""
    monkeypatch.setattr(Arrival, "key", None)
    bench = Bench(able=replace(NATIVE, max_hold=100.0))
    letter = Letter(0)
    delivery = bench.run(letter)
    bench.feed(Deferred(delivery, 50.0, CAUSE))
    bench.now += 50
    assert bench.want() is delivery
    assert [type(command) for command in bench.feed(Deferred(delivery, 50.0, CAUSE))] == [Release]
    bench.now += 10
    again = bench.again(letter)
    (hold,) = bench.commands
    assert isinstance(hold, Hold)
    assert again.record is not None
    assert (hold.delay, again.record.deferrals) == (40.0, 2)


def test_the_places_of_a_redrive_are_known_beforehand() -> None:
    """The one destination and the quarantine are checked before the first dead letter is taken."""
    assert Redrive("run").places(NATIVE) == ()
    assert Redrive("run", "queue://to").places(NATIVE) == ("queue://to",)
    assert Redrive("run", None, "queue://q").places(NATIVE) == ("queue://q",)
    assert Redrive("run", "queue://to", "queue://q").places(NATIVE) == ("queue://to", "queue://q")
