"""Messages that expire before they are dispatched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import redelivery
from redelivery.testing.conformance.bench import Bench, Suite
from redelivery.testing.conformance.poisoning import check_copy, is_native

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Expiry"]

TTL = 0.5


def with_time_enough(bench: Bench, test: Callable[[Bench, float], bool]) -> None:
    """Run a test with a short time to live, and again with a long one if its message expired at the broker."""
    if not test(bench, TTL):
        # On a machine that stands still the short time may be over before the message has arrived.
        with Bench(bench.broker, "expiry") as again:
            assert test(again, 10 * TTL), "the message has not come"


class Expiry(Suite):
    """Expired messages are never dispatched and never counted; they are dead-lettered or dropped."""

    @pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "non_persistent"])
    @pytest.mark.parametrize("process", [True, False], ids=["process", "drop"])
    def test_an_expired_message_is_never_dispatched(
        self, bench: Bench, *, process: bool, persistent: bool
    ) -> None:
        """A message that expires here undispatched is dead-lettered with cause `expired`, or dropped."""
        with_time_enough(
            bench, lambda own, ttl: self._undispatched(own, ttl, process=process, persistent=persistent)
        )

    def _undispatched(self, bench: Bench, ttl: float, *, process: bool, persistent: bool) -> bool:
        connection = bench.connect(redelivery__processExpired=process)
        consumer = connection.consumer(bench.queue)
        bench.post(connection, "late", ttl=ttl, persistent=persistent)
        persistent = persistent or not bench.broker.persistence
        bench.post(connection, "fine")
        if not bench.perhaps(lambda: bench.arrived(connection) >= 2, ttl):
            return False
        bench.pass_time(ttl + 0.05)
        message = bench.pull(consumer)
        assert (message.text, message.accept()) == ("fine", True)
        bench.nothing(consumer)
        if process:
            (letter,) = bench.buried(connection, 1)
            assert (letter.text, letter.persistent) == ("late", True)
            if not is_native("auto", bench.capabilities, persistent=persistent):
                check_copy(letter, bench.queue, cause="expired", count=0, persistent=persistent)
        assert bench.left() == []
        assert len(bench.letters()) == process
        assert connection.report() == redelivery.Report(accepted=1, poisoned=process, discarded=not process)
        return True

    def test_what_expires_while_it_waits_for_its_redelivery(self, bench: Bench) -> None:
        """A parked message that expires is not handled again.

        Its dead letter has the failure that was charged.
        """
        with_time_enough(bench, self._parked)

    def _parked(self, bench: Bench, ttl: float) -> bool:
        policy = redelivery.RedeliveryPolicy(initial_redelivery_delay=ttl + 0.1)
        connection = bench.connect(policy, redelivery__deadLetter="forward")
        consumer = connection.consumer(bench.queue)
        bench.post(connection, "late", ttl=ttl)
        message = consumer.receive(timeout=ttl)
        if message is None:
            return False
        message.fail("no")
        assert consumer.receive(timeout=ttl + 0.3) is None
        (letter,) = bench.buried(connection, 1)
        check_copy(letter, bench.queue, cause="expired", count=1)
        assert bench.left() == []
        return True
