"""Releases on RabbitMQ 4's quorum queues: with a due time, as dead letters, and by the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.amqp.peer import proton
from tests.amqp.test_declarations import Asked, Node
from tests.eventually import eventually

from redelivery.core.commands import Accept, Credit, PoisonAck, Reschedule
from redelivery.core.delivery import Cause
from redelivery.core.events import Arrived, TakenBack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.amqp.peer import Conversation, Settlement

    from redelivery.core.delivery import Delivery

RELEASED, MODIFIED, REJECTED, ACCEPTED = 0x26, 0x27, 0x25, 0x24
CAUSE = Cause("no stock")


class Queues(Node):
    """A node that sends four messages, and releases `takes_back` of them after the last one was settled.

    `at_once`: they are released in the same write in which they are sent.
    """

    takes_back = 0
    at_once = False
    messages = 4

    def _consumed(self, conversation: Conversation, link: Any) -> None:
        super()._consumed(conversation, link)
        if link.source.address == "/management":
            return
        self.properties = link.remote_properties
        self._sent = []
        for number in range(self.messages):
            self._sent.append(link.delivery(f"m{number}"))
            link.stream(proton.Message(body=b"body", id=f"m{number}").encode())
            link.advance()
        if not self.at_once:
            self.settled = self._release
            conversation.flush()
            return
        with conversation.together():
            conversation.flush()
            self._update(conversation)

    def _release(self, conversation: Conversation) -> None:
        if self.settlements[-1].tag == "m3":
            self._update(conversation)

    def _update(self, conversation: Conversation) -> None:
        for delivery in self._sent[: self.takes_back]:
            delivery.update(proton.Delivery.RELEASED)
        conversation.flush()


@pytest.fixture
def node() -> Iterator[Queues]:
    """Return a node with a quorum queue and a classic one."""
    with Queues(quorum={"x-queue-type": "quorum"}, classic={}) as peer:
        yield peer


class Consumer:
    """A consumer of one queue, and its events."""

    def __init__(self, node: Queues, queue: str, **fields: Any) -> None:
        self.node = node
        self.asked = Asked(node)
        assert self.asked.subscribed(f"queue://{queue}", **fields).error is None
        self.asked.adapter.execute((Credit(1, 10),))
        eventually(lambda: len(self.deliveries) == node.messages)

    @property
    def deliveries(self) -> list[Delivery]:
        """Deliveries that have arrived."""
        return [
            found for event in self.asked.events if isinstance(event, Arrived) for found in event.deliveries
        ]

    def settled(self, *commands: Any) -> Settlement:
        """Carry commands out, and return the first settlement."""
        self.asked.adapter.execute(commands)
        eventually(lambda: self.node.settlements)
        return self.node.settlements[0]


def test_what_is_to_wait_is_given_back_uncounted_with_its_time_and_its_notes(node: Queues) -> None:
    """A rescheduled message is released uncounted, with its due time as a timestamp, and with its notes."""
    consumer = Consumer(node, "quorum")
    first = consumer.deliveries[0]
    notes: dict[str, str | int] = {"redeliveryCount": "2", "redeliveryDue": 1_900_000_000_500}
    settlement = consumer.settled(Reschedule(first, 1_900_000_000.5, notes, 5.0, CAUSE, 2))
    assert settlement[:4] == ("m0", MODIFIED, False, False)
    assert settlement.annotations == {
        "x-opt-redeliveryCount": "2",
        "x-opt-redeliveryDue": 1_900_000_000_500,
        "x-opt-delivery-time": 1_900_000_000_500,
    }
    assert isinstance(settlement.annotations["x-opt-delivery-time"], proton.timestamp)


def test_a_wait_without_end_is_one_to_the_last_day(node: Queues) -> None:
    """A due time without end is written as the last day that the broker can read."""
    consumer = Consumer(node, "quorum")
    settlement = consumer.settled(Reschedule(consumer.deliveries[0], 1e15, {}, 1e15, CAUSE, 1))
    assert settlement.annotations == {"x-opt-delivery-time": 253_402_300_799_000}


def test_a_message_is_given_back_once(node: Queues) -> None:
    """A message that was settled is not settled again."""
    consumer = Consumer(node, "quorum")
    first, second, *_ = consumer.deliveries
    again = Reschedule(first, 1_900_000_000.0, {}, 5.0, CAUSE, 1)
    consumer.settled(again, again, Accept([first]), Accept([second]))
    eventually(lambda: len(node.settlements) == 2)
    assert [(each.tag, each.state) for each in node.settlements] == [("m0", MODIFIED), ("m1", ACCEPTED)]


def test_a_dead_letter_of_a_quorum_queue_keeps_its_cause(node: Queues) -> None:
    """A dead letter of a quorum queue has its notes: it is settled as undeliverable here, and as failed."""
    consumer = Consumer(node, "quorum")
    settlement = consumer.settled(PoisonAck(consumer.deliveries[0], CAUSE, 3))
    assert settlement[:4] == ("m0", MODIFIED, True, True)
    assert settlement.annotations == {
        "x-opt-redeliveryCause": "no stock",
        "x-opt-redeliveryCount": "3",
        "x-opt-redeliveryOriginalDestination": "queue://quorum",
        "x-opt-redeliveryOriginalId": "m0",
    }


def test_a_dead_letter_of_a_classic_queue_is_rejected(node: Queues) -> None:
    """A dead letter of a classic queue, which keeps no notes, is rejected."""
    consumer = Consumer(node, "classic")
    assert consumer.settled(PoisonAck(consumer.deliveries[0], CAUSE, 3))[:2] == ("m0", REJECTED)


def taken_back(node: Queues, many: int) -> Consumer:
    """Return a consumer of which the broker has taken a number of messages back."""
    node.takes_back = many
    consumer = Consumer(node, "quorum")
    consumer.settled(Accept([consumer.deliveries[-1]]))
    eventually(lambda: any(isinstance(event, TakenBack) for event in consumer.asked.events))
    return consumer


@pytest.mark.parametrize("many", [1, 3])
def test_what_the_broker_takes_back_is_settled_with_an_outcome_and_told(node: Queues, many: int) -> None:
    """Messages that the broker takes back are all accepted, and reported in the order of their arrival."""
    consumer = taken_back(node, many)
    eventually(lambda: len(node.settlements) == many + 1)
    _, *settled = node.settlements
    assert {(each.tag, each.state) for each in settled} == {(f"m{n}", ACCEPTED) for n in range(many)}
    told = [event for event in consumer.asked.events if isinstance(event, TakenBack)]
    assert [each for event in told for each in event.deliveries] == consumer.deliveries[:many]
    assert {event.consumer for event in told} == {1}


def test_what_comes_and_is_taken_back_in_one_read_is_settled_too(node: Queues) -> None:
    """A message that arrives and is taken back in one read is settled too: the consumer would get no more."""
    node.takes_back, node.at_once = 4, True
    consumer = Consumer(node, "quorum")
    eventually(lambda: len(node.settlements) == 4)
    assert {(each.tag, each.state) for each in node.settlements} == {(f"m{n}", ACCEPTED) for n in range(4)}
    told = [event for event in consumer.asked.events if isinstance(event, TakenBack)]
    assert [each for event in told for each in event.deliveries] == consumer.deliveries


def test_what_was_taken_back_is_settled_no_more(node: Queues) -> None:
    """A late result for a message that was taken back changes nothing; other messages are settled as usual."""
    consumer = taken_back(node, 1)
    first, second, *_ = consumer.deliveries
    consumer.asked.adapter.execute((Accept([first]), Accept([second])))
    eventually(lambda: len(node.settlements) == 3)
    assert [(each.tag, each.state) for each in node.settlements[1:]] == [("m0", ACCEPTED), ("m1", ACCEPTED)]


def test_a_consumer_asks_for_the_time_that_it_needs(node: Queues) -> None:
    """A consumer asks for its timeout in milliseconds as an unsigned integer: the broker ignores other types."""
    Consumer(node, "quorum", hold=7200.0)
    assert node.properties == {proton.symbol("rabbitmq:consumer-timeout"): 9_000_000}
    assert isinstance(node.properties[proton.symbol("rabbitmq:consumer-timeout")], proton.uint)
