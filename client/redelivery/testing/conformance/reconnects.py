"""Cut connections: no message is lost, none is charged, counts and due times stay."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

import redelivery
from redelivery.testing.conformance.bench import GIVEN_AGAIN, PATIENCE, QUIET, Suite
from redelivery.testing.conformance.poisoning import is_native

if TYPE_CHECKING:
    from redelivery import Connection, Consumer, Message
    from redelivery.testing.conformance.bench import Bench

__all__ = ["Reconnects"]

SLOW = redelivery.RedeliveryPolicy(maximum_redeliveries=2, initial_redelivery_delay=0.3, redelivery_delay=0.3)
PREFETCHED = 100
# The test makes MAXIMUM + 5 cuts: fewer than the 10 deliveries after which Artemis dead-letters a message by itself.
MAXIMUM = 2


def cut_while_running(bench: Bench) -> tuple[Connection, Consumer, Message]:
    """Return a message whose connection was cut while its handler ran.

    Its redelivery has arrived and waits for the end of the handler.
    """
    bench.send("first")
    connection = bench.connect()
    consumer = connection.consumer(bench.queue)
    message = bench.pull(consumer)
    bench.cut(connection)
    # The broker redelivers the first message before this one.
    bench.send("second")
    other = bench.pull(consumer)
    assert (other.text, other.accept()) == ("second", True), (
        "a redelivery is not handled while its first handler runs"
    )
    return connection, consumer, message


class Reconnects(Suite):
    """Cuts while messages are parked, running or being settled; one cut, and many."""

    def test_a_cut_while_parked_keeps_count_and_due_time(self, bench: Bench) -> None:
        """A redelivery happens at its due time from before the cut, with its number."""
        bench.send("bad")
        connection = bench.connect(SLOW)
        consumer = connection.consumer(bench.queue)
        message = bench.pull(consumer)
        failed = bench.clock.monotonic()
        message.fail("no")
        bench.cut(connection)
        # A broker may notice late that a connection is gone, and redelivers the message only then.
        bench.prefetched(connection, 2)
        arrived = bench.clock.monotonic() - failed
        again = bench.pull(consumer)
        wait = bench.clock.monotonic() - failed
        assert (again.text, again.delivery_count, again.redelivered) == ("bad", 2, True)
        assert 0.3 - 1e-6 <= wait <= max(0.3, arrived) + bench.broker.late
        assert again.accept() is True
        bench.nothing(consumer)
        assert bench.left() == []
        assert connection.report() == redelivery.Report(accepted=1, redelivered=1)

    def test_a_cut_while_running_and_a_success(self, bench: Bench) -> None:
        """A success after the cut is stale; the redelivery is acknowledged without being handled."""
        connection, consumer, message = cut_while_running(bench)
        assert message.accept() is False
        assert message.outcome == "stale"
        bench.eventually(lambda: connection.report().deduplicated, "the copy is accepted")
        bench.nothing(consumer)
        assert connection.report() == redelivery.Report(accepted=1, stale=1, deduplicated=1)
        assert bench.left() == []
        assert bench.letters() == []

    def test_a_cut_while_running_and_a_failure(self, bench: Bench) -> None:
        """A failure after the cut is stale, and charged once; the redelivery follows the policy."""
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
        """A poison result after the cut is stale, and kept: the redelivery is dead-lettered unhandled."""
        connection, consumer, message = cut_while_running(bench)
        assert message.poison("no") is False
        bench.eventually(lambda: connection.report().poisoned == 1, "the redelivery is dead-lettered")
        bench.nothing(consumer)
        assert [letter.text for letter in bench.buried(connection, 1)] == ["first"]
        assert connection.report() == redelivery.Report(accepted=1, poisoned=1, stale=1)
        assert bench.left() == []

    def test_a_cut_while_running_and_a_release(self, bench: Bench) -> None:
        """A release after the cut is stale; the redelivery is released, and is still on the queue."""
        connection, _, message = cut_while_running(bench)
        assert message.release() is False
        assert connection.report().stale == 1
        left = bench.eventually(bench.left, "it is on its queue again")
        assert [found.text for found in left] == ["first"]

    def test_cuts_between_failures_leave_the_limit_as_it_is(self, bench: Bench) -> None:
        """A message has N + 1 deliveries, numbered from 1, although each is followed by a cut."""
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
        """Every message is acknowledged.

        One that the next connection brings with the redelivered flag is not handled again.
        """
        bodies = [str(number) for number in range(12)]
        for body in bodies:
            bench.send(body)
        connection = bench.connect()
        consumer = connection.consumer(bench.queue)
        accepted: Counter[str] = Counter()
        # Number of the connection over which a message arrived that was accepted.
        over: dict[str, int] = {}

        def accept_all(quiet: float) -> bool:
            """Accept messages until none arrives; return True if one did."""
            before = accepted.total()
            while (message := consumer.receive(timeout=quiet)) is not None:
                number = bench.connection_number(message)
                # Later the flag proves nothing: the next connection may have brought the message without it, or may not
                # have lasted until then. It is handled again.
                assert not (message.redelivered and number - 1 == over.get(message.text)), "it need not run"
                # The broker may count deliveries that never arrived here.
                assert message.delivery_count == 1 or message.broker_count
                # The result may be stale: then the redelivery is acknowledged unhandled, or is handled again.
                message.accept()
                accepted[message.text] += 1
                over[message.text] = number
                if accepted.total() in (3, 6, 9):
                    bench.broker.cut()
            return accepted.total() > before

        bench.eventually(lambda: not accept_all(2 * QUIET) and set(accepted) == set(bodies))
        # The broker redelivers messages that were acknowledged over a dead connection. They are acknowledged here, with
        # or without being handled.
        bench.eventually(lambda: connection.connected and not accept_all(GIVEN_AGAIN))
        assert bench.left() == []
        assert bench.letters() == []

    def test_cuts_while_poisoning_keep_each_verdict(self, bench: Bench) -> None:
        """Each poison message has its dead letter, and none is handled again.

        If copy and acknowledgement are not one transaction, a dead letter may be there twice.
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
        # A broker may notice late that a connection is gone, and redelivers the message only then.
        bench.eventually(
            lambda: {letter.text for letter in bench.letters()} == set(bodies), "all dead letters"
        )
        # It may have sent one again whose acknowledgement was lost, or not: no event shows that all have arrived.
        bench.nothing(consumer, GIVEN_AGAIN)
        bench.eventually(lambda: not bench.unsettled(connection), "all are confirmed")
        assert bench.left() == []
        letters = Counter(letter.text for letter in bench.letters())
        assert set(letters) == set(bodies)
        if bench.capabilities.forward == "atomic":
            assert set(letters.values()) == {1}

    def test_a_lost_acknowledgement_is_repeated_and_not_the_handling(self, bench: Bench) -> None:
        """A message whose acknowledgement was lost is acknowledged again, and not handled again.

        This needs the broker's redelivered flag on the redelivery.
        """
        bench.send("done")
        connection = bench.connect()
        consumer = connection.consumer(bench.queue)
        message = bench.pull(consumer)
        bench.broker.stall("to_broker")
        assert message.accept() is True
        bench.cut(connection)
        if "marks" not in bench.broker.features:
            # Without the redelivered flag it may be another message with the same id: it is handled again. (Artemis
            # sets the flag at times, over AMQP.)
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
        """A message whose poison acknowledgement was lost is dead-lettered, and not handled again."""
        bench.send("bad", persistent=persistent)
        connection = bench.connect()
        consumer = connection.consumer(bench.queue)
        message = bench.pull(consumer)
        bench.broker.stall("to_broker")
        assert message.poison("no") is True
        bench.cut(connection)
        bench.prefetched(connection, 2)
        bench.nothing(consumer)
        assert [letter.text for letter in bench.buried(connection, 1)] == ["bad"]
        assert bench.left() == []

    @pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "non_persistent"])
    def test_a_lost_confirmation_of_poison(self, bench: Bench, *, persistent: bool) -> None:
        """A poison message whose confirmation was lost has one dead letter, and is not handled again.

        This holds whether or not the broker carried it out. If copy and acknowledgement are not one
        transaction, the dead letter may be there twice.
        """
        bench.send("bad", persistent=persistent)
        connection = bench.connect()
        consumer = connection.consumer(bench.queue)
        message = bench.pull(consumer)
        bench.broker.stall("to_client")
        assert message.poison("no") is True
        # Some protocols need an answer before they dead-letter.
        bench.perhaps(bench.letters)
        bench.cut(connection)
        bench.eventually(bench.letters, "the dead letter is there")
        if bench.capabilities.forward == "confirmed" and not is_native(
            "auto", bench.capabilities, persistent=persistent
        ):
            # Only the confirmation of the copy lets it be acknowledged: it is redelivered.
            bench.eventually(lambda: connection.report().poisoned == 1, "the redelivery is dead-lettered")
        bench.nothing(consumer)
        bench.eventually(lambda: not bench.unsettled(connection), "nothing is in doubt")
        assert bench.left() == []
        letters = [letter.text for letter in bench.letters()]
        assert letters == ["bad"] or (bench.capabilities.forward == "confirmed" and letters == ["bad", "bad"])

    def test_a_lost_confirmation_of_a_send(self, bench: Bench) -> None:
        """`send` raises TransportError after a cut: the message may be there, but not twice."""
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
        texts = [found.text for found in bench.left(at_least=2)]
        assert texts in (["before", "perhaps", "after"], ["before", "after"])

    def test_many_cuts_cost_no_prefetched_message_a_delivery(self, bench: Bench) -> None:
        """Prefetched messages are neither charged nor dead-lettered by cuts.

        There are more cuts than redeliveries.
        """
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
