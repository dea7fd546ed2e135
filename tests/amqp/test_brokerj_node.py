"""Answers of Broker-J's management node about a queue before its consumer begins, and consumers without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.amqp.peer import Conversation, ScriptedPeer, proton
from tests.amqp.test_declarations import Asked

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.core.capabilities import Capabilities

TO_DLQ = {"alternateBinding": {"destination": "DLQ", "attributes": {}}}
NODE = "$management"


class BrokerJ(ScriptedPeer):
    """A broker with queues and their attributes, which its management node reports."""

    product = "Apache Qpid Broker-J Core"
    version = "9.2.0"

    def __init__(self, **queues: dict[str, Any]) -> None:
        """Begin with these queues."""
        self.queues = queues
        self.requests: list[dict[str, Any]] = []
        self.manages_ = True
        self.cuts = False
        self.reply: Callable[[Any], Any] = self._reply
        self._answers: dict[str, Any] = {}
        super().__init__(self._consumed)
        self.taken = self._manage
        self.attaches = self._attached

    def _attached(self, link: Any) -> bool:
        if self.manages_ or NODE not in (link.remote_source.address, link.remote_target.address):
            return True
        link.open()
        link.condition = proton.Condition("amqp:not-found", "no such node")
        link.close()
        return False

    def _consumed(self, conversation: Conversation, link: Any) -> None:
        del conversation
        if link.source.address == NODE:
            self._answers[link.target.address] = link

    def _manage(self, conversation: Conversation, link: Any) -> None:
        if link.remote_target.address != NODE:
            return
        asked = proton.Message()
        asked.decode(link.recv(link.current.pending))
        link.advance()
        self.requests.append(asked.properties)
        if self.cuts:
            conversation.cut()
            return
        conversation.send(self._answers[asked.reply_to], self.reply(asked).encode())

    def _reply(self, asked: Any) -> Any:
        found = self.queues.get(asked.properties["key"])
        if found is None:
            told = {**asked.properties, "statusCode": 404, "statusDescription": "Not found"}
            return proton.Message(correlation_id=asked.correlation_id, properties=told, body=b"")
        body = {"qpid-type": "standard", "name": asked.properties["key"], **found}
        return proton.Message(correlation_id=asked.correlation_id, properties={"statusCode": 200}, body=body)


def able(broker: BrokerJ, destination: str = "queue://orders", **fields: Any) -> Capabilities | None:
    """Return the capabilities of a queue whose consumer begins; None: the broker reports nothing."""
    with broker:
        asked = Asked(broker)
        answer = asked.subscribed(destination, **fields)
        asked.adapter.close(1.0)
    assert answer.error is None
    assert [address for _, address in broker.consumers if address != NODE] == [
        destination.partition("://")[2]
    ]
    return answer.capabilities


@pytest.mark.parametrize(
    ("queue", "own", "caution"),
    [
        (TO_DLQ, "the queue's alternateBinding DLQ", ""),
        (
            TO_DLQ | {"maximumDeliveryAttempts": 3},
            "the queue's alternateBinding DLQ (after 3 deliveries)",
            "",
        ),
        ({"maximumDeliveryAttempts": proton.int32(3)}, "", "a message is dropped after 3 deliveries"),
        ({"maximumDeliveryAttempts": 0}, "", ""),
        ({"maximumDeliveryAttempts": "odd", "alternateBinding": "odd"}, "", ""),
    ],
    ids=["binding", "binding and limit", "limit", "no limit", "odd"],
)
def test_what_the_broker_does_with_what_it_gives_up(queue: dict[str, Any], own: str, caution: str) -> None:
    """The alternate binding of a queue is reported, with its limit; a limit without one is a caution."""
    broker = BrokerJ(orders=queue)
    found = able(broker)
    assert found is not None
    assert found.own_dead_letters == own
    assert (found.caution == "") if not caution else (caution in found.caution)
    assert found.dead_letter_destination == "queue://DLQ", "copies go there in any case"
    assert broker.requests == [
        {
            "operation": "READ",
            "type": "org.apache.qpid.Queue",
            "index": "object-path",
            "key": "orders",
            "actuals": False,
        }
    ]


def test_a_name_is_one_element_of_a_path() -> None:
    """A slash and a backslash of a name are escaped: the path of a queue has one element."""
    broker = BrokerJ(**{r"a\/b\\c": TO_DLQ})
    found = able(broker, r"queue://a/b\c")
    assert found is not None
    assert found.own_dead_letters


def test_a_queue_that_is_not_there_yet() -> None:
    """A queue that its consumer makes is not known before; the consumer begins."""
    broker = BrokerJ()
    assert able(broker) is None
    assert len(broker.requests) == 1


def test_without_a_management_node_a_consumer_begins() -> None:
    """Without the plug-in of the management node, or where it is refused, a consumer begins."""
    broker = BrokerJ(orders=TO_DLQ)
    broker.manages_ = False
    assert able(broker) is None
    assert broker.requests == []


def test_a_queue_in_place_of_the_node() -> None:
    """If the broker has made a queue of the node's name, the request itself comes back: it reports nothing."""
    broker = BrokerJ(orders=TO_DLQ)
    broker.reply = lambda asked: asked
    assert able(broker) is None


def test_a_topic_is_not_asked_about() -> None:
    """Of a topic's consumer, whose queue has no settings, nothing is asked."""
    broker = BrokerJ()
    with broker:
        assert Asked(broker).subscribed("topic://news").capabilities is None
    assert broker.requests == []


def test_each_queue_may_have_the_broker_hold_messages() -> None:
    """With redelivery by the broker no type of a queue is refused: there are no quorum queues."""
    found = able(BrokerJ(orders=TO_DLQ), rescheduled=True)
    assert found is not None
    assert found.reschedule == "atomic"


def test_a_connection_that_is_lost_meanwhile() -> None:
    """A connection that is lost before the answer ends the start of the consumer; the next one asks again."""
    broker = BrokerJ(orders=TO_DLQ)
    broker.cuts = True
    with broker:
        asked = Asked(broker)
        error = asked.subscribed("queue://orders").error
    assert error is not None
    assert [address for _, address in broker.consumers if address != NODE] == []
