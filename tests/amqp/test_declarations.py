"""Declarations on RabbitMQ 4 before a link is attached, and the replies of its management node."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest
from tests.amqp.peer import PATIENCE, Conversation, ScriptedPeer, proton

import redelivery
from redelivery.adapter import AdapterEvent, Opening, Sent, Subscribed
from redelivery.clock import SystemClock
from redelivery.core.commands import Send, Subscribe
from redelivery.core.events import Arrived
from redelivery.core.outgoing import Outgoing
from redelivery_amqp import AmqpAdapter
from redelivery_amqp.rabbitmq_profile import AmqpRabbitMQ4

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from redelivery.errors import RedeliveryError

LASTING = {"durable": True, "exclusive": False, "auto_delete": False}


class Node(ScriptedPeer):
    """A broker with queues and a management node; it ends the session over the requests in `ends`."""

    product = "RabbitMQ"
    version = "4.3.6"

    def __init__(self, **queues: Mapping[str, Any]) -> None:
        """Begin with these queues and their arguments."""
        self.queues: dict[str, dict[str, Any]] = {name: dict(arguments) for name, arguments in queues.items()}
        self.requests: list[tuple[str, str]] = []
        self.bodies: list[Any] = []
        self.ends: set[tuple[str, str]] = set()
        self.cuts: set[tuple[str, str]] = set()
        self.answers: dict[tuple[str, str], list[tuple[int, Any]]] = {}
        self._pairs: dict[str, Any] = {}
        super().__init__(self._consumed)
        self.taken = self._manage

    def _consumed(self, conversation: Conversation, link: Any) -> None:
        del conversation
        if link.source.address == "/management":
            self._pairs[link.name] = link

    def _manage(self, conversation: Conversation, link: Any) -> None:
        if link.remote_target.address != "/management":
            return
        message = proton.Message()
        message.decode(link.recv(link.current.pending))
        link.advance()
        request = message.subject, message.address
        self.requests.append(request)
        self.bodies.append(message.body)
        if request in self.cuts:
            conversation.cut()
            return
        if request in self.ends:
            link.session.condition = proton.Condition(
                "amqp:unauthorized-access", "access refused for user 'x'"
            )
            link.session.close()
            conversation.flush()
            return
        status, body = self._answer(*request, message.body)
        reply = proton.Message(subject=str(status), correlation_id=message.id, body=body)
        answers = self._pairs[link.name]
        delivery = answers.delivery(f"a{self.next()}")
        answers.stream(reply.encode())
        answers.advance()
        delivery.settle()
        conversation.flush()

    def _answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        if scripted := self.answers.get((method, path)):
            return scripted.pop(0)
        if method == "POST":
            return 204, None
        name = unquote(path.removeprefix("/queues/"))
        new = name not in self.queues
        if method == "GET" and new:
            return 404, f"queue '{name}' not found"
        arguments = self.queues.setdefault(name, dict(body["arguments"]) if new else {})
        told = {"name": name, "type": arguments.get("x-queue-type", "classic"), "arguments": arguments}
        return (201 if new else 200), told


class Asked:
    """An adapter that is connected to a broker, and its events."""

    def __init__(self, node: ScriptedPeer, options: str = "") -> None:
        """Connect."""
        self.events: list[AdapterEvent] = []
        self._came = threading.Condition()
        self.adapter = AmqpAdapter()
        settings = redelivery.parse_uri(f"amqp://127.0.0.1:{node.port}?jms.clientID=me{options}")
        self.adapter.open(Opening(settings, settings.endpoints[0], 1, SystemClock()), self._take)

    def _take(self, event: AdapterEvent) -> None:
        with self._came:
            self.events.append(event)
            self._came.notify_all()

    def subscribed(self, destination: str, consumer: int = 1, **fields: Any) -> Subscribed:
        """Subscribe, and return the answer."""
        self.adapter.execute((Subscribe(consumer, destination, 10, **fields),))
        return self.answer(consumer)

    def answer(self, consumer: int) -> Subscribed:
        """Return the answer to a subscription."""
        with self._came:
            assert self._came.wait_for(lambda: self._answers(consumer), PATIENCE)
        return self._answers(consumer)[0]

    def _answers(self, consumer: int) -> list[Subscribed]:
        return [each for each in self.events if isinstance(each, Subscribed) and each.consumer == consumer]

    def arrived(self, count: int) -> None:
        """Wait for a number of messages."""

        def here() -> bool:
            found = [each for each in self.events if isinstance(each, Arrived)]
            return sum(len(each.deliveries) for each in found) >= count

        with self._came:
            assert self._came.wait_for(here, PATIENCE)

    def refused(self, destination: str, **fields: Any) -> str:
        """Subscribe, and return the text of the refusal."""
        error = self.subscribed(destination, **fields).error
        assert isinstance(error, redelivery.AdapterError)
        return str(error)

    def sent(self, destination: str) -> RedeliveryError | None:
        """Send a message, and return the error or None."""
        self.adapter.execute((Send(1, Outgoing(destination, b"")),))
        with self._came:
            assert self._came.wait_for(lambda: any(isinstance(each, Sent) for each in self.events), PATIENCE)
        return next(each for each in self.events if isinstance(each, Sent)).error


@pytest.fixture
def node() -> Iterator[Node]:
    """Return a node with a quorum queue and a classic one."""
    with Node(quorum={"x-queue-type": "quorum"}, classic={}) as peer:
        yield peer


def test_a_queue_that_is_there_is_only_looked_up(node: Node) -> None:
    """An existing queue is only looked up: a user who may not declare could not use it otherwise."""
    assert Asked(node).subscribed("queue://classic").error is None
    assert node.requests == [("GET", "/queues/classic")]
    assert node.consumers[-1] == (1, "/queues/classic")


def test_a_queue_that_is_not_there_is_declared(node: Node) -> None:
    """A missing queue is declared durable, with the typed arguments of the URI, under any name."""
    options = (
        "&redelivery.queueArguments=x-queue-type:quorum,x-delivery-limit:-1,x-single-active-consumer:true"
    )
    name, path = "büro/1%2 x", "/queues/b%C3%BCro%2F1%252%20x"
    assert Asked(node, options).subscribed(f"queue://{name}").error is None
    assert node.requests == [("GET", path), ("PUT", path)]
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": -1, "x-single-active-consumer": True}
    assert node.bodies[-1] == {**LASTING, "arguments": arguments}
    assert node.queues[name] == arguments
    assert node.consumers[-1] == (1, path)


@pytest.mark.parametrize(
    ("queue", "options", "fields", "dead"),
    [
        ("quorum", "", {}, {"x-queue-type": "quorum"}),
        ("classic", "", {}, {}),
        ("new", "&redelivery.queueArguments=x-queue-type:quorum", {}, {"x-queue-type": "quorum"}),
        ("new", "", {}, {}),
        ("new", "", {"rescheduled": True}, {"x-queue-type": "quorum"}),
        ("quorum", "&redelivery.deadLetterArguments=x-queue-type:classic", {}, {"x-queue-type": "classic"}),
    ],
)
def test_a_new_dead_letter_queue_is_of_the_kind_of_its_queue(
    node: Node, queue: str, options: str, fields: Mapping[str, Any], dead: Mapping[str, Any]
) -> None:
    """Beside a quorum queue a missing dead-letter queue becomes one, too, unless the URI says otherwise."""
    place = "queue://dead"
    answer = Asked(node, options).subscribed(f"queue://{queue}", dead_letters=(place,), **fields)
    assert answer.error is None
    assert node.queues["dead"] == dead
    # One that is there stays as it is.
    node.queues["dead"] = {"x-message-ttl": 9}
    assert Asked(node, options).subscribed(f"queue://{queue}", dead_letters=(place,), **fields).error is None
    assert node.queues["dead"] == {"x-message-ttl": 9}


@pytest.mark.parametrize("destination", ["queue://log", "native:///queues/log"])
def test_a_stream_is_refused_before_it_is_attached(destination: str) -> None:
    """A stream is refused with what to do instead: what was sent before the consumer began would not be shown."""
    with Node(log={"x-queue-type": "stream"}) as node:
        why = Asked(node).refused(destination)
        assert why.startswith(f"{destination} cannot be consumed: a stream of RabbitMQ keeps its messages")
        assert "bind a quorum or classic queue" in why
        assert [address for _, address in node.consumers if "log" in address] == []


@pytest.mark.parametrize("destination", ["queue://log", "native:///queues/log"])
def test_a_queue_that_may_not_be_looked_up_may_be_a_stream(destination: str) -> None:
    """A queue of an unknown type is consumed with a warning of what a stream would do; a known one has none."""
    with Node(log={"x-queue-type": "stream"}, classic={}) as node:
        node.answers = {("GET", "/queues/log"): [(403, "access refused for user 'x'")]}
        asked = Asked(node)
        answer = asked.subscribed(destination)
        assert answer.error is None
        assert answer.capabilities is not None
        assert answer.capabilities.caution.startswith(
            "the broker does not tell this user the type of this queue"
        )
        assert "a stream of RabbitMQ keeps its messages" in answer.capabilities.caution
        known = asked.subscribed(destination.replace("log", "classic"), 2).capabilities
        assert known is None or not known.caution


def test_a_queue_of_a_native_address_is_consumed(node: Node) -> None:
    """The address of a queue is looked up and never declared; one that the user may not look up is attached."""
    assert Asked(node).subscribed("native:///queues/classic").error is None
    assert Asked(node).subscribed("native:///queues/nobody").error is None
    assert [method for method, _ in node.requests] == ["GET", "GET"]


def test_what_is_sent_to_is_declared_too(node: Node) -> None:
    """The destination of a message is declared too: RabbitMQ refuses a message to a missing queue."""
    assert Asked(node).sent("queue://new") is None
    assert node.requests == [("GET", "/queues/new"), ("PUT", "/queues/new")]


def test_a_queue_that_is_gone_is_declared_again_for_the_next_message(node: Node) -> None:
    """A deleted queue is declared again for the next message: RabbitMQ releases the first one and keeps the link."""
    node.ends_at_once = True
    asked = Asked(node)
    node.outcome = proton.Delivery.RELEASED
    assert isinstance(asked.sent("queue://new"), redelivery.AdapterError)
    asked.events.clear()
    node.outcome = proton.Delivery.ACCEPTED
    del node.queues["new"]
    assert asked.sent("queue://new") is None
    assert node.requests == [("GET", "/queues/new"), ("PUT", "/queues/new")] * 2


def test_a_topic_need_not_have_a_subscriber(node: Node) -> None:
    """A message to a topic without subscribers is sent without an error, as on any broker; RabbitMQ releases it."""
    node.outcome = proton.Delivery.RELEASED
    assert Asked(node).sent("topic://news") is None


def test_a_dead_letter_queue_has_arguments_of_its_own(node: Node) -> None:
    """The dead-letter queue is declared with its own arguments before the consumer starts."""
    options = "&redelivery.deadLetterArguments=x-queue-type:quorum"
    assert Asked(node, options).subscribed("queue://classic", dead_letters=("queue://DLQ",)).error is None
    assert node.queues["DLQ"] == {"x-queue-type": "quorum"}
    assert node.queues["classic"] == {}


def test_a_dead_letter_queue_of_an_earlier_version_is_used_as_it_is(node: Node) -> None:
    """A quorum dead-letter queue that exists with a limit is used: nothing is declared."""
    node.queues["DLQ"] = {"x-queue-type": "quorum"}
    node.version = "4.0.5"
    asked = Asked(node, "&redelivery.deadLetterArguments=x-queue-type:quorum")
    assert asked.subscribed("queue://classic", dead_letters=("queue://DLQ",)).error is None
    assert node.queues["DLQ"] == {"x-queue-type": "quorum"}
    assert ("PUT", "/queues/DLQ") not in node.requests
    assert asked.subscribed("queue://classic", consumer=2, dead_letters=("queue://graves",)).error is None
    assert node.queues["graves"] == {"x-queue-type": "quorum", "x-delivery-limit": -1}


@pytest.mark.parametrize(
    ("version", "queue", "says"),
    [
        ("4.0.5", "quorum", "drops a message after 20 of them"),
        ("4.0.5", "hidden", "does not report here whether the queue drops a message after 20 looks"),
        ("4.0.5", "classic", None),
        ("4.0.5", "kept", None),
        ("4.3.6", "quorum", None),
        ("4.3.6", "hidden", None),
    ],
)
def test_a_queue_whose_messages_are_given_back_must_have_no_limit(
    node: Node, version: str, queue: str, says: str | None
) -> None:
    """A consumer that gives messages back is refused before its link begins, if the queue may count that."""
    node.version = version
    node.queues["kept"] = {"x-queue-type": "quorum", "x-delivery-limit": -1}
    node.ends.add(("GET", "/queues/hidden"))
    answer = Asked(node).subscribed(f"queue://{queue}", existing=True, spared=True)
    assert (None if answer.error is None else says) == says
    if says is not None:
        assert says in str(answer.error)
        assert isinstance(answer.error, redelivery.ConfigurationError)
        assert not [path for _, path in node.consumers if path == f"/queues/{queue}"]


def test_a_queue_that_must_be_there_is_not_declared(node: Node) -> None:
    """A queue that must exist is not declared: the dead-letter tools create nothing."""
    assert Asked(node).refused("queue://absent", existing=True) == "the broker has no queue absent"
    assert "absent" not in node.queues


def test_a_declaration_that_the_broker_forbids_is_refused_in_its_words(node: Node) -> None:
    """A forbidden declaration is refused with the broker's text; later requests go over another pair of links."""
    node.ends.add(("PUT", "/queues/forbidden"))
    asked = Asked(node)
    asked.adapter.execute((Subscribe(1, "queue://forbidden", 10), Subscribe(2, "queue://allowed", 10)))
    forbidden, allowed = asked.answer(1), asked.answer(2)
    assert "refused to declare the queue forbidden" in str(forbidden.error)
    assert "access refused for user 'x'" in str(forbidden.error)
    assert allowed.error is None
    assert node.connections == 1


