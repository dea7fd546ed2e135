"""An operator's settings of dead letters: where a consumer follows them, and where its own options decide."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from integration.eventually import eventually, gathered
from integration.raw_amqp import RawAmqp
from integration.test_dead_letter_strategies import ONCE, fail, own, settled
from integration.work import Running

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker
    from integration.conftest import Client

pytestmark = [
    pytest.mark.ci("what an operator has configured, on each broker that has it"),
    pytest.mark.own_broker("reads its dead-letter queue"),
]

ACK: dict[str, Any] = {"redelivery__deadLetter": "ack"}
INDIVIDUAL: dict[str, Any] = {
    "redelivery__deadLetterStrategy": "individual", "redelivery__queuePrefix": "DLQ.",
}  # fmt: skip
DISCARDING: dict[str, Any] = {
    "redelivery__deadLetterStrategy": "discarding", "redelivery__discard": r"drop\.[0-9]{3}\..*",
}  # fmt: skip
on_classic = pytest.mark.parametrize(
    "peer", [("activemq", "stomp"), ("activemq", "amqp")], ids="-".join, indirect=True
)


def failed(broker: Broker, protocol: str, queue: str, run: str, **options: Any) -> redelivery.Report:
    """Make one message of a queue fail once; return the report when it is settled."""
    with redelivery.connect(broker.uri(protocol=protocol, **ONCE, **options)) as connection:
        connection.listen(queue, fail)
        with Running(connection):
            connection.send(queue, "body", headers={"run": run})
            eventually(lambda: connection.report().poisoned + connection.report().discarded == 1)
        return connection.report()


@on_classic
@pytest.mark.parametrize(
    ("options", "place"),
    [({}, "ActiveMQ.DLQ"), (ACK, "DLQ.{queue}"), (INDIVIDUAL, "DLQ.{queue}")],
    ids=["default", "ack", "individual"],
)
def test_classics_own_individual_strategy(
    peer: tuple[Broker, str],
    client_for: Callable[[Broker, str], Client],
    unique_queue: str,
    options: dict[str, Any],
    place: str,
) -> None:
    """The broker's strategy has a letter with `deadLetter=ack`; a copy goes where the same options of the URI say."""
    broker, protocol = peer
    client, run, queue = client_for(broker, protocol), uuid.uuid4().hex, f"ind.{unique_queue}"
    failed(broker, protocol, queue, run, **options)
    place = place.format(queue=queue)
    (letter,) = own(client, place, run, 1)
    assert ("redeliveryCause" in letter.properties) is (options is not ACK)
    other = next(name for name in ("ActiveMQ.DLQ", f"DLQ.{queue}") if name != place)
    assert own(client, other, run) == []


@on_classic
@pytest.mark.parametrize(
    ("options", "kept"), [({}, 1), (ACK, 0), (DISCARDING, 0)], ids=["default", "ack", "discarding"]
)
def test_classics_own_discarding_plugin(
    peer: tuple[Broker, str],
    client_for: Callable[[Broker, str], Client],
    unique_queue: str,
    options: dict[str, Any],
    kept: int,
) -> None:
    """The broker's plug-in drops a letter with `deadLetter=ack`; a copy is dropped by the same names in the URI."""
    broker, protocol = peer
    client, run = client_for(broker, protocol), uuid.uuid4().hex
    report = failed(broker, protocol, f"drop.042.{unique_queue}", run, **options)
    assert report.discarded == (options is DISCARDING)
    assert len(own(client, "ActiveMQ.DLQ", run, kept)) == kept


@on_classic
@pytest.mark.parametrize(("options", "starts"), [({}, 1), (ACK, 3)], ids=["default", "ack"])
def test_classics_own_redelivery_plugin(
    peer: tuple[Broker, str],
    client_for: Callable[[Broker, str], Client],
    unique_queue: str,
    options: dict[str, Any],
    starts: int,
) -> None:
    """With `deadLetter=ack` and no redelivery here the broker's plug-in redelivers; a copy is a dead letter at once."""
    broker, protocol = peer
    client, run, queue = client_for(broker, protocol), uuid.uuid4().hex, f"again.{unique_queue}"
    handled: list[str] = []

    def handle(message: redelivery.Message) -> None:
        handled.append(message.text)
        raise ValueError("no")

    with redelivery.connect(broker.uri(protocol=protocol, **ONCE, **options)) as connection:
        connection.listen(queue, handle)
        with Running(connection):
            connection.send(queue, "body", headers={"run": run})
            settled(connection, starts)
            found = gathered(lambda: own(client, "ActiveMQ.DLQ", run), 1)
    assert (len(handled), [letter.body for letter in found]) == (starts, [b"body"])


NAMED: dict[str, Any] = {"redelivery__deadLetterDestination": "DLQ"}


