"""Limits of a consumer: its credit, and the number of parked messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import redelivery
from redelivery.testing.conformance.bench import QUIET, Suite

if TYPE_CHECKING:
    from redelivery import Message
    from redelivery.testing.conformance.bench import Bench

__all__ = ["Holding"]

LONG = redelivery.RedeliveryPolicy(initial_redelivery_delay=600)
CREDIT, MAX_PARKED = 4, 3
LIMITS = {"redelivery__credit": CREDIT, "redelivery__maxParked": MAX_PARKED}
ALL = 30


def body(number: int) -> str:
    """Return a body of 1 kB: larger than the remainder that a broker with a window in bytes may leave."""
    return f"{number} ".ljust(1024, ".")


def numbers(messages: list[Message]) -> list[int]:
    """Return the numbers of these messages."""
    return [int(message.text.split()[0]) for message in messages]


class Holding(Suite):
    """Credit and `maxParked`."""

    def held_at_most(self, bench: Bench, parked: int = 0) -> int:
        """Return how many messages may be unsettled at a consumer with `LIMITS` that parks `parked`."""
        return CREDIT + parked + bench.broker.beyond_credit

    def test_credit_is_respected(self, bench: Bench) -> None:
        """The application has `credit` messages, and the broker has sent no more of them.

        Other consumers get the rest.
        """
        for number in range(ALL):
            bench.send(body(number))
        first = bench.connect(LONG, **LIMITS).consumer(bench.queue)
        mine = bench.pull_all(first, at_least=CREDIT)
        assert numbers(mine) == list(range(CREDIT))
        second = bench.connect().consumer(bench.queue)
        free = ALL - self.held_at_most(bench)
        others = bench.pull_all(second, at_least=free)
        assert len(others) >= free
        for message in (*mine, *others):
            assert message.accept() is True
        # One by one: RabbitMQ 4.0 had sent it nine, and the fifth is dispatched after one of the first four is settled.
        rest: list[Message] = []
        while len(mine) + len(others) + len(rest) < ALL:
            late = bench.eventually(lambda: first.receive(QUIET) or second.receive(QUIET), "the rest comes")
            assert late is not None
            assert late.accept() is True
            rest.append(late)
        assert sorted([*numbers(mine), *numbers(others), *numbers(rest)]) == list(range(ALL))
        assert bench.left() == []

    def test_a_due_redelivery_waits_for_credit(self, bench: Bench) -> None:
        """A due redelivery waits while `credit` messages are unsettled."""
        for number in range(1 + CREDIT):
            bench.send(body(number))
        policy = redelivery.RedeliveryPolicy(initial_redelivery_delay=0.2)
        consumer = bench.connect(policy, **LIMITS).consumer(bench.queue)
        bench.pull(consumer).fail("no")
        mine = [bench.pull(consumer) for _ in range(CREDIT)]
        assert consumer.receive(timeout=0.2 + QUIET) is None
        assert mine[0].accept() is True
        rest = bench.pull_all(consumer, at_least=1)
        assert sorted(numbers([*mine, *rest])) == list(range(1 + CREDIT))
        for message in (*mine[1:], *rest):
            assert message.accept() is True
        assert bench.left() == []

    def test_past_max_parked_nothing_fresh_comes(self, bench: Bench) -> None:
        """Fresh messages are dispatched while fewer than `maxParked` are parked.

        After that a second consumer gets the rest, and in the end all.
        """
        for number in range(ALL):
            bench.send(body(number))
        connection = bench.connect(LONG, **LIMITS)
        first = connection.consumer(bench.queue)
        for _ in range(MAX_PARKED):
            good = bench.pull(first)
            assert good.accept() is True
            bench.pull(first).fail("no")
        bench.nothing(first)
        assert first.parked == MAX_PARKED
        second = bench.connect().consumer(bench.queue)
        free = ALL - MAX_PARKED - self.held_at_most(bench, MAX_PARKED)
        others = bench.pull_all(second, at_least=free)
        assert len(others) >= free
        first.close()
        taken: set[int] = set(numbers(others))

        def all_taken() -> bool:
            found = bench.pull_all(second, QUIET)
            taken.update(numbers(found))
            others.extend(found)
            return len(taken) == ALL - MAX_PARKED

        bench.eventually(all_taken, "the second consumer has all that the first one had")
        assert len(others) == len(taken), "each once"
        assert {1, 3, 5} <= taken
        assert all(message.accept() for message in others)
        assert bench.left() == []
        assert bench.letters() == []

    def test_what_is_parked_makes_room_again(self, bench: Bench) -> None:
        """A fresh message arrives when a parked one is settled."""
        for number in range(8):
            bench.send(body(number))
        policy = redelivery.RedeliveryPolicy(initial_redelivery_delay=1)
        consumer = bench.connect(policy, **LIMITS).consumer(bench.queue)
        for _ in range(MAX_PARKED):
            bench.pull(consumer).fail("no")
        order = [bench.pull(consumer)]
        assert order[0].accept() is True
        while len(order) < 8:
            message = bench.pull(consumer)
            order.append(message)
            assert message.accept() is True
        assert numbers(order)[0] == 0, "the first is one that waited"
        assert sorted(numbers(order)) == list(range(8))
        assert bench.left() == []
