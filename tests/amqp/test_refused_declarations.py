"""Declarations on RabbitMQ 4 that are refused or not answered, and sends that need a declaration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.amqp.peer import proton
from tests.amqp.test_declarations import Asked, Node
from tests.eventually import eventually

import redelivery
from redelivery.adapter import Opening, Sent
from redelivery.clock import SystemClock
from redelivery.core.commands import Send, Subscribe
from redelivery.core.outgoing import Outgoing

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def node() -> Iterator[Node]:
    """Return a node with a quorum queue and a classic one."""
    with Node(quorum={"x-queue-type": "quorum"}, classic={}) as peer:
        yield peer


def test_a_queue_of_which_nothing_is_known_holds_nothing_back(node: Node) -> None:
    """A queue of unknown type is refused for a scheduler of the broker: it could redeliver at once."""
    node.ends.add(("GET", "/queues/quorum"))
    words = Asked(node).refused("queue://quorum", rescheduled=True)
    assert "the broker does not report the type of queue://quorum" in words


def test_a_binding_that_is_refused_is_told(node: Node) -> None:
    """A refused binding refuses the subscription, which would get no messages."""
    node.answers = {("POST", "/bindings"): [(204, None), (400, "no binding")]}
    words = Asked(node).refused("topic://a,topic://b")
    assert "bound to amq.topic: no binding" in words


@pytest.mark.parametrize("request_", [("GET", "/queues/new"), ("PUT", "/queues/new"), ("POST", "/bindings")])
def test_a_connection_that_is_lost_meanwhile_is_no_refusal(node: Node, request_: tuple[str, str]) -> None:
    """A connection that is lost during a declaration is not a refusal: the next one subscribes again."""
    node.cuts.add(request_)
    asked = Asked(node)
    destination = "topic://a" if request_[0] == "POST" else "queue://new"
    asked.adapter.execute((Subscribe(1, destination, 10), Subscribe(2, "queue://classic", 10)))
    # The second queue is looked up before the first one is declared.
    for consumer in (1, 2) if request_[0] == "GET" else (1,):
        assert isinstance(asked.answer(consumer).error, redelivery.errors.TransportError)


def test_a_native_address_is_used_as_it_is(node: Node) -> None:
    """A native address is not declared; a queue's is looked up, and the link reports whether it exists."""
    asked = Asked(node)
    assert asked.sent("native:///exchanges/amq.fanout") is None
    assert asked.subscribed("native:///queues/classic").error is None
    assert node.requests == [("GET", "/queues/classic")]
    assert [address for _, address in node.consumers] == ["/management", "/queues/classic"]


def test_what_cannot_be_sent_is_told_and_tried_afresh_the_next_time(node: Node) -> None:
    """A refused declaration fails the send, and is tried again for the next one: the right can be given meanwhile."""
    forbidden = ("PUT", "/queues/new")
    node.ends.add(forbidden)
    asked = Asked(node)
    assert "refused to declare the queue new" in str(asked.sent("queue://new"))
    node.ends.clear()
    asked.adapter.execute((Send(2, Outgoing("queue://new", b"")),))
    eventually(lambda: sum(isinstance(each, Sent) for each in asked.events) == 2)
    assert [each.error for each in asked.events if isinstance(each, Sent)][1:] == [None]
    assert node.requests.count(forbidden) == 2


def test_one_link_serves_all_messages_of_a_queue(node: Node) -> None:
    """All messages to a queue share one link and one look-up; another queue has its own."""
    asked = Asked(node)
    sends = [Send(number, Outgoing(f"queue://{queue}", b"")) for number, queue in enumerate("aba")]
    asked.adapter.execute(sends)
    eventually(lambda: sum(isinstance(each, Sent) for each in asked.events) == 3)
    assert sorted(node.requests) == [(how, f"/queues/{name}") for how in ("GET", "PUT") for name in "ab"]


@pytest.mark.parametrize(
    ("text", "goes_on"),
    [("queue 'dead' in vhost '/' process is stopped by supervisor", True), ("it is gone", False)],
)
def test_a_dead_letter_queue_that_is_down_keeps_no_consumer(node: Node, text: str, *, goes_on: bool) -> None:
    """A consumer starts again though the node of its dead letters is down, if it took messages once."""
    down = False

    def attaches(link: Any) -> bool:
        if not (down and str(link.remote_target.address) == "/queues/dead"):
            return True
        link.open()
        link.condition = proton.Condition("amqp:internal-error", text)
        link.close()
        return False

    node.attaches = attaches
    node.ends_at_once = True
    asked = Asked(node)
    assert asked.subscribed("queue://classic", dead_letters=("queue://dead",)).error is None
    down = True
    node.cut()
    settings = redelivery.parse_uri(f"amqp://127.0.0.1:{node.port}")
    asked.adapter.open(Opening(settings, settings.endpoints[0], 2, SystemClock()), asked._take)
    error = asked.subscribed("queue://classic", 2, dead_letters=("queue://dead",)).error
    assert (error is None) is goes_on
