"""Delivery counts: from 1 to N + 1, raised by failures only, independent of the broker's count."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import redelivery
from redelivery.adapter import Opening
from redelivery.registry import adapter_for
from redelivery.testing.conformance.bench import Suite, refused

if TYPE_CHECKING:
    from redelivery import Message
    from redelivery.testing.conformance.bench import Bench

__all__ = ["Counts"]

ONE = redelivery.RedeliveryPolicy(maximum_redeliveries=1, initial_redelivery_delay=0.05)
ENDLESS = redelivery.RedeliveryPolicy(
    maximum_redeliveries=-1, initial_redelivery_delay=0.01, redelivery_delay=0.01
)


class Counts(Suite):
    """Deliveries that are counted, and those that are not."""

    def test_the_adapter_reports_its_capabilities(self, bench: Bench) -> None:
        """The capabilities that `open` returns are those of this broker over this protocol."""
        settings = redelivery.parse_uri(bench.broker.uri())
        adapter = adapter_for(settings.scheme)
        found = adapter.open(Opening(settings, settings.endpoints[0], 1, bench.clock), lambda _: None)
        adapter.close(5.0)
        assert replace(found, version="") == replace(bench.capabilities, version="")

    def test_each_delivery_is_counted(self, bench: Bench) -> None:
        """N redeliveries are N + 1 deliveries, numbered from 1; then the message is poison."""
        bench.send("bad")
        connection = bench.connect()
        consumer = connection.consumer(bench.queue)
        seen: list[Message] = []
        for _ in range(3):
            seen.append(bench.pull(consumer))
            assert (seen[-1].first_seen is None) == (len(seen) == 1)
            assert seen[-1].fail(ValueError("no")) is True
        bench.nothing(consumer)
        assert [m.delivery_count for m in seen] == [1, 2, 3]
        assert [m.redelivery_count for m in seen] == [0, 1, 2]
        assert [m.redelivered for m in seen] == [False, True, True]
        assert [m.outcome for m in seen] == ["redelivered", "redelivered", "poisoned"]
        assert [m.body for m in seen] == [b"bad"] * 3
        assert {m.destination for m in seen} == {f"queue://{bench.queue}"}
        assert len({m.message_id for m in seen}) == 1, "a redelivery is the same message"
        assert len(bench.buried(connection, 1)) == 1
        assert connection.report() == redelivery.Report(redelivered=2, poisoned=1)
        assert bench.left() == []

    def test_without_a_limit_it_is_never_poison(self, bench: Bench) -> None:
        """A message with `maximum_redeliveries=-1` is redelivered until it succeeds."""
        bench.send("stubborn")
        connection = bench.connect(ENDLESS)
        if bench.capabilities.max_hold is not None:
            refused(lambda: connection.consumer(bench.queue), "holds a message without end")
            return
        consumer = connection.consumer(bench.queue)
        for count in range(1, 9):
            message = bench.pull(consumer)
            assert message.delivery_count == count
            message.fail("not yet")
        assert bench.pull(consumer).accept() is True
        assert bench.left() == []
        assert bench.letters() == []

    @pytest.mark.parametrize("seen", [True, False], ids=["received", "prefetched"])
    def test_what_the_broker_counts_never_poisons_before_a_dispatch(
        self, bench: Bench, *, seen: bool
    ) -> None:
        """A message is always handled once more, even if consumers that went away have used up its redeliveries.

        If the broker sends a count, the message has it, and it raises the delivery count to the maximum at
        most.
        """
        bench.send("bad")
        for _ in range(3):
            leaving = bench.connect(ONE)
            consumer = leaving.consumer(bench.queue)
            if seen:
                bench.pull(consumer)
            bench.prefetched(leaving, 1)
            bench.leave()
        connection = bench.connect(ONE)
        consumer = connection.consumer(bench.queue)
        message = bench.pull(consumer)
        # Over STOMP some queues of RabbitMQ send a count, which has no effect.
        assert message.broker_count is not None or not bench.capabilities.counts
        assert message.delivery_count <= (2 if bench.capabilities.counts else 1)
        for count in range(message.delivery_count, 2):
            message.fail("no")
            message = bench.pull(consumer)
            assert message.delivery_count == count + 1
        message.fail("no")
        bench.nothing(consumer)
        assert len(bench.buried(connection, 1)) == 1
        assert bench.left() == []

    def test_workers_share_the_messages(self, bench: Bench) -> None:
        """Four handlers run at a time: each message succeeds once.

        A message that fails once is delivered twice.
        """
        attempts: Counter[str] = Counter()
        done: Counter[str] = Counter()
        lock = threading.Lock()

        def handle(message: Message) -> None:
            with lock:
                attempts[message.text] += 1
                fails = message.text.startswith("once") and attempts[message.text] == 1
                if not fails:
                    done[message.text] += 1
            if fails:
                raise ValueError("the first time")

        bodies = [f"{'once' if n % 3 == 0 else 'good'}-{n}" for n in range(30)]
        connection = bench.connect()
        for body in bodies:
            bench.post(connection, body)
        connection.listen(bench.queue, handle, workers=4)
        connection.start()
        bench.eventually(lambda: connection.report().accepted == 30)
        report = connection.drain(5)
        assert report == redelivery.Report(accepted=30, redelivered=10)
        assert dict(done) == dict.fromkeys(bodies, 1)
        assert dict(attempts) == {body: 2 if body.startswith("once") else 1 for body in bodies}
        assert bench.left() == []
