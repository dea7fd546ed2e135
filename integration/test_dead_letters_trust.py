"""Properties that producers wrote on dead letters neither select the destination of a redrive nor stop the tools."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from integration.eventually import eventually
from integration.raw_amqp import RawAmqp
from integration.test_dead_letters import BROWSE, NO_RETRY, address, pairs, received, tools

if TYPE_CHECKING:
    from integration.brokers import Broker

pytestmark = [
    pytest.mark.ci("forged headers of dead letters"),
    pytest.mark.own_broker("reads its dead-letter queue"),
]

__all__ = ["address"]  # the fixture

BOGUS = (
    "bogus://x", "://", "native:///x/y", "temp-queue://x", "queue://", "queue://a.>", "queue://a,b", "nowhere", "topic://",
)  # fmt: skip
ABSURD: tuple[dict[str, Any], ...] = (
    {"redeliveryLastFailure": "0001-01-01T00:00:00+23:59"},
    {"redeliveryCount": "9" * 5000},
    {"redeliveryRedrives": "-1"},
    {"redeliveryRedrives": "inf", "redeliveryOriginalId": "x" * 5000},
)
TYPED: tuple[dict[str, Any], ...] = (
    {"redeliveryCount": float("inf")},
    {"redeliveryRedrives": float("nan")},
    {"redeliveryRedrives": float("-inf"), "redeliveryCause": 7},
    {"redeliveryOriginalId": 7, "redeliveryFirstFailure": True},
)


def uri_of(broker: Broker, protocol: str, *options: str) -> str:
    """Return the broker's URI with more options."""
    uri = broker.uri(protocol=protocol)
    return uri + "".join(f"{'&' if '?' in uri or at else '?'}{option}" for at, option in enumerate(options))


@pairs
def test_bogus_origins_stay(peer: tuple[Broker, str], address: str, unique_queue: str) -> None:
    """A dead letter with a bogus origin stays, unless `to` is given; all others are redriven."""
    dead_queue = f"{unique_queue}.dead"
    with redelivery.connect(f"{address.removesuffix('.dead')}.other", policies=NO_RETRY) as connection:
        for number, origin in enumerate((f"queue://{unique_queue}", *BOGUS, f"queue://{unique_queue}")):
            connection.send(dead_queue, f"{number}", headers={"redeliveryOriginalDestination": origin})
        with tools(address, peer) as dead:
            done = dead.redrive()
            assert (done.redriven, done.without_origin) == (2, len(BOGUS))
            assert done.destinations == {f"queue://{unique_queue}": 2}
            assert len(list(dead)) == len(BOGUS)
        back = received(connection, unique_queue, 2)
        assert sorted(message.text for message in back) == ["0", str(len(BOGUS) + 1)]
        with tools(address, peer) as dead:
            assert dead.redrive(to=f"{unique_queue}.end").redriven == len(BOGUS)
        assert len(received(connection, f"{unique_queue}.end", len(BOGUS))) == len(BOGUS)


@pairs
def test_absurd_properties_stop_nothing(peer: tuple[Broker, str], address: str, unique_queue: str) -> None:
    """Dead letters with absurd properties are listed, counted and redriven like the others."""
    broker, protocol = peer
    origin = {"redeliveryOriginalDestination": f"queue://{unique_queue}"}
    count = len(ABSURD)
    with redelivery.connect(f"{address.removesuffix('.dead')}.other", policies=NO_RETRY) as connection:
        for odd in ABSURD:
            connection.send(f"{unique_queue}.dead", "odd", headers={**origin, **odd})
        if protocol == "amqp":
            count += len(TYPED)
            with RawAmqp(broker) as raw:
                for odd in TYPED:
                    raw.send(f"{unique_queue}.dead", properties={**origin, **odd})
        with tools(address, peer) as dead:
            assert len(list(dead)) == sum(group.count for group in dead.summary()) == count
            assert dead.redrive().redriven == count
        assert len(received(connection, unique_queue, count)) == count


DEPUTIES = [
    pytest.param((name, consumes), sends, reads, id="-".join((name, consumes, sends, reads)))
    for name, consumers in (("activemq", ("amqp", "stomp")), ("artemis", ("amqp",)))
    for consumes in consumers
    for sends in ("amqp", "stomp")
    for reads in ("amqp", "stomp")
]