def test_who_may_not_look_may_be_allowed_to_consume(node: Node) -> None:
    """A user who may not look up a queue can consume: the facts are those of the broker, and the link decides."""
    node.ends.add(("GET", "/queues/classic"))
    answer = Asked(node).subscribed("queue://classic")
    assert answer.error is None
    assert answer.capabilities is not None
    assert replace(answer.capabilities, caution="", version="") == AmqpRabbitMQ4((4, 3, 6)).capabilities


def test_a_queue_that_another_client_has_declared_meanwhile_is_taken_as_it_is(node: Node) -> None:
    """A queue that another client has declared meanwhile, with other arguments, is looked up again and used."""
    path = "/queues/race"
    node.answers = {
        ("GET", path): [(404, "no"), (200, {"type": "quorum", "arguments": {"x-queue-type": "quorum"}})],
        ("PUT", path): [(409, "inequivalent arg")],
    }
    answer = Asked(node).subscribed("queue://race")
    assert answer.error is None
    assert answer.capabilities is not None
    assert answer.capabilities.reschedule == "native"


@pytest.mark.parametrize("kind", ["quorum", "classic"])
def test_what_the_broker_can_do_is_told_of_the_queue(node: Node, kind: str) -> None:
    """The capabilities of a queue are reported: only a quorum queue holds parked messages back."""
    able = Asked(node).subscribed(f"queue://{kind}", hold=7200.0).capabilities
    assert able is not None
    quorum = kind == "quorum"
    assert able.reschedule == ("native" if quorum else "none")
    assert able.max_hold == (9000.0 if quorum else None)
    assert ("a message is dropped after 20 lost connections" in able.caution) == quorum
    assert "redelivery.scheduler=broker" in able.advice
    assert ("this is a classic queue" in able.advice) != quorum


def test_what_the_broker_cannot_hold_back_is_refused_at_the_start(node: Node) -> None:
    """A scheduler of the broker is refused for a classic queue: its messages would be redelivered at once."""
    asked = Asked(node)
    assert asked.subscribed("queue://quorum", rescheduled=True).error is None
    words = asked.refused("queue://classic", consumer=2, rescheduled=True)
    assert "queue://classic is a classic queue, in which RabbitMQ holds no message back" in words
    assert "redelivery.queueArguments=x-queue-type:quorum" in words


@pytest.mark.parametrize(
    ("options", "made"),
    [
        ("", {"x-queue-type": "quorum"}),
        (
            "&redelivery.queueArguments=x-delivery-limit:-1",
            {"x-queue-type": "quorum", "x-delivery-limit": -1},
        ),
    ],
)
def test_a_new_queue_that_is_to_hold_back_what_waits_is_a_quorum_queue(
    node: Node, options: str, made: dict[str, Any]
) -> None:
    """A missing queue is declared as a quorum queue if the broker is to hold messages back."""
    asked = Asked(node, options)
    assert asked.subscribed("queue://new", rescheduled=True).error is None
    assert node.bodies[-1] == {**LASTING, "arguments": made}
