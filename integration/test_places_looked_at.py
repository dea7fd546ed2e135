"""The dead-letter tools without a queue, on real brokers: all places of the URI are looked at, and no other."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from integration.eventually import eventually
from integration.raw_amqp import RawAmqp
from integration.test_dead_letters import BROWSE, NO_RETRY, is_poisoned, pairs

if TYPE_CHECKING:
    from integration.brokers import Broker

pytestmark = [
    pytest.mark.ci("the places of dead letters on each broker"),
    pytest.mark.own_broker("reads its dead-letter queue"),
]


def uri_of(peer: tuple[Broker, str], options: str) -> str:
    """Return a URI with these options."""
    broker, protocol = peer
    uri = broker.uri(protocol=protocol)
    return f"{uri}{'&' if '?' in uri else '?'}{options}"


def poisoned(uri: str, *queues: str) -> None:
    """Dead-letter a message of each queue, as a copy."""
    with redelivery.connect(uri, policies=NO_RETRY) as connection:
        for number, queue in enumerate(queues, 1):
            connection.send(queue, queue)
            with connection.consumer(queue) as consumer:
                message = consumer.receive(timeout=20)
                assert message is not None
                message.poison(f"E{queue[-1]}")
                eventually(partial(is_poisoned, connection, number), 60)


@pytest.fixture(autouse=True)
def classics_own_queue(request: pytest.FixtureRequest) -> None:
    """Empty it, since it is looked at beside named places: other tests have left letters there."""
    if "peer" in request.fixturenames and (broker := request.getfixturevalue("peer")[0]).name == "activemq":
        with redelivery.dead_letters(broker.uri(protocol="amqp"), broker.dead_letter_queue) as dead:
            dead.purge()


def tools(peer: tuple[Broker, str], uri: str) -> redelivery.DeadLetterQueue:
    """Return the tools, which consume if the broker cannot show a queue."""
    return redelivery.dead_letters(uri, take=(peer[0].name, peer[1]) not in BROWSE, idle=0.5)


@pairs
def test_the_mapped_places(peer: tuple[Broker, str], unique_queue: str) -> None:
    """Each letter is found in its place, redriven from there, and none is left."""
    one, two, other = (f"{unique_queue}.{name}" for name in "abc")
    entry = "redelivery.deadLetterMap."
    uri = uri_of(
        peer,
        f"{entry}{one}.destination={one}.dead&{entry}{two}.destination={two}.dead"
        f"&redelivery.deadLetterDestination={unique_queue}.rest",
    )
    poisoned(uri, one, two, other)
    places = [f"queue://{one}.dead", f"queue://{two}.dead", f"queue://{unique_queue}.rest"]
    with tools(peer, uri) as dead:
        assert [(letter.queue, letter.original_destination) for letter in dead] == [
            (place, f"queue://{origin}") for place, origin in zip(places, (one, two, other), strict=True)
        ]
        assert sorted(group.queue for group in dead.summary()) == sorted(places)
        assert dead.limit is None
        assert [letter.queue for letter in dead.list(destination=two)] == [places[1]]
        done = dead.redrive()
        assert done.destinations == {f"queue://{origin}": 1 for origin in (one, two, other)}
        assert list(dead) == []


@pairs
def test_a_place_for_each_queue(peer: tuple[Broker, str], unique_queue: str) -> None:
    """Individual places are listed where the broker can; elsewhere the error says so, and an origin is enough."""
    one, two = f"{unique_queue}.a", f"{unique_queue}.b"
    prefix = f"dead.{unique_queue}."
    uri = uri_of(
        peer,
        f"redelivery.deadLetterStrategy=individual&redelivery.queuePrefix={prefix}&redelivery.topicPrefix={prefix}",
    )
    poisoned(uri, one, two)
    places = [f"queue://{prefix}{one}", f"queue://{prefix}{two}"]
    with tools(peer, uri) as dead:
        if peer[0].name in ("activemq", "artemis"):
            assert sorted(letter.queue for letter in dead) == places
        else:
            with pytest.raises(
                redelivery.ConfigurationError, match="does not list queues over this protocol"
            ):
                list(dead)
        assert [letter.queue for letter in dead.list(destination=two)] == places[1:]
        assert dead.redrive(destination=[one, two]).redriven == 2


def test_artemis_own_letter_in_two_queues(artemis: Broker, unique_queue: str) -> None:
    """Artemis puts its letter into each queue of the dead-letter address: it is counted, and redriven, once."""
    queue = f"ind.{unique_queue}"
    uri = artemis.uri(protocol="amqp", redelivery__deadLetter="ack")
    poisoned(uri, queue)
    places = [f"native://DLQ::DLQ.{queue}", "queue://DLQ"]
    for place in places:
        with redelivery.dead_letters(uri, place) as dead:
            assert len(list(dead.list(destination=queue))) == 1
    with redelivery.dead_letters(uri, "DLQ.>") as dead:
        assert sum(group.count for group in dead.summary(destination=queue)) == 1
        assert dead.redrive(destination=queue, dry_run=True).redriven == 1
    with redelivery.dead_letters(uri) as dead:
        assert dead.places(destination=queue) == (places[0],)
        assert dead.redrive(destination=queue).destinations == {f"queue://{queue}": 1}
    with redelivery.connect(uri) as connection, connection.consumer(queue) as consumer:
        message = consumer.receive(timeout=20)
        assert message is not None
        message.accept()
        assert consumer.receive(timeout=1) is None


@pytest.mark.parametrize("protocol", ["amqp", "stomp"])
@pytest.mark.parametrize("sends_back_first", [True, False])
def test_artemis_own_place_closes_a_circle(
    artemis: Broker, unique_queue: str, protocol: str, *, sends_back_first: bool
) -> None:
    """Of a consumer that sends dead letters back from the broker's own place, and that of their origin, one begins."""
    queue = f"ind.{unique_queue}"
    place = f"native://DLQ::DLQ.{queue}"
    consumers: list[tuple[str, dict[str, Any]]] = [(place, {"dead_letter": queue}), (queue, {})]
    with redelivery.connect(artemis.uri(protocol=protocol)) as connection:
        # Its first message makes the queue, and the place.
        connection.send(queue, "body")
        (one, its), (two, others) = consumers if sends_back_first else consumers[::-1]
        connection.consumer(one, **its)
        with pytest.raises(redelivery.ConfigurationError, match="would circulate for ever"):
            connection.consumer(two, **others)
    without(artemis, f"DLQ.{queue}")


