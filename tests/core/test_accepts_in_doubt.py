"""Time for which an acceptance is in doubt: an operator may send the same bytes again later on purpose."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from tests.core.bench import NATIVE, Bench
from tests.core.copies import Copy, Proven, accepted, run_into_a_loss, unseen

from redelivery.core.accepts_in_doubt import DOUBT, KEPT, RecentAccepts
from redelivery.core.commands import AcceptUnseen, Dispatch, Release
from redelivery.core.delivery import Record
from redelivery.core.events import Arrived, Connected, Released, Succeeded, Wanted
from redelivery.core.message_history import RETURN, MessageHistory


class Digested(Copy):
    """Delivery whose body is kept for a while, as adapters do where only a producer's id exists."""

    __slots__ = ()
    digested = True


class Placed(Digested):
    """Delivery with a destination, over a given connection."""

    __slots__ = ()

    def __init__(self, *, epoch: int) -> None:
        super().__init__()
        self.epoch = epoch

    @property
    def destination(self) -> str:
        return "queue://orders"


def test_what_was_accepted_long_ago_is_in_doubt_no_longer() -> None:
    """After a minute a producer's bytes are in doubt no longer; the broker's own ids are recognised at any time."""
    recent = RecentAccepts(10)
    early, proven, late = Digested("early"), Proven("proven"), Digested("late")
    recent.add(early, 100.0)
    recent.add(proven, 100.0)
    recent.add(late, 101.0)
    assert recent.taken(101.0 + DOUBT) == [proven, late]
    assert recent.taken(0.0) == []


