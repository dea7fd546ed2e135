"""Exclusive runs: which handlers may run beside each other."""

from __future__ import annotations

from redelivery.core.ledger_engine import PATIENCE, SuspectIsolation


def test_a_turn_waits_until_nothing_runs_and_nothing_begins_before_it() -> None:
    """An exclusive run waits until no handler runs; the last one to end must wake the others."""
    house = SuspectIsolation()
    assert house.enter(0.0)
    house.claim("a", 0.0)
    assert not house.turn("a")
    assert not house.enter(1.0)
    assert house.leave()
    assert not house.turn("b")
    assert house.turn("a")
    assert not house.enter(2.0)
    house.end_turn(3.0)
    assert house.enter(3.0)


def test_turns_are_taken_in_order() -> None:
    """Suspects run one after the other; a new handler waits for all of them."""
    house = SuspectIsolation()
    house.claim("a", 0.0)
    house.claim("b", 0.0)
    house.claim("a", 1.0)
    assert house.turn("a")
    assert not house.turn("b")
    house.end_turn(1.0)
    assert not house.enter(1.0)
    assert house.turn("b")
    house.end_turn(2.0)
    assert house.enter(2.0)


def test_a_handler_that_takes_for_ever_does_not_stop_the_process() -> None:
    """After a while others run for as long, before the exclusive run is tried again."""
    house = SuspectIsolation()
    house.enter(0.0)
    house.claim("a", 5.0)
    assert house.until(6.0) == PATIENCE - 1
    assert not house.enter(5.0 + PATIENCE / 2)
    assert house.enter(5.0 + PATIENCE * 1.5)
    assert not house.enter(5.0 + PATIENCE * 2.5)


def test_who_withdraws_waits_no_more() -> None:
    """If the consumer of a suspect has stopped, others continue."""
    house = SuspectIsolation()
    house.claim("a", 0.0)
    assert house.withdraw("a")
    assert not house.withdraw("a")
    assert house.enter(0.0)
    assert house.until(0.0) is None
    assert not house.leave()