@pytest.mark.parametrize("peer", [("artemis", "stomp"), ("artemis", "amqp")], ids="-".join, indirect=True)
@pytest.mark.parametrize("options", [{}, NAMED, ACK], ids=["default", "named", "ack"])
def test_artemis_own_dead_letter_address(
    peer: tuple[Broker, str],
    client_for: Callable[[Broker, str], Client],
    unique_queue: str,
    options: dict[str, Any],
) -> None:
    """A copy goes into the queue that Artemis makes for it, or into the one that the URI names, and into no other."""
    broker, protocol = peer
    client, run, queue = client_for(broker, "amqp"), uuid.uuid4().hex, f"ind.{unique_queue}"
    if options is ACK and protocol == "stomp":
        uri = broker.uri(protocol=protocol, **options)
        refused = pytest.raises(redelivery.ConfigurationError, match=r"redelivery\.deadLetter=ack")
        with redelivery.connect(uri) as connection, refused:
            connection.consumer(queue)
        return
    if options is NAMED:
        # Artemis has its own queue on that address, too.
        failed(broker, "amqp", queue, uuid.uuid4().hex, **ACK)
    failed(broker, protocol, queue, run, **options)
    places = [f"DLQ::DLQ.{queue}", "DLQ"]
    if options is NAMED:
        places.reverse()
    (letter,) = own(client, places[0], run, 1)
    if options is not ACK:
        assert own(client, places[1], run) == []
    assert ("redeliveryCause" in letter.properties) is (options is not ACK)


def test_artemis_own_record_is_in_the_annotations(artemis: Broker, unique_queue: str) -> None:
    """A letter that Artemis moved itself has its address, queue and id in `message.annotations` over AMQP."""
    queue, run = f"ind.{unique_queue}", uuid.uuid4().hex
    failed(artemis, "amqp", queue, run, **ACK)
    again = artemis.uri(protocol="amqp", redelivery__deadLetterDestination=f"{unique_queue}.again")
    with (
        redelivery.connect(again) as connection,
        connection.consumer(f"native://DLQ::DLQ.{queue}") as consumer,
    ):
        message = consumer.receive(timeout=60)
        assert message is not None
        message.accept()
    told = {name: message.annotations.get(f"x-opt-ORIG-{name}") for name in ("ADDRESS", "QUEUE")}
    assert told == {"ADDRESS": queue, "QUEUE": queue}
    assert "x-opt-ORIG-MESSAGE-ID" in message.annotations


@pytest.mark.parametrize(
    ("peer", "prefix", "place"),
    [(("brokerj", "amqp"), "max3.", "DLQ"), (("artemis", "amqp"), "ind.", "DLQ::DLQ.{queue}")],
    ids=["brokerj", "artemis"], indirect=["peer"],
)  # fmt: skip
def test_a_limit_of_the_broker_counts_no_failure_of_a_handler(
    peer: tuple[Broker, str],
    client_for: Callable[[Broker, str], Client],
    unique_queue: str,
    prefix: str,
    place: str,
) -> None:
    """Of a queue with 3 deliveries a message with 5 redeliveries is handled 6 times: the client's policy counts."""
    broker, protocol = peer
    client, run, handled = client_for(broker, protocol), uuid.uuid4().hex, list[int]()
    quick: dict[str, Any] = {
        "jms__redeliveryPolicy__maximumRedeliveries": 5, "jms__redeliveryPolicy__initialRedeliveryDelay": 20,
        "jms__redeliveryPolicy__redeliveryDelay": 20,
    }  # fmt: skip

    def handle(message: redelivery.Message) -> None:
        handled.append(message.delivery_count)
        raise ValueError("no")

    with redelivery.connect(broker.uri(protocol=protocol, **quick)) as connection:
        connection.listen(prefix + unique_queue, handle)
        with Running(connection):
            connection.send(prefix + unique_queue, "body", headers={"run": run})
            settled(connection, 1)
    (letter,) = own(client, place.format(queue=prefix + unique_queue), run, 1)
    assert handled == [1, 2, 3, 4, 5, 6]
    assert letter.properties["redeliveryCause"] == "ValueError: no"


def test_a_letter_that_broker_j_has_moved_has_no_origin(brokerj: Broker, unique_queue: str) -> None:
    """The tools show a letter of an alternate binding without origin and cause; a redrive of it needs `to`."""
    queue, name = f"max3.{unique_queue}", uuid.uuid4().hex
    with RawAmqp(brokerj) as raw:
        raw.send(queue, b"body", id=name)
        assert raw.fail(queue, 10, expected=3) == [0, 1, 2]
    with redelivery.dead_letters(brokerj.uri()) as dead:
        letter = dead.show(name)
        assert (letter.original_destination, letter.cause) == (None, "unknown")
        assert dead.redrive(id=name).without_origin == 1
        assert dead.redrive(id=name, to=unique_queue).redriven == 1


def test_broker_j_reports_what_it_has_counted(brokerj: Broker, unique_queue: str) -> None:
    """The broker's delivery count is `message.broker_count`: two failures of another client are 2."""
    with RawAmqp(brokerj) as raw:
        raw.send(unique_queue, b"body")
        assert raw.fail(unique_queue, 2, expected=2) == [0, 1]
    with redelivery.connect(brokerj.uri()) as connection, connection.consumer(unique_queue) as consumer:
        message = consumer.receive(timeout=60)
        assert message is not None
        assert (message.broker_count, message.redelivered) == (2, True)
        message.accept()
