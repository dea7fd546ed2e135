"""Browsing: reading a queue without taking from it, and taking with giving back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import redelivery
from redelivery.testing.conformance.bench import Suite, refused

if TYPE_CHECKING:
    from redelivery.dlq.dead_letter_queue import DeadLetterQueue
    from redelivery.testing.conformance.bench import Bench

__all__ = ["Browsing"]

SENT = ["first", "second", "third"]


class Browsing(Suite):
    """Requirements of `redelivery.dead_letters`."""

    def test_looking_takes_nothing(self, bench: Bench) -> None:
        """Browsed messages are shown in order, twice, and stay as they were.

        A broker that takes the messages that it shows refuses.
        """
        for body in SENT:
            bench.send(body)
        with tools(bench, take=False) as looking:
            if not bench.capabilities.browse:
                refused(lambda: list(looking), "--take")
            else:
                for _ in range(2):
                    assert [letter.body.decode() for letter in looking] == SENT
        consumer = bench.connect().consumer(bench.queue)
        for body in SENT:
            message = bench.pull(consumer)
            assert (message.text, message.redelivered) == (body, False)
            message.accept()

    def test_an_empty_queue_has_an_end(self, bench: Bench) -> None:
        """Browsing of an empty queue ends without a message."""
        bench.send("gone")
        bench.pull(bench.connect().consumer(bench.queue)).accept()
        bench.leave()
        with tools(bench, take=not bench.capabilities.browse) as looking:
            assert list(looking) == []

    def test_what_was_taken_is_given_back(self, bench: Bench) -> None:
        """Each message that was taken is on the queue again, once."""
        for body in SENT:
            bench.send(body)
        with tools(bench, take=True) as taking:
            assert [letter.body.decode() for letter in taking] == SENT
        assert sorted(found.text for found in bench.left(at_least=3)) == sorted(SENT)


def tools(bench: Bench, *, take: bool) -> DeadLetterQueue:
    """Return the `DeadLetterQueue` of the test's queue."""
    # One look: fewer than any limit.
    return redelivery.dead_letters(
        bench.broker.uri(), bench.queue, take=take, idle=0.5, clock=bench.clock, despite_limit=True
    )
