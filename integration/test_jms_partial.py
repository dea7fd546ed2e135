"""JMS messages whose body does not arrive over STOMP, or may not have: they are never copied and never lost.

The consumers here may set no message aside, and stop; `test_set_aside` has those that continue.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from integration.eventually import eventually
from integration.work import POLICY, Running, Work

if TYPE_CHECKING:
    from integration.brokers import Broker
    from integration.conftest import Session
    from integration.java_client import JavaClient, JmsMessage

pytestmark = pytest.mark.ci("messages of Java clients that are not whole")

POLICIES = redelivery.RedeliveryPolicyMap(
    default=POLICY(maximum_redeliveries=1, initial_redelivery_delay=0.1)
)
VALUES: dict[str, Any] = {
    "map": {"text": "Grüße", "number": 42, "flag": True},
    "object": "Grüße",
    "stream": ["Grüße", 42, True],
}


@pytest.fixture(params=["activemq", "artemis"])
def broker(request: pytest.FixtureRequest, session: Session) -> Broker:
    """Each broker on which JMS clients and STOMP consumers understand each other, mostly."""
    return session.broker(request.param)


def consume(broker: Broker, queue: str, work: Work, **options: Any) -> BaseException | None:
    """Fail every delivery until the consumer stops; return its error, or None if it runs on for a while."""
    with (
        redelivery.connect(
            broker.uri(redelivery__maximumSetAside=0, **options), policies=POLICIES
        ) as connection,
    ):
        connection.listen(queue, work)
        with Running(connection) as running:
            eventually(lambda: len(work.attempts["bad"]) >= 2 or running.ended)
            eventually(lambda: connection.report().poisoned == 1 or running.ended)
        return running.error


def check_value(message: JmsMessage, kind: str) -> None:
    """Check that the content is unchanged."""
    assert message.kind == kind
    check_content(message, kind)


def check_content(message: JmsMessage, kind: str) -> None:
    """Check that the content is unchanged, of any type."""
    if kind == "map":
        assert VALUES["map"].items() <= message.value.items()
    else:
        assert message.value == VALUES[kind]


@pytest.mark.own_broker("reads its dead-letter queue")
@pytest.mark.parametrize("kind", ["map", "object", "stream"])
def test_classic_keeps_persistent_ones_by_its_own_acknowledgement(
    activemq: Broker, java_client: Any, unique_queue: str, kind: str
) -> None:
    """Classic's own acknowledgement, on request, keeps the original whole, though it did not arrive over STOMP."""
    java, work = java_client(activemq, None), Work()
    java.send(unique_queue, "Grüße".encode(), kind=kind, properties={"key": "bad", "queue": unique_queue})
    assert consume(activemq, unique_queue, work, redelivery__deadLetter="ack") is None
    assert len(work.attempts["bad"]) == 2
    (dead,) = java.drain("ActiveMQ.DLQ", selector=f"queue = '{unique_queue}'", expected=1)
    check_value(dead, kind)
    assert java.count(unique_queue) == 0


CASES = [
    ("activemq", "map", False, "stop"),
    ("activemq", "object", False, "stop"),
    ("activemq", "stream", False, "stop"),
    ("artemis", "map", True, "stop"),
    ("artemis", "map", True, "forward"),  # it arrives as garbage, not empty: no user can confirm that
    ("artemis", "map", False, "stop"),
    ("artemis", "object", True, "stop"),
    ("artemis", "object", False, "stop"),
]


@pytest.mark.parametrize(("name", "kind", "persistent", "empty_body"), CASES)
def test_a_body_that_did_not_come_stops_the_consumer(
    session: Any, unique_queue: str, *, name: str, kind: str, persistent: bool, empty_body: str
) -> None:
    """A body that did not arrive stops the consumer with an AdapterError; the message stays whole on its queue."""
    broker: Broker = session.broker(name)
    java: JavaClient = session.java(broker)
    work = Work()
    java.send(unique_queue, "Grüße".encode(), kind=kind, persistent=persistent, properties={"key": "bad"})
    error = consume(broker, unique_queue, work, redelivery__emptyBody=empty_body)
    check_stopped(error, vouch=not (name == "artemis" and kind == "map"))
    assert len(work.attempts["bad"]) == 2, "its policy was kept"
    (left,) = java.drain(unique_queue, expected=1)
    check_value(left, kind)
    assert left.persistent == persistent


def check_stopped(error: BaseException | None, *, vouch: bool) -> None:
    """Check that the error names the problem and the remedy."""
    assert isinstance(error, redelivery.AdapterError), error
    assert "AMQP" in str(error)
    assert ("redelivery.emptyBody=forward" in str(error)) == vouch


@pytest.mark.parametrize("kind", ["text", "null-text", "bytes", "empty"])
def test_an_empty_body_of_unknown_kind_stops_the_consumer_by_default(
    broker: Broker, java: JavaClient, unique_queue: str, kind: str
) -> None:
    """An empty body of unknown kind stops the consumer by default: it could be an Object."""
    work = Work()
    java.send(
        unique_queue, b"", kind=kind, persistent=False, properties={"key": "bad", "queue": unique_queue}
    )
    error = consume(broker, unique_queue, work)
    check_stopped(error, vouch=True)
    (left,) = java.drain(unique_queue, expected=1)
    assert left.kind == kind.removeprefix("null-")


