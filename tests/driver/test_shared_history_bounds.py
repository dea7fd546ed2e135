"""What is kept of messages that no consumer has: for whom, how much, and what goes first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from redelivery.core.commands import Subscribe
from redelivery.core.delivery import Record
from redelivery.core.message_history import RECALL
from redelivery.driver.connection.shared_history import SharedHistory, scope_of

if TYPE_CHECKING:
    from redelivery.testing import ManualClock, MemoryBroker


def subscription(destination: str, name: str | None = None) -> Subscribe:
    return Subscribe(1, destination, 10, subscription=name)


@pytest.mark.parametrize(
    ("subscribe", "scope"),
    [
        (subscription("queue://a"), "all"),
        (subscription("temp-queue://a"), "all"),
        (subscription("topic://a", "name"), "all"),
        (subscription("topic://a"), "none"),
        (subscription("temp-topic://a"), "none"),
        (subscription("native://a"), "later"),
        (subscription("native://a", "name"), "all"),
    ],
)
def test_who_may_get_the_very_message(subscribe: Subscribe, scope: str) -> None:
    """Only who can receive the same message, and not a copy of it, goes on with its count."""
    assert scope_of(subscribe) == scope


def test_what_is_left_is_bounded() -> None:
    """As much is kept as the consumers that were open may have had; the oldest goes first, of all sources."""
    shared_history = SharedHistory()
    for _ in range(3):  # one after the other: the most that were open at a time counts
        shared_history.opened(10)
        shared_history.closed(10)
    for number in range(RECALL):
        shared_history.leave((f"queue://{number}", None), {number: Record(1)})
    shared_history.leave(("queue://last", None), {f"m{n}": Record(1) for n in range(20)})
    assert sum(len(records) for records in shared_history.sources.values()) == RECALL + 10
    assert shared_history.claim(("queue://9", None), [9]) == {}
    assert list(shared_history.claim(("queue://10", None), [10])) == [10]
    assert len(shared_history.claim(("queue://last", None))) == 20
    assert len(shared_history.sources) == RECALL - 11


def test_of_two_records_the_greater_is_kept() -> None:
    """Two consumers that had a message at different times, unseen by each other: no failure is forgotten."""
    shared_history, source = SharedHistory(), ("queue://a", None)
    poisoned = Record(0)
    poisoned.poisoned = True
    for record in (Record(2), Record(1), poisoned, Record(5)):
        shared_history.leave(source, {"m": record})
    assert shared_history.claim(source, ["m", None, "n"]) == {"m": poisoned}


@pytest.mark.parametrize("poisoned", [False, True])
def test_confirmed_verdicts_make_room_for_counts(poisoned: bool) -> None:
    """Neither a count nor a verdict in doubt is pushed out by verdicts on messages whose dead letter is safe."""
    shared_history = SharedHistory()
    live = Record(1)
    live.poisoned = poisoned
    shared_history.leave(("queue://a", None), {"live": live})
    for number in range(RECALL + 5):
        safe = Record(1)
        safe.poisoned = safe.confirmed = True
        shared_history.leave(("queue://b", None), {number: safe})
    assert sum(len(records) for records in shared_history.sources.values()) == RECALL
    assert list(shared_history.claim(("queue://a", None))) == ["live"]


def test_each_open_consumer_has_room() -> None:
    """Consumers that lose the connection together forget nothing for each other's sake."""
    shared_history = SharedHistory()
    for _ in range(12):
        shared_history.opened(1000)
    for number in range(12):
        shared_history.leave((f"queue://{number}", None), {key: Record(1) for key in range(1000)})
    assert [len(shared_history.claim((f"queue://{number}", None))) for number in range(12)] == [1000] * 12


def test_a_source_is_not_out_of_sight_while_more_is_left() -> None:
    """Who looks without the lock while another consumer leaves its records still finds the source."""
    shared_history, source = SharedHistory(), ("queue://a", None)
    shared_history.leave(source, {"m": Record(1)})
    seen: list[bool] = []

    class Watched(dict[Any, Any]):
        def items(self) -> Any:
            seen.append(source in shared_history.sources)
            return super().items()

    shared_history.leave(source, Watched({"n": Record(1)}))
    assert seen == [True]


def test_what_is_left_again_is_the_youngest() -> None:
    """A message that is left a second time counts once, and from then; its verdict too."""
    shared_history, source = SharedHistory(), ("queue://a", None)
    shared_history.leave(source, {n: Record(1) for n in range(RECALL)})
    again, safe = Record(1), Record(1)
    safe.poisoned = safe.confirmed = True
    shared_history.leave(source, {0: again, 1: safe})
    assert len(shared_history.sources[source]) == RECALL
    shared_history.leave(source, {"one": Record(1), "two": Record(1)})
    assert 0 in shared_history.sources[source]
    assert {1, 2}.isdisjoint(shared_history.sources[source])
    assert len(shared_history.sources[source]) == RECALL


def test_only_what_arrives_is_claimed() -> None:
    """The records of the other messages of a queue stay for whoever gets those."""
    shared_history, source = SharedHistory(), ("queue://a", None)
    shared_history.leave(source, {"m": Record(1), "n": Record(2)})
    assert list(shared_history.claim(source, ["m"])) == ["m"]
    assert list(shared_history.claim(source)) == ["n"]


def test_a_new_consumer_of_a_queue_claims_nothing_before_its_messages_come(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """They may go to one that is open already."""
    with redelivery.connect(redelivery_broker.uri, clock=redelivery_clock) as connection:
        shared_history, source = connection._driver.shared_history, ("queue://orders", None)
        shared_history.leave(source, {"m": Record(1)})
        connection.consumer("orders")
        assert list(shared_history.claim(source)) == ["m"]
