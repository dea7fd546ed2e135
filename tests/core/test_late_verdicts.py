"""Replayed sequences of the property test: verdicts whose original the broker redelivers late."""

from __future__ import annotations

import pytest
from tests.core.test_properties import PATIENCE, EngineMachine

from redelivery.core.capabilities import Capabilities
from redelivery.core.message_history import RETURN
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy

COPIED = Capabilities("model", forward="confirmed")
NO_REDELIVERY = RedeliveryPolicy(maximum_redeliveries=0)


def one_at_a_time() -> EngineMachine:
    """Return a machine with one message at a time, which a failure ends, before a broker that reorders."""
    machine = EngineMachine()
    machine.begin(
        NO_REDELIVERY, COPIED, "blocking", 1, 1, seed=0, in_order=False, drain_after=1000, by_broker=False
    )
    return machine


def dead_letter() -> EngineMachine:
    """Return a machine whose first message is dead-lettered; the broker has not read its acknowledgement."""
    machine = one_at_a_time()
    machine.send(groups=[None, None], persistent=False, ttl=None)
    machine.work(read=100, deliver=1, outcomes=["fail"])
    machine.read(100)
    machine.confirm(refuse=False)
    return machine


def test_a_dead_letter_that_is_redelivered_late_in_a_connection_is_handled() -> None:
    """Found at random: four messages of 30 s each delayed the original past the 60 s in which its verdict binds."""
    machine = one_at_a_time()
    machine.send(groups=[None, None], persistent=False, ttl=None)
    machine.cut(running=0, read=0, outcomes=[], back=True)
    machine.come_back(deliver=1, outcomes=["succeed", "fail", "succeed"])
    machine.send(groups=[None] * 5, persistent=False, ttl=5.0)
    machine.pass_until_due()
    machine.work(read=100, deliver=1, outcomes=["succeed"] * 3)
    machine.confirm(refuse=False)
    original = machine.letters[1]
    assert original.dead
    assert not original.accepted
    machine.cut(running=0, read=0, outcomes=[], back=False)
    machine.teardown()
    assert machine.now - machine.began > RETURN
    assert original.processed
    assert original.accepted


@pytest.mark.parametrize(("steps", "handled"), [(1, False), (2, True)])
def test_a_verdict_ends_with_a_long_connection_that_does_not_redeliver(steps: int, handled: bool) -> None:
    """A connection of 31 s keeps the verdict for the next one; after one of 62 s the original is handled."""
    machine = dead_letter()
    machine.cut(running=0, read=0, outcomes=[], back=False)
    machine.reconnect()
    for _ in range(steps):
        machine.pass_time(31.0)
    machine.cut(running=0, read=0, outcomes=[], back=False)
    machine.come_back(deliver=5, outcomes=["succeed"] * 3)
    machine.teardown()
    original = machine.letters[0]
    assert original.processed is handled
    assert original.ended


def test_a_broker_leaves_nothing_unread_for_long_in_small_steps() -> None:
    """A broker reads the acknowledgement behind a copy within its patience, though each time step is shorter."""
    machine = dead_letter()
    original = machine.letters[0]
    for _ in range(int(PATIENCE)):
        machine.pass_time(1.0)
    assert not original.accepted
    machine.pass_time(1.0)
    assert original.accepted
