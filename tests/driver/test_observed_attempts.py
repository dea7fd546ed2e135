"""Observers and several runs of one message, or a consumer that ends during one, with threads."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from tests.eventually import eventually

import redelivery
from redelivery import RedeliveryPolicy, RedeliveryPolicyMap
from redelivery.events import Finished, Observer

if TYPE_CHECKING:
    from redelivery import Message
    from redelivery.testing import MemoryBroker

AT_ONCE = RedeliveryPolicyMap(default=RedeliveryPolicy(initial_redelivery_delay=0, redelivery_delay=0))


def test_two_runs_of_one_message_are_not_mixed_up(redelivery_broker: MemoryBroker) -> None:
    """A handler that settled its message and still runs has its own result, and so has the failed redelivery."""
    ended: list[Any] = []
    retries: list[str] = []
    go_on = threading.Event()

    class Runs(Observer):
        def started(self, message: Message) -> object:
            return message.delivery_count

        def finished(self, token: Any, result: Finished) -> None:
            ended.append((token, result.outcome, result.cause, result.delivery_count))

    def handle(message: Message) -> None:
        if message.delivery_count == 1:
            message.fail("first")
            assert go_on.wait(60)
        elif message.delivery_count == 2:
            raise ValueError("second")

    with redelivery.connect(redelivery_broker.uri, policies=AT_ONCE, observers=[Runs()]) as connection:
        connection.listen("orders", handle, workers=2, on_retry=lambda _, retry: retries.append(retry.cause))
        redelivery_broker.send("orders", "a")
        connection.start()
        eventually(lambda: len(ended) == 2)
        go_on.set()
        eventually(lambda: len(ended) == 3)
    assert ended == [
        (2, "redelivered", "ValueError: second", 2),
        (3, "accepted", None, 3),
        (1, "redelivered", "first", 1),
    ]
    assert retries == ["ValueError: second", "first"]


def test_a_dead_letter_of_another_run_is_shown_at_once(redelivery_broker: MemoryBroker) -> None:
    """The dead letter of a redelivery is shown at once, while the handler of an earlier delivery still runs."""
    dead: list[str] = []
    go_on = threading.Event()
    once = RedeliveryPolicyMap(
        default=RedeliveryPolicy(initial_redelivery_delay=0, redelivery_delay=0, maximum_redeliveries=1)
    )

    def handle(message: Message) -> None:
        message.fail("no stock")
        if message.delivery_count == 1:
            assert go_on.wait(60)

    with redelivery.connect(redelivery_broker.uri, policies=once) as connection:
        connection.listen(
            "orders", handle, workers=2, on_dead_letter=lambda message, _: dead.append(message.text)
        )
        redelivery_broker.send("orders", "a")
        connection.start()
        eventually(lambda: dead == ["a"])
        go_on.set()


def test_an_observer_that_ends_the_consumer_begins_nothing_more(redelivery_broker: MemoryBroker) -> None:
    """A delivery that was taken when an observer drained the connection is released, uncharged."""
    handled: list[str] = []

    class Ends(Observer):
        def finished(self, token: Any, result: Finished) -> None:
            del token, result
            connection.drain(0.0)

    redelivery_broker.send("orders", "a")
    redelivery_broker.send("orders", "b")
    with redelivery.connect(redelivery_broker.uri, observers=[Ends()]) as connection:
        connection.listen("orders", lambda message: handled.append(message.text))
        connection.start()
        connection.wait(60)
    assert handled == ["a"]
    assert redelivery_broker.depth("orders") == 1
