"""Links that are cut: nothing is lost, nothing is charged, counts and due times are kept."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

import redelivery
from redelivery.testing.conformance.bench import GIVEN_AGAIN, PATIENCE, QUIET, Suite

if TYPE_CHECKING:
    from redelivery import Connection, Consumer, Message
    from redelivery.testing.conformance.bench import Bench

__all__ = ["Reconnects"]

SLOW = redelivery.RedeliveryPolicy(maximum_redeliveries=2, initial_redelivery_delay=0.3, redelivery_delay=0.3)
PREFETCHED = 100
# Cuts are MAXIMUM + 5: fewer than the 10 after which Artemis gives a message up by itself.
MAXIMUM = 2


def cut_while_running(bench: Bench) -> tuple[Connection, Consumer, Message]:
    """Return a message whose link is cut while its handler runs, and whose copy has come and waits."""
    bench.send("first")
    connection = bench.connect()
    consumer = connection.consumer(bench.queue)
    message = bench.pull(consumer)
    bench.cut(connection)
    # What the broker took back comes before what is sent now.
    bench.send("second")
    other = bench.pull(consumer)
    assert (other.text, other.accept()) == ("second", True), "a copy does not run beside its handler"
    return connection, consumer, message


class Reconnects(Suite):
    """Cut while parked, while running, while settling, and again and again."""

    def test_a_cut_while_parked_keeps_count_and_due_time(self, bench: Bench) -> None:
        """The redelivery comes when it was due before the cut, with its number."""
        bench.send("bad")
        connection = bench.connect(SLOW)
        consumer = connection.consumer(bench.queue)
        message = bench.pull(consumer)
        failed = bench.clock.monotonic()
        message.fail("no")
        bench.cut(connection)
        again = bench.pull(consumer)
        wait = bench.clock.monotonic() - failed
        assert (again.text, again.delivery_count, again.redelivered) == ("bad", 2, True)
        assert 0.3 - 1e-6 <= wait <= 0.3 + bench.broker.late
        assert again.accept() is True
        bench.nothing(consumer)
        assert bench.left() == []
        assert connection.report() == redelivery.Report(accepted=1, redelivered=1)

    def test_a_cut_while_running_and_a_success(self, bench: Bench) -> None:
        """The late success is stale; the copy is accepted without running again."""
        connection, consumer, message = cut_while_running(bench)
        assert message.accept() is False
        assert message.outcome == "stale"
        bench.eventually(lambda: connection.report().deduplicated, "the copy is accepted")
        bench.nothing(consumer)
        assert connection.report() == redelivery.Report(accepted=1, stale=1, deduplicated=1)
        assert bench.left() == []
        assert bench.letters() == []

    def test_a_cut_while_running_and_a_failure(self, bench: Bench) -> None:
        """The late failure is stale, and charged once; the copy goes on by the policy."""
        connection, consumer, message = cut_while_running(bench)
        assert message.fail("no") is False
        for count in (2, 3):
            again = bench.pull(consumer)
            assert (again.text, again.delivery_count) == ("first", count)
            again.fail("no")
        bench.nothing(consumer)
        assert [letter.text for letter in bench.buried(connection, 1)] == ["first"]
        assert connection.report().stale == 1
        assert bench.left() == []

    def test_a_cut_while_running_and_poison(self, bench: Bench) -> None:
        """The late verdict is stale, and kept: the copy is dead-lettered without running."""
        connection, consumer, message = cut_while_running(bench)
        assert message.poison("no") is False
        bench.nothing(consumer)
        assert [letter.text for letter in bench.buried(connection, 1)] == ["first"]
        assert connection.report() == redelivery.Report(accepted=1, poisoned=1, stale=1)
        assert bench.left() == []

    def test_a_cut_while_running_and_a_release(self, bench: Bench) -> None:
        """The late release is stale; the copy is given back, and is still there."""
        connection, _, message = cut_while_running(bench)
        assert message.release() is False
        assert connection.report().stale == 1
        left = bench.eventually(bench.left, "it is on its queue again")
        assert [found.text for found in left] == ["first"]

    def test_cuts_between_failures_leave_the_limit_as_it_is(self, bench: Bench) -> None:
        """N + 1 deliveries, numbered from 1, with a cut after each."""
        bench.send("bad")
        connection = bench.connect()
        consumer = connection.consumer(bench.queue)
        for count in (1, 2, 3):
            message = bench.pull(consumer)
            assert message.delivery_count == count
            message.fail("no")
            if count < 3:
                bench.cut(connection)
        bench.nothing(consumer)
        assert len(bench.buried(connection, 1)) == 1
        assert bench.left() == []

    def test_cuts_while_settling_lose_nothing(self, bench: Bench) -> None:
        """Every message is accepted; one that comes again after that came without the broker's mark."""
        bodies = [str(number) for number in range(12)]
        for body in bodies:
            bench.send(body)
        connection = bench.connect()
        consumer = connection.consumer(bench.queue)
        accepted: Counter[str] = Counter()

        def accept_all(quiet: float) -> bool:
            """Accept what comes until nothing does; return whether something came."""
            before = accepted.total()
            while (message := consumer.receive(timeout=quiet)) is not None:
                assert not (accepted[message.text] and message.redelivered), "it is known, and need not run"
                # The broker may count what was on its way and was never seen here.
                assert message.delivery_count == 1 or message.broker_count
                # Or is accepted too late: then its copy is accepted unseen, or is handled again.
                message.accept()
                accepted[message.text] += 1
                if accepted.total() in (3, 6, 9):
                    bench.broker.cut()
            return accepted.total() > before

        bench.eventually(lambda: not accept_all(2 * QUIET) and set(accepted) == set(bodies))
        # The broker redelivers what was accepted over a dead link. It is accepted here, or unseen.
        bench.eventually(lambda: connection.connected and not accept_all(GIVEN_AGAIN))
        assert bench.left() == []
        assert bench.letters() == []

    def test_cuts_while_poisoning_keep_each_verdict(self, bench: Bench) -> None:
        """Each message has its dead letter, none is handled again.

        Where the copy is not in one transaction with its original's acknowledgement, it may be there twice.
        """
        bodies = ["1", "2", "3", "4"]
        connection = bench.connect()
        consumer = connection.consumer(bench.queue)
        for body in bodies:
            bench.post(connection, body, persistent=body in "12")
            message = bench.pull(consumer)
            assert message.text == body
            message.poison("no")
            bench.cut(connection)
        # A broker may notice late that a link is gone, and give the message again only then.
        bench.eventually(
            lambda: {letter.text for letter in bench.letters()} == set(bodies), "all dead letters"
        )
        bench.nothing(consumer)
        bench.eventually(lambda: not bench.unsettled(connection), "all are confirmed")
        assert bench.left() == []
        letters = Counter(letter.text for letter in bench.letters())
        assert set(letters) == set(bodies)
        if bench.capabilities.forward == "atomic":
            assert set(letters.values()) == {1}

    def test_a_lost_acknowledgement_is_repeated_and_not_the_handling(self, bench: Bench) -> None:
        """A message was accepted, the broker never heard of it: the copy, if it is marked, is accepted unseen."""
        bench.send("done")
        connection = bench.connect()
        consumer = connection.consumer(bench.queue)
        message = bench.pull(consumer)
        bench.broker.stall("to_broker")
        assert message.accept() is True
        bench.cut(connection)
        if "marks" not in bench.broker.features:
            # Without a mark nobody can tell the copy from another message with the same id: it is handled again.
            # (Artemis marks it at times, over AMQP.)
            bench.eventually(lambda: self._accepted_again(consumer, connection), "the copy is accepted")
            assert bench.left() == []
            return
        bench.eventually(lambda: connection.report().deduplicated, "the copy is accepted")
        bench.nothing(consumer)
        assert connection.report() == redelivery.Report(accepted=1, deduplicated=1)
        assert bench.left() == []

    def _accepted_again(self, consumer: redelivery.Consumer, connection: redelivery.Connection) -> bool:
        copy = consumer.receive(timeout=QUIET)
        return (copy is not None and copy.accept()) or connection.report().deduplicated == 1

    @pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "non_persistent"])
    def test_a_lost_poison_acknowledgement_is_repeated(self, bench: Bench, *, persistent: bool) -> None:
        """The broker never heard of it: the verdict stands, the message is not handled again."""
        bench.send("bad", persistent=persistent)
        connection = bench.connect()
        consumer = connection.consumer(bench.queue)
        message = bench.pull(consumer)
        bench.broker.stall("to_broker")
        assert message.poison("no") is True
        bench.cut(connection)
        bench.nothing(consumer)
        assert [letter.text for letter in bench.buried(connection, 1)] == ["bad"]
        assert bench.left() == []

    @pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "non_persistent"])
    def test_a_lost_confirmation_of_poison(self, bench: Bench, *, persistent: bool) -> None:
        """Whether or not the broker got so far without answers: one dead letter, no handling again, nothing left.

        Where the copy is not in one transaction with its original's acknowledgement, it may be there twice.
        """
        bench.send("bad", persistent=persistent)
        connection = bench.connect()
        consumer = connection.consumer(bench.queue)
        message = bench.pull(consumer)
        bench.broker.stall("to_client")
        assert message.poison("no") is True
        # Some protocols need an answer on the way.
        bench.perhaps(bench.letters)
        bench.cut(connection)
        bench.eventually(bench.letters, "the dead letter is there")
        bench.nothing(consumer)
        bench.eventually(lambda: not bench.unsettled(connection), "nothing is in doubt")
        assert bench.left() == []
        letters = [letter.text for letter in bench.letters()]
        assert letters == ["bad"] or (bench.capabilities.forward == "confirmed" and letters == ["bad", "bad"])

    def test_a_lost_confirmation_of_a_send(self, bench: Bench) -> None:
        """`send` raises TransportError when the link is cut: the message may be there, but not twice."""
        connection = bench.connect()
        bench.post(connection, "before")
        bench.broker.stall("to_client")
        sending = bench.beside(lambda: bench.post(connection, "perhaps", timeout=PATIENCE))
        bench.perhaps(lambda: len(bench.found()) == 2)
        assert not sending.done(), "without a confirmation it is not sent"
        assert bench.broker.cut() >= 1
        with pytest.raises(redelivery.TransportError):
            sending.result(PATIENCE)
        bench.post(connection, "after")
        texts = [found.text for found in bench.left()]
        assert texts in (["before", "perhaps", "after"], ["before", "after"])

    def test_many_cuts_cost_no_prefetched_message_a_delivery(self, bench: Bench) -> None:
        """More cuts than redeliveries while messages wait here unseen: none is dead-lettered, none is charged."""
        connection = bench.connect(redelivery.RedeliveryPolicy(maximum_redeliveries=MAXIMUM))
        for number in range(PREFETCHED):
            bench.post(connection, str(number), persistent=False)
        consumer = connection.consumer(bench.queue, credit=PREFETCHED)
        seen = 0
        for _ in range(MAXIMUM + 5):
            seen += PREFETCHED
            bench.prefetched(connection, seen)
            bench.cut(connection)
        counts: Counter[str] = Counter()
        while len(counts) < PREFETCHED:
            message = bench.pull(consumer)
            counts[message.text] += 1
            assert message.delivery_count == 1
            message.accept()
        bench.nothing(consumer)
        assert counts == dict.fromkeys(map(str, range(PREFETCHED)), 1)
        assert bench.left() == []
        assert bench.letters() == []
