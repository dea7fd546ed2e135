"""Redelivery by the broker, which keeps a failed message as a copy with the charged count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import redelivery
from redelivery.testing.conformance.bench import QUIET, Suite, as_text, refused
from redelivery.testing.conformance.sending import BROKERS_OWN

if TYPE_CHECKING:
    from redelivery import Connection, Message
    from redelivery.testing.conformance.bench import Bench

__all__ = ["Scheduled"]

DELAY = 0.4
POLICY = redelivery.RedeliveryPolicy(
    maximum_redeliveries=2, initial_redelivery_delay=DELAY, redelivery_delay=DELAY
)
BODY = b"\x00whole\xff"


def able(bench: Bench) -> bool:
    """True if the broker can delay a message, or a copy.

    If not, check that a consumer that needs it is refused.
    """
    if bench.capabilities.reschedule == "none":
        connection = connect(bench)
        refused(lambda: connection.consumer(bench.queue), "redelivery.scheduler", bench.capabilities.broker)
        return False
    if not bench.broker.holds_back:
        connection = connect(bench)
        with pytest.raises(
            redelivery.AdapterError, match=r"redelivery\.scheduler=broker: .* holds no message back"
        ):
            connection.consumer(bench.queue)
        return False
    return True


def connect(bench: Bench, **options: object) -> Connection:
    """Return a connection whose broker keeps messages until their redelivery."""
    return bench.connect(POLICY, redelivery__scheduler="broker", **options)


def charged(bench: Bench, connection: Connection, message: Message, cause: str = "no") -> None:
    """Fail the message, and wait until the broker has its copy."""
    message.fail(cause)
    bench.eventually(lambda: not bench.unsettled(connection), "the broker has the copy")


class Scheduled(Suite):
    """`redelivery.scheduler=broker`."""

    def test_the_broker_holds_what_waits_for_its_redelivery(self, bench: Bench) -> None:
        """No message is parked here; each copy arrives when it is due.

        The dead letter is that of the first message.
        """
        if not able(bench):
            return
        connection = connect(bench)
        consumer = connection.consumer(bench.queue)
        bench.post(connection, BODY, headers={"word": "a: b", "number": 7}, priority=8, correlation_id="c: 1")
        message = first = bench.pull(consumer)
        for count in (1, 2):
            failed = bench.clock.monotonic()
            charged(bench, connection, message, f"cause {count}")
            assert (message.outcome, consumer.parked) == ("redelivered", 0)
            message = bench.pull(consumer)
            waited = bench.clock.monotonic() - failed
            assert DELAY - 0.01 <= waited <= DELAY + BROKERS_OWN + bench.broker.late
            assert (message.redelivery_count, message.redelivered, message.body) == (count, True, BODY)
            assert (message.headers["word"], as_text(message.headers["number"])) == ("a: b", "7")
            assert (message.priority, message.correlation_id, message.persistent) == (8, "c: 1", True)
        assert message.first_seen is not None
        message.fail("the last")
        assert message.outcome == "poisoned"
        (letter,) = bench.buried(connection, 1)
        told = letter.headers
        assert (letter.body, letter.priority, letter.correlation_id) == (BODY, 8, "c: 1")
        assert (told["redeliveryCount"], told["redeliveryCause"]) == ("3", "the last")
        assert told["redeliveryOriginalId"] == first.message_id
        assert told["redeliveryOriginalDestination"] == f"queue://{bench.queue}"
        assert told["redeliveryFirstFailure"] < told["redeliveryLastFailure"]
        assert "redeliveryCopy" not in told
        assert bench.left() == []

    def test_a_count_outlives_its_connection(self, bench: Bench) -> None:
        """A count outlives its connection: the broker keeps it, and the delay.

        Any consumer that gets the due copy continues the count.
        """
        if not able(bench):
            return
        bench.send("orphan")
        for count in (0, 1, 2):
            bench.leave()
            connection = connect(bench)
            message = bench.pull(connection.consumer(bench.queue))
            assert (message.redelivery_count, message.text) == (count, "orphan")
            charged(bench, connection, message)
        assert [letter.headers["redeliveryCount"] for letter in bench.buried(connection, 1)] == ["3"]
        assert bench.left() == []

    def test_nobody_can_have_a_message_poisoned_unseen(self, bench: Bench) -> None:
        """A producer's own count is used up to the maximum; nonsense is ignored."""
        if not able(bench):
            return
        mark = {"redeliveryCopy": f"mine@queue://{bench.queue}", "redeliveryCause": "forged"}
        counts = {"99999999999": 2, "-3": 0, "many": 0, "1": 1}
        for count in counts:
            bench.send(count, headers={**mark, "redeliveryCount": count})
        bench.send("unmarked", headers={"redeliveryCount": "2"})
        connection = connect(bench)
        found = bench.pull_all(connection.consumer(bench.queue), at_least=len(counts) + 1)
        assert {message.text: message.redelivery_count for message in found} == {**counts, "unmarked": 0}
        for message in found:
            message.accept()
        assert bench.left() == []
        assert bench.letters() == []

    def test_a_cut_before_the_answer_loses_nothing(self, bench: Bench) -> None:
        """A message that was charged before a cut is redelivered with its charge.

        It is there twice at most, and only if copy and acknowledgement are not one transaction.
        """
        if not able(bench):
            return
        connection = connect(bench)
        consumer = connection.consumer(bench.queue)
        bench.post(connection, "once more")
        message = bench.pull(consumer)
        bench.broker.stall("to_client")
        message.fail("no")
        bench.pass_time(QUIET)
        bench.cut(connection)
        bench.eventually(lambda: not bench.unsettled(connection), "the broker has the copy")
        found = bench.pull_all(consumer, quiet=DELAY + BROKERS_OWN, at_least=1)
        assert {(one.text, one.redelivery_count) for one in found} == {("once more", 1)}
        assert len(found) <= (2 if bench.capabilities.reschedule == "confirmed" else 1)
        for one in found:
            assert one.accept() is True
        assert bench.left() == []
        assert bench.letters() == []

    def test_a_deferral_waits_there_too(self, bench: Bench) -> None:
        """The broker also keeps deferred messages, uncharged.

        Past `redelivery.maximumDeferrals` a deferral is a failure.
        """
        if not able(bench):
            return
        bench.send("later")
        connection = connect(bench, redelivery__maximumDeferrals=1)
        consumer = connection.consumer(bench.queue)
        for count, outcome in ((0, "deferred"), (0, "redelivered"), (1, "accepted")):
            message = bench.pull(consumer)
            with message:
                assert message.redelivery_count == count
                if not count:
                    raise redelivery.Defer(DELAY)
            assert message.outcome == outcome
            bench.eventually(lambda: not bench.unsettled(connection), "the broker has the copy")
            assert consumer.parked == 0
        assert bench.left() == []