@pytest.mark.parametrize(("peer", "sends", "reads"), DEPUTIES, indirect=["peer"])
def test_a_producer_does_not_choose_where_its_poison_is_redriven(
    peer: tuple[Broker, str], unique_queue: str, sends: str, reads: str
) -> None:
    """Poison is redriven to its real queue on Classic, and on Artemis with the broker's own poison acknowledgement."""
    broker, consumes = peer
    run, admin = uuid.uuid4().hex, f"{unique_queue}.admin"
    forged = {
        "run": run,
        "redeliveryOriginalDestination": f"queue://{admin}",
        "redeliveryCopy": f"x@queue://{unique_queue}",
        "redeliveryCause": "ValueError: x",
        "dlqDeliveryFailureCause": "ValueError: x",
        "original-destination": f"/queue/{admin}",
        "_AMQ_ORIG_ADDRESS": admin,
        "_AMQ_ORIG_QUEUE": admin,
        "JMS_AMQP_MA_x-opt-ORIG-ADDRESS": admin,
    }
    if broker.name == "artemis" and sends == "stomp":
        # On that pair it makes two different records: see the next test.
        del forged["JMS_AMQP_MA_x-opt-ORIG-ADDRESS"]
    if broker.name == "artemis" and sends == "amqp":
        del forged["_AMQ_ORIG_ADDRESS"]
    with redelivery.connect(uri_of(broker, sends)) as connection:
        connection.send(unique_queue, "transfer", headers=forged)
    options = ("redelivery.deadLetter=ack",) if broker.name == "artemis" else ()
    poison_one(uri_of(broker, consumes, *options), unique_queue)
    take = (broker.name, reads) not in BROWSE
    with redelivery.dead_letters(uri_of(broker, reads), take=take, idle=1.0) as dead:
        (letter,) = [one for one in dead if one.headers.get("run") == run]
        assert letter.original_destination == f"queue://{unique_queue}"
        done = dead.redrive(destination=unique_queue)
        assert (done.redriven, done.destinations) == (1, {f"queue://{unique_queue}": 1})
        assert done.overruled == (1 if broker.name == "artemis" else 0)
    with redelivery.connect(uri_of(broker, consumes), policies=NO_RETRY) as connection:
        assert [message.text for message in received(connection, unique_queue, 1)] == ["transfer"]
        assert received(connection, admin, 0) == []


def poison_one(uri: str, queue: str) -> None:
    """Receive a message and fail it as poison."""
    with redelivery.connect(uri, policies=NO_RETRY) as connection:
        consumer = connection.consumer(queue)
        message = consumer.receive(timeout=20)
        assert message is not None
        message.fail("who knows")
        eventually(lambda: connection.report().poisoned == 1, 60)


@pytest.mark.parametrize("peer", [("artemis", "amqp")], ids="-".join, indirect=True)
@pytest.mark.parametrize(
    ("sends", "name"), [("stomp", "JMS_AMQP_MA_x-opt-ORIG-ADDRESS"), ("amqp", "_AMQ_ORIG_ADDRESS")]
)
def test_two_records_that_differ(peer: tuple[Broker, str], unique_queue: str, sends: str, name: str) -> None:
    """With two different records over AMQP the origin is unknown, and the message stays; STOMP shows only Artemis'."""
    broker, _ = peer
    run = uuid.uuid4().hex
    with redelivery.connect(uri_of(broker, sends)) as connection:
        connection.send(unique_queue, "transfer", headers={"run": run, name: f"{unique_queue}.admin"})
    poison_one(uri_of(broker, "amqp", "redelivery.deadLetter=ack"), unique_queue)
    with redelivery.dead_letters(uri_of(broker, "amqp")) as dead:
        (letter,) = [one for one in dead if one.headers.get("run") == run]
        assert letter.original_destination is None
        assert dead.redrive(id=str(letter.message_id)).without_origin == 1
    with redelivery.dead_letters(uri_of(broker, "stomp"), take=True, idle=1.0) as dead:
        assert dead.redrive(destination=unique_queue).destinations == {f"queue://{unique_queue}": 1}


