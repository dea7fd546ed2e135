"""Queues of topic consumers on RabbitMQ 4, and what a consumer releases at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.amqp.peer import PATIENCE, Conversation, proton
from tests.amqp.test_declarations import LASTING, Asked, Node
from tests.eventually import eventually

from redelivery.core.commands import Credit, Unsubscribe

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def node() -> Iterator[Node]:
    """Return a node with a quorum queue and a classic one."""
    with Node(quorum={"x-queue-type": "quorum"}, classic={}) as peer:
        yield peer


def test_a_consumer_of_a_topic_has_a_queue_of_its_own(node: Node) -> None:
    """A topic consumer has its own queue, which ends with its connection and is bound to each of its topics."""
    assert Asked(node).subscribed("topic://a.>,topic://b.*").error is None
    (_, path), (method, bindings), _ = node.requests
    assert (method, bindings) == ("POST", "/bindings")
    assert node.bodies[0] == {"durable": True, "exclusive": True, "auto_delete": True, "arguments": {}}
    assert [body["binding_key"] for body in node.bodies[1:]] == ["a.#", "b.*"]
    assert node.consumers[-1] == (1, path)


def test_two_consumers_of_a_topic_have_two_queues(node: Node) -> None:
    """Two consumers of a topic have two queues, on one connection and on two."""
    asked = Asked(node)
    for consumer in (1, 2):
        assert asked.subscribed("topic://a", consumer).error is None
    assert len({address for _, address in node.consumers} - {"/management"}) == 2


def test_the_queue_of_a_topics_consumer_is_nobody_elses(node: Node) -> None:
    """The queue of a topic consumer has a unique name: another process with the same client id is not refused."""
    for _ in range(2):
        assert Asked(node).subscribed("topic://news").error is None
    first, second = [path for method, path in node.requests if method == "PUT"]
    assert first != second


def test_a_durable_subscription_is_a_queue_that_stays(node: Node) -> None:
    """The queue of a durable subscription stays; it is named by client id and subscription, for one topic only."""
    assert Asked(node).subscribed("topic://prices", subscription="desk").error is None
    assert node.bodies[0] == {**LASTING, "arguments": {"x-redelivery-topics": "prices"}}
    assert list(node.queues) == ["quorum", "classic", "me.desk"]
    words = Asked(node).refused("topic://orders", subscription="desk")
    assert words.startswith("the durable subscription desk exists for prices, not for orders")
    assert node.requests[-1] == ("PUT", "/queues/me.desk")


def test_credit_is_withdrawn_before_what_is_held_goes_back(node: Node) -> None:
    """Credit is withdrawn before messages are released: the broker would send them to the same link again."""

    def consumed(conversation: Conversation, link: Any) -> None:
        if link.source.address == "/management":
            node._pairs[link.name] = link
            return
        for body in (b"one", b"two"):
            conversation.send(link, proton.Message(body=body).encode())

    node.script = consumed
    asked = Asked(node)
    assert asked.subscribed("queue://classic").error is None
    asked.adapter.execute((Credit(1, 10),))
    asked.arrived(2)
    asked.adapter.execute((Unsubscribe(1),))
    eventually(lambda: len(node.credit_left) >= 2)
    asked.adapter.close(PATIENCE)
    assert set(node.credit_left) == {0}
