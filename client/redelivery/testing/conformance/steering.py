"""Results that an application can choose: poison, discard, defer, release; each message once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import redelivery
from redelivery.testing.conformance.bench import Suite
from redelivery.testing.conformance.poisoning import check_copy, is_native

if TYPE_CHECKING:
    from redelivery.testing.conformance.bench import Bench

__all__ = ["Steering"]


class Steering(Suite):
    """Results other than success and failure."""

    def test_poison_at_the_first_delivery(self, bench: Bench) -> None:
        """`raise Poison` dead-letters the message now, even if its policy has redeliveries left."""
        bench.send("bad")
        connection = bench.connect()
        with bench.pull(connection.consumer(bench.queue)) as message:
            raise redelivery.Poison("no such order")
        assert message.outcome == "poisoned"
        (letter,) = bench.buried(connection, 1)
        assert letter.text == "bad"
        if not is_native("auto", bench.capabilities, persistent=True):
            check_copy(letter, bench.queue, cause="Poison: no such order", count=1)
        assert bench.left() == []
        assert connection.report() == redelivery.Report(poisoned=1)

    def test_discard_drops(self, bench: Bench) -> None:
        """`raise Discard` acknowledges and counts as discarded: no dead letter, no redelivery."""
        bench.send("old")
        connection = bench.connect()
        consumer = connection.consumer(bench.queue)
        with bench.pull(consumer) as message:
            raise redelivery.Discard("done already")
        assert message.outcome == "discarded"
        bench.nothing(consumer)
        assert bench.left() == []
        assert bench.letters() == []
        assert connection.report() == redelivery.Report(discarded=1)

    def test_defer_is_later_and_not_charged(self, bench: Bench) -> None:
        """A deferred message is redelivered after its delay with the same count.

        Past the maximum of deferrals, a deferral is a failure.
        """
        bench.send("later")
        connection = bench.connect(redelivery__maximumDeferrals=2)
        consumer = connection.consumer(bench.queue)
        seen: list[tuple[int, str | None]] = []
        # Read before the deferral: on a busy machine time passes between it and the next line.
        deferred = 0.0
        for _ in range(4):
            message = bench.pull(consumer)
            if len(seen) in (1, 2):
                assert 0.1 - 1e-6 <= bench.clock.monotonic() - deferred <= 0.1 + bench.broker.late
            deferred = bench.clock.monotonic()
            with message:
                raise redelivery.Defer(0.1)
            seen.append((message.delivery_count, message.outcome))
        assert seen == [(1, "deferred"), (1, "deferred"), (1, "redelivered"), (2, "redelivered")]
        assert bench.pull(consumer).accept() is True
        assert bench.left() == []

    @pytest.mark.parametrize("how", ["release", "interrupt"])
    def test_a_released_message_is_not_charged(self, bench: Bench, how: str) -> None:
        """A released message is redelivered with the same count.

        This happens at once if the broker takes it back, otherwise when its consumer ends.
        """
        bench.send("spare")
        connection = bench.connect()
        consumer = connection.consumer(bench.queue)
        message = bench.pull(consumer)
        message.fail("charged once")
        message = bench.pull(consumer)
        if how == "release":
            assert message.release() is True
        else:
            with pytest.raises(KeyboardInterrupt), message:
                raise KeyboardInterrupt
        assert message.outcome == "released"
        if not bench.capabilities.release:
            bench.nothing(consumer)
            consumer.close()
            consumer = connection.consumer(bench.queue)
        message = bench.pull(consumer)
        assert (message.delivery_count, message.accept()) == (2, True)
        assert bench.left() == []

    def test_a_message_is_settled_once(self, bench: Bench) -> None:
        """A second settlement raises AlreadySettled, and changes nothing."""
        bench.send("one")
        connection = bench.connect()
        consumer = connection.consumer(bench.queue)
        message = bench.pull(consumer)
        message.accept()
        for settle in (message.accept, message.fail, message.poison, message.release):
            with pytest.raises(redelivery.AlreadySettled):
                settle()
        bench.nothing(consumer)
        assert connection.report() == redelivery.Report(accepted=1)
        assert bench.left() == []
        assert bench.letters() == []
