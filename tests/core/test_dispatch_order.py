"""Order of dispatch: the three schedules."""

from __future__ import annotations

import pytest
from tests.core.bench import Bench
from tests.core.model import Letter

from redelivery.core.delivery import Delivery
from redelivery.core.dispatch_order import NonBlocking


def test_non_blocking_lets_others_overtake() -> None:
    """A parked message does not block the others, and is dispatched first once it is due."""
    bench = Bench(ordering="non_blocking")
    first, second, third = bench.arrive(Letter(0), Letter(1), Letter(2))
    assert bench.want() is first
    bench.fail(first)
    assert bench.want() is second
    bench.now += 60
    assert bench.want() is first
    assert bench.want() is third


def test_blocking_waits_for_what_failed() -> None:
    """While one message is parked nothing else is dispatched, and the engine reports until when."""
    bench = Bench(ordering="blocking")
    first, second = bench.arrive(Letter(0), Letter(1))
    bench.want()
    bench.fail(first)
    assert bench.want() is None
    assert bench.engine.load.ready() == 0
    assert bench.engine.load.next_due() == bench.now + 60
    bench.now += 60
    assert bench.want() is first
    bench.succeed(first)
    assert bench.want() is second


def test_blocking_brings_back_in_order_of_arrival() -> None:
    """Of two failed messages, the one that arrived first is dispatched first, though it failed last."""
    bench = Bench(ordering="blocking", credit=2)
    first, second = bench.arrive(Letter(0), Letter(1))
    bench.want()
    bench.want()
    bench.fail(second)
    bench.now += 1
    bench.fail(first)
    bench.now += 60
    assert bench.want() is first
    assert bench.want() is second


def test_blocking_lets_what_came_first_go_first() -> None:
    """A remembered message that is due does not go before one that arrived earlier on this connection."""
    bench = Bench(ordering="blocking")
    (failed,) = bench.arrive(Letter(0))
    bench.want()
    bench.fail(failed)
    bench.lose()
    bench.connect()
    first, again = bench.arrive(Letter(1), Letter(0))
    assert bench.engine.load.ready() == 1
    assert bench.want() is first
    bench.succeed(first)
    assert bench.want() is None
    bench.now += 60
    assert bench.want() is again


def test_per_group_holds_back_only_its_group() -> None:
    """A group waits behind its parked head and counts as parked; other messages are not blocked."""
    bench = Bench(ordering="per_group")
    head, behind, other, free = bench.arrive(Letter(0, "g"), Letter(1, "g"), Letter(2, "h"), Letter(3))
    assert bench.want() is head
    bench.fail(head)
    assert bench.engine.load.parked == 2
    assert bench.want() is other
    assert bench.want() is free
    assert bench.want() is None
    bench.now += 60
    assert bench.want() is head
    assert bench.engine.load.parked == 0
    assert bench.want() is None
    bench.succeed(head)
    assert bench.want() is behind


def test_per_group_runs_one_of_a_group_at_a_time() -> None:
    """The next message of a group is not dispatched while one of them runs."""
    bench = Bench(ordering="per_group")
    first, second = bench.arrive(Letter(0, "g"), Letter(1, "g"))
    assert bench.want() is first
    assert bench.want() is None
    bench.succeed(first)
    assert bench.want() is second


def test_per_group_waits_for_a_handler_of_a_lost_connection() -> None:
    """After a reconnect the group waits until the old handler of one of its messages has ended."""
    bench = Bench(ordering="per_group")
    head, follower = Letter(0, "g"), Letter(1, "g")
    old = bench.run(head)
    bench.lose()
    bench.connect()
    bench.again(head)
    second = bench.again(follower)
    assert bench.want() is None
    bench.succeed(old)
    assert bench.want() is second


def test_per_group_goes_on_when_a_handler_of_a_lost_connection_ends_without_a_copy() -> None:
    """If the message was not redelivered here, its group waits only for the old handler."""
    bench = Bench(ordering="per_group")
    old = bench.run(Letter(0, "g"))
    bench.lose()
    bench.connect()
    second = bench.arrive(Letter(1, "g"))[0]
    assert bench.want() is None
    assert bench.succeed(old) == []
    assert bench.want() is second


def test_per_group_with_what_failed_behind_its_successor() -> None:
    """A broker that redelivers a failed message behind its successor neither mixes the two nor leaves a wrong count."""
    bench = Bench(ordering="per_group")
    failed, successor, last = Letter(0, "g"), Letter(1, "g"), Letter(2, "g")
    bench.fail(bench.run(failed))
    bench.lose()
    bench.connect()
    second = bench.arrive(successor)[0]
    first = bench.again(failed)
    third = bench.arrive(last)[0]
    assert bench.engine.load.parked == 0
    assert bench.want() is second
    assert bench.want() is None
    bench.succeed(second)
    assert bench.want() is None, "what failed is the head now, and waits"
    assert bench.engine.load.parked == 2
    bench.now += 60
    assert bench.want() is first
    bench.succeed(first)
    assert bench.want() is third
    bench.succeed(third)
    assert bench.engine.load.parked == 0


def test_per_group_limit_does_not_stop_a_group() -> None:
    """A failed message behind its successor does not count for max_parked, which would block both."""
    bench = Bench(ordering="per_group", max_parked=1)
    failed, successor = Letter(0, "g"), Letter(1, "g")
    bench.fail(bench.run(failed))
    bench.lose()
    bench.connect()
    bench.arrive(successor)
    bench.again(failed)
    assert bench.want() is not None


@pytest.mark.parametrize("ordering", ["blocking", "non_blocking"])
def test_what_was_never_dispatched_keeps_its_order(ordering: str) -> None:
    """Without failures the order of dispatch is the order of arrival."""
    bench = Bench(ordering=ordering)
    arrivals = bench.arrive(*(Letter(n, "g" if n % 2 else None) for n in range(6)))
    seen = []
    for _ in arrivals:
        delivery = bench.want()
        assert delivery is not None
        seen.append(delivery)
        bench.succeed(delivery)
    assert seen == arrivals


def test_a_message_that_fails_at_once_again_and_again_does_not_keep_the_others_out() -> None:
    """A message without a delay or a limit alternates with the fresh ones."""
    schedule = NonBlocking()
    first, second, third = (Delivery(1, 1, b"") for _ in range(3))
    schedule.add(second)
    schedule.add(third)

    order = []
    schedule.park(first, 0.0)
    for _ in range(5):
        delivery = schedule.next(1.0, fresh=True)
        assert delivery is not None
        order.append(delivery)
        if delivery is first:
            schedule.park(first, 0.0)

    assert order == [second, first, third, first, first]
