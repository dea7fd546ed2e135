"""End of a consumer: running handlers finish, the other messages are released unchanged."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import redelivery
from redelivery.testing.conformance.bench import PATIENCE, Suite

if TYPE_CHECKING:
    from redelivery import Message
    from redelivery.testing.conformance.bench import Bench

__all__ = ["Draining"]


class Draining(Suite):
    """`drain`, and closing."""

    def check_the_rest(self, bench: Bench, bodies: list[str]) -> None:
        """Check that another consumer gets these messages only, each with its full number of deliveries."""
        connection = bench.connect()
        consumer = connection.consumer(bench.queue)
        counts: Counter[str] = Counter()
        for _ in range(3 * len(bodies)):
            message = bench.pull(consumer)
            counts[message.text] += 1
            assert message.delivery_count == counts[message.text], message.text
            message.fail("no")
        bench.nothing(consumer)
        assert counts == dict.fromkeys(bodies, 3)
        letters = bench.buried(connection, len(bodies))
        assert sorted(letter.text for letter in letters) == sorted(bodies)
        assert bench.left() == []

    def test_running_handlers_finish_and_the_rest_goes_back(self, bench: Bench) -> None:
        """A drain waits for the running handler, whose message is acknowledged.

        Prefetched messages are released; their delivery count does not change.
        """
        begun, ended = list[str](), list[bool]()

        def handle(message: Message) -> None:
            begun.append(message.text)
            # In real time, as a drain waits.
            ended.append(bench.really(lambda: connection.report().released >= 4))

        connection = bench.connect()
        for number in range(5):
            bench.post(connection, str(number))
        connection.listen(bench.queue, handle, credit=5)
        connection.start()
        bench.prefetched(connection, 5)
        bench.eventually(lambda: begun, "one runs")
        report = connection.drain(2 * PATIENCE)
        assert ended == [True], "it waits for the handler, which sees that the others are given back"
        # RabbitMQ 4.0 sends them again on the link that gave them back, beyond its credit: they are given back again.
        assert report == redelivery.Report(accepted=1, released=max(4, report.released))
        assert begun == ["0"]
        bench.leave()
        self.check_the_rest(bench, ["1", "2", "3", "4"])

    def test_what_is_in_hand_can_be_settled_after_draining(self, bench: Bench) -> None:
        """A message that was pulled before the drain can be acknowledged after it.

        A parked message is released, with its charge.
        """
        connection = bench.connect(redelivery.RedeliveryPolicy(initial_redelivery_delay=600))
        for body in ("parked", "held", "fresh"):
            bench.post(connection, body)
        consumer = connection.consumer(bench.queue)
        bench.pull(consumer).fail("no")
        held = bench.pull(consumer)
        bench.prefetched(connection, 3)
        assert connection.drain(0) == redelivery.Report(redelivered=1, released=2, running=1)
        assert consumer.receive(timeout=0) is None
        assert (held.text, held.accept()) == ("held", True)
        assert connection.drain(5) == redelivery.Report(accepted=1, redelivered=1, released=2)
        bench.leave()
        self.check_the_rest(bench, ["parked", "fresh"])

    def test_closing_gives_back_what_is_held(self, bench: Bench) -> None:
        """The messages of a consumer that closes go to the next one, with their counts.

        A late result is stale.
        """
        for number in range(5):
            bench.send(str(number))
        policy = redelivery.RedeliveryPolicy(maximum_redeliveries=1, initial_redelivery_delay=1)
        connection = bench.connect(policy)
        first = connection.consumer(bench.queue)
        assert bench.pull(first).accept() is True
        bench.pull(first).fail("no")
        held = bench.pull(first)
        first.close()
        assert held.accept() is False
        second = connection.consumer(bench.queue)
        messages = [bench.pull(second) for _ in range(4)]
        assert sorted(message.text for message in messages) == ["1", "2", "3", "4"]
        for message in messages:
            assert message.delivery_count == (2 if message.text == "1" else 1), message.text
            message.fail("no") if message.text == "1" else message.accept()
        assert [letter.text for letter in bench.buried(connection, 1)] == ["1"]
        report = connection.report()
        assert (report.accepted, report.poisoned, report.stale) == (4, 1, 1)
        assert bench.left() == []