def test_bodies_are_kept_within_a_bound() -> None:
    """The newest bodies are kept; one that takes more than half of the bound is not kept and removes no other."""
    recent, many = RecentAccepts(10_000), KEPT // 4096
    for number in range(2 * many):
        recent.add(Digested(f"{number}", body=b"x" * 4096), 0.0)
    recent.add(Digested("large", body=b"x" * (KEPT // 2 + 1)), 0.0)
    taken = [one.key for one in recent.taken(0.0)]
    assert taken == [Digested(f"{number}").key for number in range(2 * many)][-many:]
    for number in range(50_000):
        recent.add(Digested(f"{number}", body=b""), 0.0)
    assert next(iter(recent.taken(0.0))).key == Digested("40000").key
    recent.add(Digested("after all were taken", body=b"x" * (KEPT // 2)), 0.0)
    assert len(recent.taken(0.0)) == 1


@pytest.mark.parametrize(("kind", "known"), [(Copy, False), (Proven, True)])
def test_a_producers_bytes_are_in_doubt_for_one_connection(kind: type[Copy], *, known: bool) -> None:
    """A producer's bytes are in doubt for the next connection only; the broker's own id for longer."""
    history = MessageHistory()
    accepted(history, kind())
    history.connection_lost(2, [], [], [], 5.0, 1)
    assert unseen(history, kind())
    accepted(history, kind())
    history.connection_lost(1, [], [], [], 90.0, 2)
    assert unseen(history, kind()) is known


@pytest.mark.parametrize("consumer", [0, 1, 2])
@pytest.mark.parametrize("state", ["unsettled", "running"])
def test_equal_messages_that_were_here_together_are_two(state: str, consumer: int) -> None:
    """If one of two equal messages was accepted and the broker has sent both, neither is accepted for the other."""
    history, other = MessageHistory(), Copy(consumer=consumer)
    other.record = Record()
    held = ([other], []) if state == "unsettled" else ([], [other])
    if consumer == 1:
        history.connection_lost(1, [Copy()], *held, 0.0, 1)
    elif consumer == 2:
        accepted(history, Copy())
        history.connection_lost(2, [], *held, 0.0, 1)
    else:
        history.connection_lost(0, [], *held, 0.0, 1)
        accepted(history, Copy())
    assert not unseen(history, Copy())


@pytest.mark.parametrize("way", ["released", "its consumer closed", "running as it closed"])
def test_what_was_given_back_is_another_message(way: str) -> None:
    """If one of two equal messages was accepted and the other was released, the released one is handled."""
    history, other = MessageHistory(), Copy()
    if "closed" in way:
        other.record = Record()
        held = ([], [other]) if "running" in way else ([other], [])
        history.connection_lost(2, [], *held, inf, 1)
    else:
        history.gave_back(other)
    history.connection_lost(1, [Copy(), Copy("another")], [], [], 0.0, 1)
    assert not unseen(history, Copy())
    assert unseen(history, Copy("another"))


def test_an_engine_that_releases_one_of_two_equal_messages_handles_it_when_it_comes_again() -> None:
    """A released message is handled when it is redelivered, although an equal one was accepted over that connection."""
    bench = Bench(able=replace(NATIVE, marks=True))
    bench.engine.state.share(MessageHistory())
    one, other = Placed(epoch=bench.epoch), Placed(epoch=bench.epoch)
    bench.feed(Arrived(1, [one, other]))
    bench.feed(Wanted())
    bench.feed(Wanted())
    bench.feed(Succeeded(one))
    assert [type(command) for command in bench.feed(Released(other))] == [Release]
    bench.lose()
    bench.connect()
    assert not bench.feed(Arrived(1, [Placed(epoch=bench.epoch)]))
    assert [type(command) for command in bench.feed(Wanted())] == [Dispatch]


def test_what_waited_for_a_handler_goes_back_too() -> None:
    """A delivery that waits for a handler of a lost connection is handled later if its consumer closes."""
    history, first, copy = MessageHistory(), Copy(consumer=2), Copy(consumer=2)
    copy.epoch = 2
    run_into_a_loss(history, first)
    assert history.known(copy, 1.0) is first.record
    assert first.record is not None
    assert first.record.copy is copy
    history.connection_lost(2, [], [], [], inf, 2)
    history.connection_lost(1, [Copy()], [], [], 0.0, 2)
    assert not unseen(history, Copy())


def test_what_was_given_back_over_an_earlier_connection_is_no_evidence() -> None:
    """A release over an earlier connection proves nothing: the broker has redelivered the message since."""
    history = MessageHistory()
    history.gave_back(Copy())
    history.connection_lost(1, [], [], [], 0.0, 1)
    history.connection_lost(1, [Copy()], [], [], 1.0, 2)
    assert unseen(history, Copy())


def test_more_is_given_back_than_is_remembered() -> None:
    """Above the limit no message of that connection is accepted unseen, except by the broker's own id."""
    history = MessageHistory(3)
    for number in range(4):
        history.gave_back(Copy(f"{number}"))
    history.connection_lost(1, [Copy(), Proven("p")], [], [], 0.0, 1)
    assert not unseen(history, Copy())
    assert unseen(history, Proven("p"))
    history.connection_lost(1, [Copy()], [], [], 0.0, 2)
    assert unseen(history, Copy())


def test_a_consumer_that_begins_between_two_losses_takes_no_evidence_away() -> None:
    """A consumer that starts between the losses of two others removes no evidence of theirs."""
    history = MessageHistory()
    history.connected("one", 1)
    history.connection_lost(0, [], [Copy()], [], 0.0, 1)
    history.connected("one", 1)
    accepted(history, Copy())
    assert not unseen(history, Copy())


def test_what_was_held_on_an_earlier_connection_is_no_evidence() -> None:
    """A message unsettled on an earlier connection proves nothing: it may have been accepted since."""
    history = MessageHistory()
    history.connected("one", 1)
    history.connection_lost(1, [], [Copy()], [], 0.0, 1)
    history.connected("one", 2)
    history.connection_lost(1, [Copy()], [], [], 1.0, 2)
    assert unseen(history, Copy())


def test_what_is_held_of_other_bytes_or_the_brokers_own_changes_nothing() -> None:
    """Only an equal message is evidence that an acceptance was of another one."""
    history = MessageHistory()
    history.connection_lost(1, [Copy(), Proven("p")], [Copy(body=b"other"), Proven("p")], [], 0.0, 1)
    assert unseen(history, Copy())
    assert unseen(history, Proven("p"))


def test_a_consumer_that_begins_late_knows_how_old_the_connection_is() -> None:
    """A consumer that starts late counts the minute of doubt from the start of the connection."""
    history, bench = MessageHistory(), Bench()
    bench.engine.state.share(history)
    accepted(history, Copy())
    for since, taken in ((bench.now - RETURN - 1, False), (bench.now, True)):
        bench.epoch += 1
        bench.feed(Connected(bench.epoch, bench.able, since=since))
        commands = bench.feed(Arrived(1, [Placed(epoch=bench.epoch)]))
        assert any(isinstance(command, AcceptUnseen) for command in commands) is taken


@pytest.mark.parametrize(("address", "known"), [("one", False), ("two", True)])
def test_a_node_that_takes_over_marks_nothing(address: str, *, known: bool) -> None:
    """After a failover the redelivered flag is no proof: the other node of the pair sends what it did not store.

    Over the same address a message without the flag is another one.
    """
    history = MessageHistory()
    history.connected("one", 1)
    accepted(history, Copy())
    history.connected(address, 2)
    history.connected(address, 2)  # the second consumer of the source
    again = Copy()
    again.mark = False
    assert unseen(history, again, marks=True) is known
