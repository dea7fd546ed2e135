"""What is kept of messages that no consumer has: for whom, how much, and what goes first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from redelivery.core.commands import Subscribe
from redelivery.core.delivery import Record
from redelivery.core.message_history import RECALL
from redelivery.driver.connection.shared_history import Legacy, heirs_of

if TYPE_CHECKING:
    from redelivery.testing import ManualClock, MemoryBroker


def subscription(destination: str, name: str | None = None) -> Subscribe:
    return Subscribe(1, destination, 10, subscription=name)


@pytest.mark.parametrize(
    ("subscribe", "heirs"),
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
def test_who_may_get_the_very_message(subscribe: Subscribe, heirs: str) -> None:
    """Only who can receive the same message, and not a copy of it, goes on with its count."""
    assert heirs_of(subscribe) == heirs


def test_what_is_left_is_bounded() -> None:
    """As much is kept as the consumers that were open may have had; the oldest goes first, of all sources."""
    legacy = Legacy()
    for _ in range(3):  # one after the other: the most that were open at a time counts
        legacy.opened(10)
        legacy.closed(10)
    for number in range(RECALL):
        legacy.leave((f"queue://{number}", None), {number: Record(1)})
    legacy.leave(("queue://last", None), {f"m{n}": Record(1) for n in range(20)})
    assert sum(len(records) for records in legacy.sources.values()) == RECALL + 10
    assert legacy.claim(("queue://9", None), [9]) == {}
    assert list(legacy.claim(("queue://10", None), [10])) == [10]
    assert len(legacy.claim(("queue://last", None))) == 20
    assert len(legacy.sources) == RECALL - 11


def test_of_two_records_the_greater_is_kept() -> None:
    """Two consumers that had a message at different times, unseen by each other: no failure is forgotten."""
    legacy, source = Legacy(), ("queue://a", None)
    poisoned = Record(0)
    poisoned.poisoned = True
    for record in (Record(2), Record(1), poisoned, Record(5)):
        legacy.leave(source, {"m": record})
    assert legacy.claim(source, ["m", None, "n"]) == {"m": poisoned}


@pytest.mark.parametrize("poisoned", [False, True])
def test_confirmed_verdicts_make_room_for_counts(poisoned: bool) -> None:
    """Neither a count nor a verdict in doubt is pushed out by verdicts on messages whose dead letter is safe."""
    legacy = Legacy()
    live = Record(1)
    live.poisoned = poisoned
    legacy.leave(("queue://a", None), {"live": live})
    for number in range(RECALL + 5):
        safe = Record(1)
        safe.poisoned = safe.confirmed = True
        legacy.leave(("queue://b", None), {number: safe})
    assert sum(len(records) for records in legacy.sources.values()) == RECALL
    assert list(legacy.claim(("queue://a", None))) == ["live"]


def test_each_open_consumer_has_room() -> None:
    """Consumers that lose the connection together forget nothing for each other's sake."""
    legacy = Legacy()
    for _ in range(12):
        legacy.opened(1000)
    for number in range(12):
        legacy.leave((f"queue://{number}", None), {key: Record(1) for key in range(1000)})
    assert [len(legacy.claim((f"queue://{number}", None))) for number in range(12)] == [1000] * 12


def test_a_source_is_not_out_of_sight_while_more_is_left() -> None:
    """Who looks without the lock while another consumer leaves its records still finds the source."""
    legacy, source = Legacy(), ("queue://a", None)
    legacy.leave(source, {"m": Record(1)})
    seen: list[bool] = []

    class Watched(dict[Any, Any]):
        def items(self) -> Any:
            seen.append(source in legacy.sources)
            return super().items()

    legacy.leave(source, Watched({"n": Record(1)}))
    assert seen == [True]


def test_what_is_left_again_is_the_youngest() -> None:
    """A message that is left a second time counts once, and from then; its verdict too."""
    legacy, source = Legacy(), ("queue://a", None)
    legacy.leave(source, {n: Record(1) for n in range(RECALL)})
    again, safe = Record(1), Record(1)
    safe.poisoned = safe.confirmed = True
    legacy.leave(source, {0: again, 1: safe})
    assert len(legacy.sources[source]) == RECALL
    legacy.leave(source, {"one": Record(1), "two": Record(1)})
    assert 0 in legacy.sources[source]
    assert {1, 2}.isdisjoint(legacy.sources[source])
    assert len(legacy.sources[source]) == RECALL


def test_only_what_arrives_is_claimed() -> None:
    """The records of the other messages of a queue stay for whoever gets those."""
    legacy, source = Legacy(), ("queue://a", None)
    legacy.leave(source, {"m": Record(1), "n": Record(2)})
    assert list(legacy.claim(source, ["m"])) == ["m"]
    assert list(legacy.claim(source)) == ["n"]


def test_a_new_consumer_of_a_queue_claims_nothing_before_its_messages_come(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """They may go to one that is open already."""
    with redelivery.connect(redelivery_broker.uri, clock=redelivery_clock) as connection:
        legacy, source = connection._keeper.legacy, ("queue://orders", None)
        legacy.leave(source, {"m": Record(1)})
        connection.consumer("orders")
        assert list(legacy.claim(source)) == ["m"]
