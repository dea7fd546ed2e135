"""A message whose handler runs on over a lost connection is redelivered: to another consumer, again, or too late."""

from __future__ import annotations

from math import inf

import pytest
from tests.core.copies import Copy, Proven, run_into_a_loss, unseen

from redelivery.core.capabilities import Capabilities
from redelivery.core.dead_lettering.routing import DeadLetterRouting
from redelivery.core.delivery import Record
from redelivery.core.engine import Engine
from redelivery.core.events import Arrived, Connected, ConnectionLost, Drained, Succeeded, Wanted
from redelivery.core.message_history import MessageHistory
from redelivery.core.policy.policy_map import RedeliveryPolicyMap
from redelivery.errors import TransportError


def test_a_copy_at_another_consumer_is_looked_at() -> None:
    """A copy at another consumer waits until the handler has ended, and then owns the record."""
    history, running = MessageHistory(), Copy(consumer=1)
    record = run_into_a_loss(history, running)
    copy = Copy(consumer=2)
    copy.record = history.known(copy, 0.0)
    assert copy.record is record
    assert not history.looked(copy)
    assert history.ended(running, succeeded=True) is None
    assert record.succeeded
    assert history.looked(copy)
    assert (record.copy, len(history)) == (None, 0)


def test_a_success_outlives_the_copy_that_it_was_for() -> None:
    """If the waiting copy is lost, the handler's success becomes an acceptance in doubt."""
    history, running, copy = MessageHistory(), Copy(consumer=1), Copy(consumer=2)
    record = run_into_a_loss(history, running)
    record.count = 1
    copy.record = history.known(copy, 0.0)
    history.ended(running, succeeded=True)
    history.connection_lost(2, [], [copy], [], 1.0, 1)
    assert history.known(Copy(), 0.0) is None
    assert [unseen(history, Copy()) for _ in range(2)] == [True, False]


def test_who_closes_is_not_waited_for() -> None:
    """A copy does not wait for a handler whose consumer has closed; that handler's result changes nothing for it."""
    history, running = MessageHistory(), Copy(consumer=1)
    record = run_into_a_loss(history, running)
    record.count = 1
    copy = Copy(consumer=2)
    copy.record = history.known(copy, 0.0)
    history.connection_lost(1, [], [], [running], inf, 1)
    assert history.looked(copy)
    assert copy.record is not record
    assert copy.record is not None
    record.count += 1
    assert history.ended(running, succeeded=True) is None
    assert (copy.record.count, copy.record.succeeded, len(history)) == (1, False, 0)


def test_a_failure_of_a_handler_whose_consumer_has_closed_is_charged() -> None:
    """A failure of such a handler is charged if its message has not arrived yet; a present copy is not affected."""
    for late in (True, False):
        history, running = MessageHistory(), Copy()
        record = running.record = Record(1)
        history.connection_lost(1, [], [], [running], inf, 1)
        known = None if late else history.known(Copy(), 0.0)
        record.count += 1
        history.ended(running, succeeded=False)
        known = history.known(Copy(), 0.0) if late else known
        assert known is not None
        assert known.count == (2 if late else 1)


def test_a_copy_that_is_lost_is_followed_by_the_next() -> None:
    """Each connection may bring one copy while the handler still has the message."""
    history, running = MessageHistory(), Proven()
    record = run_into_a_loss(history, running)
    copy = Proven()
    copy.record = history.known(copy, 0.0)
    copy.state = "waiting"
    history.connection_lost(1, [], [], [running], 1.0, 1)
    assert (copy.state, record.copy) == ("lost", None)
    other = Proven()
    assert history.known(other, 0.0) is record
    history.let_wait(record)
    last = Proven()
    assert history.known(last, 0.0) is record
    assert history.ended(running, succeeded=False) is last


def engines() -> list[Engine]:
    """Return two consumers' engines."""
    return [Engine(n, policies=RedeliveryPolicyMap(), dead_letters=DeadLetterRouting()) for n in (1, 2)]


@pytest.mark.parametrize("counts", [False, True])
def test_a_drain_hides_no_success(counts: bool) -> None:
    """A copy released by a drain does not hide the handler's success, also where a release is remembered."""
    able = Capabilities("model", release=True, flow=True, marks=False, counts=counts)
    history, (one, other) = MessageHistory(), engines()
    for engine in (one, other):
        engine.state.share(history)
        engine.feed(Connected(1, able), 0.0)
    running = Copy(consumer=1)
    one.feed(Arrived(1, [running]), 0.0)
    one.feed(Wanted(), 0.0)
    for engine in (one, other):
        engine.feed(ConnectionLost(1, TransportError("cut")), 1.0)
        engine.feed(Connected(2, able), 2.0)
    copy, again = Copy(consumer=2, mark=True), Copy(consumer=1, mark=True)
    copy.epoch = again.epoch = 2
    other.feed(Arrived(2, [copy]), 2.0)
    one.feed(Succeeded(running), 2.1)
    other.feed(Drained(), 2.2)
    one.feed(Arrived(2, [again]), 2.3)
    assert (one.state.counts.deduplicated, again.state, len(history)) == (1, "settled", 0)