@pytest.mark.parametrize("kind", ["map", "object"])
def test_no_property_proves_that_an_empty_body_was_empty(
    broker: Broker, java: JavaClient, unique_queue: str, kind: str
) -> None:
    """No property proves that a body was empty: an answer may have copied all properties of its question."""
    work = Work()
    properties = {"key": "bad", "redeliveryId": "1"}
    if broker.name == "activemq":
        # Artemis' JMS client allows no such names.
        properties |= {"amq-msg-type": "text", "content-length": "0"}
    # Classic's own acknowledgement keeps a persistent one.
    java.send(unique_queue, "Grüße".encode(), kind=kind, persistent=False, properties=properties)
    error = consume(broker, unique_queue, work)
    assert isinstance(error, redelivery.AdapterError), error
    (left,) = java.drain(unique_queue, expected=1)
    check_value(left, kind)


def test_a_stopped_consumer_leaves_the_others_unacknowledged_messages(
    broker: Broker, java: JavaClient, unique_queue: str
) -> None:
    """Unsettled messages of a consumer that stopped are still on the queue; accepted ones are not."""
    work = Work()
    java.send(unique_queue, b"good")
    java.send(unique_queue, b"x", kind="object", persistent=False, properties={"key": "bad"})
    java.send(unique_queue, b"once")
    assert consume(broker, unique_queue, work) is not None
    assert work.done["good"] == 1
    expected = 1 if work.done["once"] else 2
    left = [message.kind for message in java.drain(unique_queue, expected=expected)]
    assert left in (["object"], ["object", "text"])
    assert (len(left) == 1) == (work.done["once"] == 1)


@pytest.mark.own_broker("reads its dead-letter queue")
def test_a_text_with_nul_does_not_circle_for_ever(
    broker: Broker, java: JavaClient, unique_queue: str
) -> None:
    """A text with NUL arrives whole on Artemis; on Classic it breaks its frame: the consumer stops, the text stays."""
    work = Work()
    java.send(unique_queue, b"bad\0half", properties={"key": "bad", "queue": unique_queue})
    error = consume(broker, unique_queue, work)
    if broker.name == "artemis":
        assert error is None
        assert {attempt.body for attempt in work.attempts["bad"]} == {b"bad\0half"}
        (dead,) = java.drain(broker.dead_letter_queue, selector=f"queue = '{unique_queue}'", expected=1)
        assert (dead.kind, dead.body) == ("bytes", b"bad\0half")
    else:
        assert isinstance(error, redelivery.AdapterError), error
        run_as_said(str(error), broker, f"{unique_queue}.odd")
        assert java.count(unique_queue) == 0
        (moved,) = java.drain(f"{unique_queue}.odd", expected=1)
        assert (moved.kind, moved.body) == ("text", b"bad\0half")


def run_as_said(error: str, broker: Broker, place: str) -> None:
    """Run the command that an error names, with a URI and a place."""
    (command,) = re.findall(r"redelivery (dlq redrive AMQP-URI .* --to PLACE)", error)
    values = {"AMQP-URI": broker.uri(protocol="amqp"), "PLACE": place}
    arguments = [values.get(each, each) for each in shlex.split(command)]
    done = subprocess.run(
        [sys.executable, "-m", "redelivery.cli", *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "1 redriven" in done.stdout) == (0, True), done


@pytest.mark.own_broker("reads its dead-letter queue")
@pytest.mark.parametrize("route", ["auto", "ack"])
@pytest.mark.parametrize("kind", ["text", "bytes", "map", "object", "stream"])
def test_on_rabbitmq_no_jms_message_comes_whole(
    rabbitmq: Broker, session: Any, new_queue: Any, kind: str, route: str
) -> None:
    """No JMS message arrives whole on RabbitMQ, in AMQP's encoding: the broker dead-letters it, or it stays.

    RabbitMQ 4 shows the bytes of such a body, with a header `type`, and treats a copy with both as the same body.
    """
    java, queue = session.java(rabbitmq, "qpid"), f"dlx.{new_queue()}"

    def fail(message: redelivery.Message) -> None:
        raise ValueError(message.message_id)

    java.send(queue, "Grüße".encode(), kind=kind, properties={"queue": queue})
    with redelivery.connect(
        rabbitmq.uri(redelivery__deadLetter=route, redelivery__maximumSetAside=0), policies=POLICIES
    ) as connection:
        connection.listen(queue, fail)
        with Running(connection) as running:
            eventually(lambda: connection.report().poisoned == 1 or running.ended)
    if route == "ack" or rabbitmq.release >= (4, 0):
        assert running.error is None
        (found,) = eventually(
            lambda: [m for m in java.drain(rabbitmq.dead_letter_queue) if m.properties.get("queue") == queue]
        )
    else:
        check_stopped(running.error, vouch=False)
        (found,) = java.drain(queue, expected=1)
    if route == "ack" or rabbitmq.release < (4, 0):
        assert found.kind == kind
        assert (found.value if kind in VALUES else found.body) is not None
    elif kind in VALUES:
        # The JMS type is an annotation, which a copy over STOMP cannot have.
        check_content(found, kind)
    else:
        assert (found.kind, found.body) == (kind, "Grüße".encode())
