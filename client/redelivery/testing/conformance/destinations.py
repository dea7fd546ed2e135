"""Wildcards, topics, durable subscriptions and selectors: supported by the pair, or refused."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import redelivery
from redelivery.testing.conformance.bench import Suite, refused

if TYPE_CHECKING:
    from redelivery.testing.conformance.bench import Bench

__all__ = ["Destinations"]

ONCE_MORE = redelivery.RedeliveryPolicy(maximum_redeliveries=1, initial_redelivery_delay=0.05)


class Destinations(Suite):
    """Destinations that a consumer can consume from."""

    def test_a_wildcard_consumer_uses_each_messages_own_policy(self, bench: Bench) -> None:
        """A consumer of `stem.>` redelivers each message by the policy of the message's own queue.

        Where it gets copies, it is refused without `redelivery.wildcards=address`.
        """
        policies = redelivery.RedeliveryPolicyMap({
            f"{bench.queue}.never": redelivery.RedeliveryPolicy(maximum_redeliveries=0),
            f"{bench.queue}.*": ONCE_MORE,
        })  # fmt: skip
        copies = bench.capabilities.copies_by_wildcard
        connection = bench.connect(policies, **({"redelivery__wildcards": "address"} if copies else {}))
        if copies:
            refused(
                lambda: bench.connect().consumer(f"{bench.queue}.>"),
                bench.queue,
                "redelivery.wildcards=address",
            )
        if "wildcards" not in bench.broker.features:
            refused(lambda: connection.consumer(f"{bench.queue}.>"), bench.queue)
            return
        consumer = connection.consumer(f"{bench.queue}.>")
        for name in ("never", "twice"):
            bench.post(connection, name, f"{bench.queue}.{name}")
        deliveries: Counter[str] = Counter()
        for _ in range(3):
            message = bench.pull(consumer)
            deliveries[message.text] += 1
            assert message.destination == f"queue://{bench.queue}.{message.text}"
            message.fail("no")
        assert deliveries == {"never": 1, "twice": 2}
        letters = bench.buried(connection, 2)
        assert sorted(letter.text for letter in letters) == ["never", "twice"]

    def test_each_consumer_of_a_topic_has_each_message(self, bench: Bench) -> None:
        """A failed message of a topic is redelivered to the consumer that failed, by the topic's policy.

        The other consumer gets it once.
        """
        topic = f"topic://{bench.queue}"
        connection = bench.connect(redelivery.RedeliveryPolicyMap({topic: ONCE_MORE}))
        if "topics" not in bench.broker.features:
            refused(lambda: connection.consumer(topic), bench.queue)
            return
        fails, fine = connection.consumer(topic), connection.consumer(topic)
        for body in ("1", "2"):
            bench.post(connection, body, topic)
        for consumer in (fails, fine):
            first = bench.pull(consumer)
            assert (first.text, first.destination) == ("1", topic)
            (first.fail if consumer is fails else first.accept)()
            # The redelivery may come before the second message: the broker may send that one later.
            others = [bench.pull(consumer) for _ in range(2 if consumer is fails else 1)]
            expected = [("1", 2), ("2", 1)] if consumer is fails else [("2", 1)]
            assert sorted((message.text, message.delivery_count) for message in others) == expected
            assert all(message.accept() for message in others)
        bench.nothing(fine)
        bench.nothing(fails)

    def test_a_durable_subscription_keeps_what_comes_while_away(self, bench: Bench) -> None:
        """A durable subscription keeps the messages that are sent while its consumer is away.

        It needs a client id and a name. Unsettled messages are redelivered, too.
        """
        topic, name = f"topic://{bench.queue}", "conformance"
        options = {"jms__clientID": f"client-{bench.run}"}
        if "durable" not in bench.broker.features:
            connection = bench.connect(**options)
            refused(lambda: connection.consumer(topic, subscription=name), name)
            return
        consumer = bench.connect(**options).consumer(topic, subscription=name)
        sender = bench.connect()
        bench.post(sender, "0", topic)
        assert bench.pull(consumer).accept() is True
        bench.post(sender, "1", topic)
        assert bench.pull(consumer).text == "1"
        bench.leave()
        sender = bench.connect()
        bench.post(sender, "2", topic)
        consumer = bench.connect(**options).consumer(topic, subscription=name)
        for body in ("1", "2"):
            message = bench.pull(consumer)
            assert (message.text, message.accept()) == (body, True)
        bench.nothing(consumer)

    def test_a_selector_picks_messages(self, bench: Bench) -> None:
        """A selector filters messages and redeliveries; the other messages stay on the queue."""
        for body in ("red", "blue", "red"):
            bench.send(body, headers={"colour": body})
        connection = bench.connect(ONCE_MORE)
        selector = "colour = 'red'"
        if "selectors" not in bench.broker.features:
            refused(lambda: connection.consumer(bench.queue, selector=selector), "selector")
            assert [found.text for found in bench.left(at_least=3)] == ["red", "blue", "red"]
            return
        consumer = connection.consumer(bench.queue, selector=selector)
        first = bench.pull(consumer)
        assert (first.text, first.fail("no")) == ("red", True)
        # The redelivery may come before the second message: the broker may send that one later.
        others = [bench.pull(consumer) for _ in range(2)]
        assert sorted((message.text, message.delivery_count) for message in others) == [
            ("red", 1),
            ("red", 2),
        ]
        assert all(message.accept() for message in others)
        bench.nothing(consumer)
        assert [found.text for found in bench.left(at_least=1)] == ["blue"]

    def test_consumers_of_one_connection_have_queues_of_their_own(self, bench: Bench) -> None:
        """Each consumer of a connection gets its own queue's messages and redeliveries.

        Closing one does not affect the other.
        """
        other = f"{bench.queue}.other"
        for queue in (bench.queue, other):
            bench.send(queue, queue)
        connection = bench.connect(ONCE_MORE)
        first, second = connection.consumer(bench.queue), connection.consumer(other)
        for consumer, queue in ((first, bench.queue), (second, other)):
            message = bench.pull(consumer)
            assert (message.text, message.fail("no")) == (queue, True)
        first.close()
        message = bench.pull(second)
        assert (message.text, message.delivery_count, message.accept()) == (other, 2, True)
        bench.send("after", other)
        assert bench.pull(second).accept() is True
        (left,) = bench.eventually(bench.left, "what the closed one held is on its queue again")
        assert left.text == bench.queue
        assert bench.left(other) == []