def without(artemis: Broker, queue: str) -> None:
    """Delete a queue without a filter of the address DLQ: other tests have their dead letters there."""
    with RawAmqp(artemis) as raw:
        raw.manage("broker", "destroyQueue", queue, True)


def test_what_only_classics_own_acknowledgement_keeps(activemq: Broker, unique_queue: str) -> None:
    """A body that cannot be copied over STOMP goes to Classic's own queue, which is emptied by origin only."""
    other, place = f"{unique_queue}.other", f"{unique_queue}.dead"
    options = "".join(
        f"&redelivery.deadLetterMap.{each}.destination={place}" for each in (unique_queue, other)
    )
    uri = uri_of((activemq, "stomp"), f"redelivery.deadLetterDestination={unique_queue}.rest{options}")
    for name in (unique_queue, other):
        with redelivery.connect(uri, policies=NO_RETRY) as connection, connection.consumer(name) as consumer:
            # Over STOMP an empty body may be a JMS Map that did not arrive.
            for number, body in enumerate(("", "text"), 1):
                connection.send(name, body)
                message = consumer.receive(timeout=20)
                assert message is not None
                message.fail("E")
                eventually(partial(is_poisoned, connection, number), 60)
    own = "queue://ActiveMQ.DLQ"
    with redelivery.dead_letters(uri) as dead:
        letters = dead.list(destination=[unique_queue, other])
        assert sorted((one.queue, one.body, one.whole) for one in letters) == sorted(
            [(own, b"", False), (f"queue://{place}", b"text", True)] * 2
        )
        done = dead.purge()
        assert done.purged == 2
        assert f"{own}: not touched" in str(done.incomplete)
        assert dead.purge(destination=other).purged == 1
        assert [
            (one.queue, one.original_destination) for one in dead.list(destination=[unique_queue, other])
        ] == [(own, f"queue://{unique_queue}")]