@pytest.mark.parametrize("peer", [("activemq", "stomp"), ("activemq", "amqp")], ids="-".join, indirect=True)
def test_what_classic_has_expired(peer: tuple[Broker, str], unique_queue: str) -> None:
    """The origin of an expired message is Classic's record, which only STOMP shows, not its producer's property."""
    broker, protocol = peer
    run = uuid.uuid4().hex
    claim = {
        "run": run,
        "redeliveryOriginalDestination": f"queue://{unique_queue}.admin",
        "redeliveryCause": "x",
    }
    with redelivery.connect(uri_of(broker, protocol)) as connection:
        connection.send(unique_queue, "late", headers=claim, ttl=0.01)
        # Classic finds expired messages when a consumer asks for them.
        assert received(connection, unique_queue, 0) == []
        with redelivery.dead_letters(uri_of(broker, protocol)) as dead:
            eventually(lambda: any(one.headers.get("run") == run for one in dead), 60)
            (letter,) = [one for one in dead if one.headers.get("run") == run]
            assert letter.original_destination == (f"queue://{unique_queue}" if protocol == "stomp" else None)


def send_odd(broker: Broker, queue: str, *odd: dict[str, Any]) -> None:
    """Send messages with unusual properties from an AMQP producer."""
    with RawAmqp(broker) as raw:
        for number, properties in enumerate(odd):
            raw.send(queue, f"{number}", properties={"run": queue, **properties})


@pytest.mark.parametrize("consumes", ["amqp", "stomp"])
@pytest.mark.parametrize(
    "odd",
    [
        {f"x{n}:1\noriginal-destination:/queue/admin\ny{n}": "v" for n in range(8)},
        {"original-destination": "/topic/admin"},
        {"destination": "/queue/admin"},
    ],
    ids=["a line end in a name", "a topic", "destination"],
)
def test_no_property_becomes_classics_record(
    activemq: Broker, unique_queue: str, consumes: str, odd: dict[str, Any]
) -> None:
    """A dead letter goes back to its real queue, or stays, for each protocol of its consumer and of the tools."""
    send_odd(activemq, unique_queue, odd)
    poison_one(uri_of(activemq, consumes), unique_queue)
    for reads in ("stomp", "amqp"):
        with redelivery.dead_letters(uri_of(activemq, reads)) as dead:
            (letter,) = [one for one in dead if one.headers.get("run") == unique_queue]
            # Over AMQP Classic shows no record on messages that it dead-lettered itself.
            unknown = (None,) if (consumes, reads) == ("amqp", "amqp") and "destination" in odd else ()
            assert letter.original_destination in (f"queue://{unique_queue}", *unknown)


def test_what_is_shown_over_stomp_is_all_that_is_there(activemq: Broker, unique_queue: str) -> None:
    """Properties with the names of the headers of a browse neither end it nor stop it."""
    odd = [
        {},
        {"ack": "same"},
        {"ack": "same"},
        {"browser": "end"},
        {"browser": "end", "message-id": "0"},
        {},
    ]
    send_odd(activemq, unique_queue, *odd)
    with redelivery.dead_letters(uri_of(activemq, "stomp"), unique_queue) as dead:
        assert sorted(letter.body for letter in dead) == [b"%d" % number for number in range(len(odd))]
        assert dead.redrive(dry_run=True, to=f"{unique_queue}.to").redriven == len(odd)


@pytest.mark.parametrize("odd", [{"content-length": "99999"}, {"content-length": "0"}], ids=str)
def test_the_letter_that_stops_the_tools_over_stomp_is_named(
    activemq: Broker, unique_queue: str, odd: dict[str, Any]
) -> None:
    """A dead letter that stops the tools over STOMP is named in the error; over AMQP it can be removed."""
    send_odd(activemq, unique_queue, {}, odd, {})
    with redelivery.dead_letters(uri_of(activemq, "amqp"), unique_queue) as dead:
        (bad,) = [letter for letter in dead if "content-length" in letter.headers]
    for take in (False, True):
        with (
            redelivery.dead_letters(uri_of(activemq, "stomp"), unique_queue, take=take) as dead,
            pytest.raises(redelivery.RedeliveryError, match=f"{bad.message_id}.*use AMQP"),
        ):
            list(dead)
    with redelivery.dead_letters(uri_of(activemq, "amqp"), unique_queue) as dead:
        assert dead.purge(id=str(bad.message_id)).purged == 1
    with redelivery.dead_letters(uri_of(activemq, "stomp"), unique_queue) as dead:
        assert len(list(dead)) == 2
