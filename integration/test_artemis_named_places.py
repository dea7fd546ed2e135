"""Queues that are named with their address on Artemis: dead-letter places that would drop, and selectors.

docs/measured/artemis-dead-letter-address.md has the facts.
"""

from __future__ import annotations

import json
import logging
import uuid
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from integration.eventually import eventually
from integration.raw_amqp import AmqpError, RawAmqp, proton, reactor
from integration.raw_stomp import RawStomp
from integration.test_artemis_own_places import (
    allow,
    each_protocol,
    fail,
    letters,
    listed,
    made,
    settings,
    takes_settings,
)
from integration.test_dead_letters import NO_RETRY
from integration.test_doctor import Diagnosis
from redelivery import Classifier, events
from redelivery.brokers.facts import numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from integration.brokers import Broker

pytestmark = [
    pytest.mark.ci("queues of Artemis that drop what they are sent"),
    pytest.mark.own_broker("makes queues and users"),
]
EU = "region = 'eu'"


@pytest.fixture
def manager(artemis: Broker) -> Iterator[RawAmqp]:
    """A user who manages the broker."""
    with RawAmqp(artemis) as raw:
        yield raw


@each_protocol
@pytest.mark.parametrize("how", ["connection", "map", "consumer", "exception"])
def test_a_place_whose_queue_has_a_filter_is_refused(
    artemis: Broker, manager: RawAmqp, new_queue: Callable[[], str], how: str, protocol: str
) -> None:
    """The consumer does not begin, wherever the place is named; its message stays, and no letter is lost."""
    name, address, queue = new_queue(), new_queue(), new_queue()
    made(manager, queue, address, **{"filter-string": EU})
    place = f"native://{address}::{queue}"
    uri: dict[str, Any] = {
        "connection": {"redelivery__deadLetterDestination": place},
        "map": {f"redelivery__deadLetterMap__{name}__destination": place},
    }
    options: dict[str, Any] = {
        "consumer": {"dead_letter": place},
        "exception": {"errors": Classifier().poison(ValueError, to=place)},
    }
    with redelivery.connect(
        artemis.uri(protocol=protocol, **uri.get(how, {})), policies=NO_RETRY
    ) as connection:
        connection.send(name, "kept")
        with pytest.raises(redelivery.AdapterError) as refused:
            connection.consumer(name, **options.get(how, {}))
    assert f"{place} cannot be used: {address}::{queue} takes only messages with {EU}:" in str(refused.value)
    assert [body for body, *_ in letters(manager, name)] == ["kept"]


@each_protocol
@pytest.mark.parametrize("how", ["connection", "map", "consumer", "exception"])
@pytest.mark.parametrize("routing", ["ANYCAST", "MULTICAST"])
def test_one_letter_at_an_address_with_more_queues(
    artemis: Broker, manager: RawAmqp, new_queue: Callable[[], str], routing: str, how: str, protocol: str
) -> None:
    """Wherever the place is named, its queue has the letters, and no other queue of that address has one."""
    name, place = new_queue(), new_queue()
    made(manager, place, place, "ANYCAST")
    made(manager, f"{place}.more", place, routing)
    uri: dict[str, Any] = {
        "connection": {"redelivery__deadLetterDestination": place},
        "map": {f"redelivery__deadLetterMap__{name}__destination": place},
    }
    options: dict[str, Any] = {
        "consumer": {"dead_letter": place},
        "exception": {"errors": Classifier().poison(ValueError, to=place)},
    }
    with redelivery.connect(
        artemis.uri(protocol=protocol, **uri.get(how, {})), policies=NO_RETRY
    ) as connection:
        connection.listen(name, fail, **options.get(how, {}))
        connection.start()
        for each in "ab":
            connection.send(name, each)
        eventually(lambda: connection.report().poisoned == 2)
    assert [body for body, *_ in letters(manager, f"{place}::{place}", 2)] == ["a", "b"]
    assert letters(manager, f"{place}::{place}.more", 0) == []


def test_an_address_with_filtered_queues_only_is_refused(
    artemis: Broker, manager: RawAmqp, new_queue: Callable[[], str]
) -> None:
    """Each of its queues is named; with one more that takes all, the consumer begins, and the letter is there."""
    name, address = new_queue(), new_queue()
    for each in ("a", "b"):
        made(manager, f"{address}.{each}", address, "ANYCAST", **{"filter-string": EU})
    with redelivery.connect(artemis.uri(protocol="amqp"), policies=NO_RETRY) as connection:
        with pytest.raises(
            redelivery.AdapterError, match=rf"{address}\.a takes only.*{address}\.b takes only"
        ):
            connection.consumer(name, dead_letter=address)
        made(manager, f"{address}.all", address, "ANYCAST")
        connection.listen(name, fail, dead_letter=address)
        connection.start()
        connection.send(name, "kept")
        eventually(lambda: connection.report().poisoned == 1)
    assert [body for body, *_ in letters(manager, f"{address}::{address}.all")] == ["kept"]


@each_protocol
def test_a_named_queue_that_is_not_there(
    artemis: Broker, manager: RawAmqp, new_queue: Callable[[], str], protocol: str
) -> None:
    """Artemis makes it, and it keeps the letter."""
    name, address, queue = new_queue(), new_queue(), new_queue()
    with redelivery.connect(artemis.uri(protocol=protocol), policies=NO_RETRY) as connection:
        connection.listen(name, fail, dead_letter=f"native://{address}::{queue}")
        connection.start()
        connection.send(name, "kept")
        eventually(lambda: connection.report().poisoned == 1)
    assert [body for body, *_ in letters(manager, f"{address}::{queue}")] == ["kept"]


@each_protocol
@pytest.mark.parametrize("what", ["disabled", "purge", "ring", "last value"])
def test_a_queue_that_loses_what_it_takes_is_refused(
    artemis: Broker, manager: RawAmqp, new_queue: Callable[[], str], what: str, protocol: str
) -> None:
    """Also by its address, where it takes turns with a good queue; `queue://` over STOMP makes one that it names."""
    address, queue = new_queue(), new_queue()
    made(manager, queue, address, "ANYCAST", **LOSING[what][0])
    made(manager, f"{queue}.good", address, "ANYCAST")
    places = [f"native://{address}::{queue}", f"native://{address}"]
    if protocol == "amqp":
        places.append(address)
    with redelivery.connect(artemis.uri(protocol=protocol)) as connection:
        for place in places:
            with pytest.raises(redelivery.AdapterError, match=f"cannot be used: {address}::{queue} "):
                connection.consumer(new_queue(), dead_letter=place)


@each_protocol
def test_places_where_artemis_finds_no_queue_are_refused(
    artemis: Broker, manager: RawAmqp, new_queue: Callable[[], str], protocol: str
) -> None:
    """A bare address without a queue, and a queue of another address."""
    address, other, queue = new_queue(), new_queue(), new_queue()
    made(manager, queue, other)
    with redelivery.connect(artemis.uri(protocol=protocol)) as connection:
        with pytest.raises(redelivery.AdapterError, match=f"the address {address} has no queue"):
            connection.consumer(new_queue(), dead_letter=f"native://{address}")
        with pytest.raises(redelivery.AdapterError, match=f"{other}::{queue} has another address"):
            connection.consumer(new_queue(), dead_letter=f"native://{address}::{queue}")


@each_protocol
def test_the_queue_of_the_consumers_own_letters(
    artemis: Broker, manager: RawAmqp, new_queue: Callable[[], str], protocol: str
) -> None:
    """The filter of Artemis' own dead-letter queue of that address takes the copy; of another one it is refused."""
    name, address = new_queue(), new_queue()
    queue = f"DLQ.{name}"
    made(manager, queue, address, **{"filter-string": f"_AMQ_ORIG_ADDRESS = '{name}'"})
    place = f"native://{address}::{queue}"
    with redelivery.connect(artemis.uri(protocol=protocol), policies=NO_RETRY) as connection:
        connection.listen(name, fail, dead_letter=place)
        connection.start()
        connection.send(name, "kept")
        eventually(lambda: connection.report().poisoned == 1)
        with pytest.raises(redelivery.AdapterError, match="takes only messages with _AMQ_ORIG_ADDRESS"):
            connection.consumer(new_queue(), dead_letter=place)
    assert [body for body, *_ in letters(manager, f"{address}::{queue}")] == ["kept"]


@pytest.mark.parametrize("option", ["to", "quarantine"])
def test_a_redrive_to_a_queue_with_a_filter_is_refused(
    artemis: Broker, manager: RawAmqp, new_queue: Callable[[], str], option: str
) -> None:
    """Nothing is redriven, and the letters stay."""
    dead, address, queue = new_queue(), new_queue(), new_queue()
    made(manager, queue, address, **{"filter-string": EU})
    manager.send(dead, "kept")
    options: Any = {option: f"native://{address}::{queue}"}
    with (
        redelivery.dead_letters(artemis.uri(protocol="amqp"), dead) as found,
        pytest.raises(redelivery.ConfigurationError, match=f"{queue} takes only messages with {EU}"),
    ):
        found.redrive(**options)
    assert [body for body, *_ in letters(manager, dead)] == ["kept"]


@pytest.mark.parametrize("protocol", ["amqp", "stomp"])
def test_an_export_is_not_sent_to_a_queue_with_a_filter(
    artemis: Broker, manager: RawAmqp, new_queue: Callable[[], str], tmp_path: Path, protocol: str
) -> None:
    """No line is sent; to a queue without a filter all are."""
    dead, address, queue, kept = new_queue(), new_queue(), new_queue(), new_queue()
    made(manager, queue, address, **{"filter-string": EU})
    manager.send(dead, "kept")
    file = tmp_path / "dead.jsonl"
    with redelivery.dead_letters(artemis.uri(protocol=protocol), dead, take=protocol == "stomp") as found:
        assert found.export(file) == 1
        with pytest.raises(redelivery.ConfigurationError, match=f"{queue} takes only messages with {EU}"):
            found.resend(file, to=f"native://{address}::{queue}")
        assert found.resend(file, to=kept).resent == 1
    assert [body for body, *_ in letters(manager, kept)] == ["kept"]


@each_protocol
def test_the_doctor_looks_at_such_a_place(
    artemis: Broker, manager: RawAmqp, new_queue: Callable[[], str], protocol: str
) -> None:
    """It fails, with queue and filter."""
    name, address, queue = new_queue(), new_queue(), new_queue()
    made(manager, queue, address, **{"filter-string": EU})
    place: dict[str, Any] = {"redelivery__deadLetterDestination": f"native://{address}::{queue}"}
    found = Diagnosis(artemis.uri(protocol=protocol, **place), name)
    assert f"{address}::{queue} takes only messages with {EU}" in found.text("dead letters", "FAIL")


@pytest.mark.parametrize("rights", ["none", "send"])
def test_a_user_without_the_right_to_ask(
    artemis: Broker,
    manager: RawAmqp,
    new_queue: Callable[[], str],
    caplog: pytest.LogCaptureFixture,
    rights: str,
) -> None:
    """The consumers begin as before, with one warning: what a filter keeps out would be lost."""
    stem = new_queue()
    asked = ("activemq.management", "redelivery.management") if rights == "send" else ()
    with (
        caplog.at_level(logging.INFO),
        limited(manager, f"{stem}.#", *asked) as login,
        redelivery.connect(artemis.uri(protocol="amqp", **login), policies=NO_RETRY) as connection,
    ):
        said = len(caplog.records)
        with connection.consumer(f"{stem}.a", dead_letter=f"{stem}.dead"):
            pass
        with connection.consumer(f"{stem}.a", dead_letter=f"{stem}.dead"):
            (warning,) = [each.message for each in caplog.records[said:]]
        assert "does not tell this user which queues" in warning
    assert [each["name"] for each in listed(manager, f"{stem}.dead")] == [f"{stem}.dead"]


@contextmanager
def limited(manager: RawAmqp, *matches: str) -> Iterator[dict[str, Any]]:
    """Yield the log-in options of a user who may use only these addresses."""
    user = f"user{uuid.uuid4().hex[:8]}"
    manager.manage("broker", "addUser", user, "secret", "limited", True)
    for match in matches:
        allow(manager, match)
    try:
        yield {"jms__userName": user, "jms__password": "secret"}
    finally:
        for match in matches:
            manager.manage("broker", "removeSecuritySettings", match)
        manager.manage("broker", "removeUser", user)


@pytest.mark.parametrize("protocol", ["amqp", "stomp"])
def test_an_export_of_a_user_without_the_right_to_ask_is_sent(
    artemis: Broker, manager: RawAmqp, new_queue: Callable[[], str], tmp_path: Path, protocol: str
) -> None:
    """The destination is believed to keep all, and each line is sent once."""
    stem, file = new_queue(), tmp_path / "dead.jsonl"
    manager.send(f"{stem}.dead", "kept")
    with (
        limited(manager, f"{stem}.#") as login,
        redelivery.dead_letters(
            artemis.uri(protocol=protocol, **login), f"{stem}.dead", take=protocol == "stomp"
        ) as found,
    ):
        assert found.export(file) == 1
        assert found.resend(file, to=f"{stem}.kept").resent == 1
    assert [body for body, *_ in letters(manager, f"{stem}.kept")] == ["kept"]


LOSING: dict[str, tuple[dict[str, object], int]] = {
    "good": ({}, 2),
    "filter": ({"filter-string": EU}, 0),
    "disabled": ({"enabled": False}, 0),
    "purge": ({"purge-on-no-consumers": True}, 0),
    "ring": ({"ring-size": 1}, 1),
    "last value": ({"last-value-key": "region"}, 1),
}


@pytest.mark.parametrize("protocol", ["amqp", "stomp"])
@pytest.mark.parametrize("routing", ["ANYCAST", "MULTICAST"])
@pytest.mark.parametrize("what", LOSING)
def test_what_artemis_does_with_messages_for_a_queue(
    artemis: Broker, manager: RawAmqp, new_queue: Callable[[], str], what: str, routing: str, protocol: str
) -> None:
    """It confirms two messages by address and queue, also those that it drops; either routing type is reached."""
    address, queue = new_queue(), new_queue()
    more, kept = LOSING[what]
    made(manager, queue, address, routing, **more)
    put_twice(artemis, manager, protocol, f"{address}::{queue}")
    if what == "filter" and numbers(artemis.version) < (2, 32):
        # 2.31.2 passes by the filter of a queue that a message names.
        kept = 2
    assert [each["messageCount"] for each in listed(manager, queue)] == [str(kept)]


def put_twice(artemis: Broker, manager: RawAmqp, protocol: str, name: str, **headers: str) -> None:
    """Send two messages to a broker's own address; both are confirmed."""
    if protocol == "amqp":
        with closing(manager.connection.create_sender(name, name=f"to-{name}")) as sender:
            for _ in range(2):
                sender.send(proton.Message(body="x", durable=True, properties={"region": "us"}))
        return
    with RawStomp(artemis) as raw:
        for number in range(2):
            receipt = {"receipt": f"own{number}"}
            raw.connection.send(
                name, b"x", headers={"persistent": "true", "region": "us", **headers, **receipt}
            )
            raw.confirmed(f"own{number}")


@pytest.mark.parametrize("protocol", ["amqp", "stomp"])
def test_where_artemis_finds_no_queue(
    artemis: Broker, manager: RawAmqp, new_queue: Callable[[], str], protocol: str
) -> None:
    """A bare address without a queue, and a queue of another address: both messages are confirmed and dropped."""
    address, other, queue = new_queue(), new_queue(), new_queue()
    made(manager, queue, other)
    for name in (address, f"{address}::{queue}"):
        put_twice(artemis, manager, protocol, name)
    assert listed(manager, address) == []
    assert [each["messageCount"] for each in listed(manager, queue)] == ["0"]


def test_over_stomp_the_kind_decides(artemis: Broker, manager: RawAmqp, new_queue: Callable[[], str]) -> None:
    """A message for an anycast queue is dropped, if it names a multicast one; by its address it gets one of its own."""
    address, queue = new_queue(), new_queue()
    made(manager, queue, address, **{"filter-string": EU})
    for name in (f"{address}::{queue}", address):
        put_twice(artemis, manager, "stomp", name, **{"destination-type": "ANYCAST"})
    assert [each["messageCount"] for each in listed(manager, queue)] == ["0"]
    assert [each["messageCount"] for each in listed(manager, address)] == ["2"]


RED = "colour = 'red'"


def coloured(manager: RawAmqp, address: str) -> None:
    """Send a red and a blue message to a topic."""
    sender = manager.connection.create_sender(address, name=f"to-{address}")
    for colour in ("red", "blue"):
        properties = {"colour": colour, "region": "eu"}
        sender.send(proton.Message(body=colour, durable=True, properties=properties))


def test_artemis_ends_a_connection_over_a_subscribers_selector(
    artemis: Broker, manager: RawAmqp, new_queue: Callable[[], str]
) -> None:
    """Without the capability `queue` the selector must be the filter of the queue."""
    address, queue = new_queue(), new_queue()
    made(manager, queue, address, **{"filter-string": EU})
    with RawAmqp(artemis) as raw, pytest.raises(AmqpError, match="filter mismatch"):
        raw.connection.create_receiver(f"{address}::{queue}", name=queue, options=reactor.Selector(RED))


@pytest.mark.parametrize("protocol", ["amqp", "stomp"])
@pytest.mark.parametrize("condition", ["", EU, RED], ids=["none", "another", "the same"])
@pytest.mark.parametrize("routing", ["ANYCAST", "MULTICAST"])
def test_a_selector_on_a_queue_with_a_filter(
    artemis: Broker,
    manager: RawAmqp,
    new_queue: Callable[[], str],
    routing: str,
    condition: str,
    protocol: str,
) -> None:
    """The consumer gets the messages that it selects; the others stay, and the connection does."""
    address, queue = new_queue(), new_queue()
    made(manager, queue, address, routing, **({"filter-string": condition} if condition else {}))
    coloured(manager, address)
    seen: list[object] = []
    handled: list[str] = []
    with redelivery.connect(artemis.uri(protocol=protocol), observers=[seen.append]) as connection:
        connection.listen(
            f"native://{address}::{queue}", lambda each: handled.append(each.text), selector=RED
        )
        connection.start()
        report = connection.run(until_idle=1)
    assert (handled, report.accepted) == (["red"], 1)
    assert sum(isinstance(each, events.Connected) for each in seen) == 1
    left = [] if condition == RED else ["blue"]
    assert [body for body, *_ in letters(manager, f"{address}::{queue}", len(left))] == left


def test_a_selector_on_a_queue_that_is_not_there(
    artemis: Broker, manager: RawAmqp, new_queue: Callable[[], str]
) -> None:
    """Over AMQP Artemis makes the queue with the selector as its filter, as for any subscriber."""
    address, queue = new_queue(), new_queue()
    name = f"native://{address}::{queue}"
    with redelivery.connect(artemis.uri(protocol="amqp")) as connection:
        for _ in range(2):
            with connection.consumer(name, selector=RED):
                pass
    assert [(each["routingType"], each["filter"]) for each in listed(manager, queue)] == [("MULTICAST", RED)]


@pytest.mark.parametrize("protocol", ["amqp", "stomp"])
def test_a_redrive_by_origin_from_a_queue_with_a_filter(
    artemis: Broker, manager: RawAmqp, new_queue: Callable[[], str], protocol: str
) -> None:
    """The tools select in such a queue, too: the letters of another origin stay."""
    dead, queue, first, second = (new_queue() for _ in range(4))
    made(manager, queue, dead, **{"filter-string": "redeliveryCause IS NOT NULL"})
    sender = manager.connection.create_sender(f"{dead}::{queue}", name=queue)
    for name in (first, second):
        told = {"redeliveryCause": "ValueError", "redeliveryOriginalDestination": f"queue://{name}"}
        sender.send(proton.Message(body=name, durable=True, properties=told))
    with redelivery.dead_letters(artemis.uri(protocol=protocol), f"native://{dead}::{queue}") as found:
        assert found.redrive(destination=[f"queue://{first}"]).redriven == 1
    assert [body for body, *_ in letters(manager, first)] == [first]
    assert [body for body, *_ in letters(manager, f"{dead}::{queue}")] == [second]


def elsewhere(manager: RawAmqp, new_queue: Callable[[], str], routing: str = "ANYCAST") -> tuple[str, str]:
    """Make a queue of an address with another name; return its name, and how it is reached."""
    queue, address = new_queue(), new_queue()
    made(manager, queue, address, routing)
    return queue, f"native://{address}::{queue}"


@pytest.mark.parametrize("protocol", ["amqp", "stomp"])
@pytest.mark.parametrize("how", ["redrive", "resend"])
def test_letters_of_a_queue_of_another_address_go_back(
    artemis: Broker, manager: RawAmqp, new_queue: Callable[[], str], tmp_path: Path, how: str, protocol: str
) -> None:
    """A redrive, and an export that is sent again, reach the queue, and no letter is dropped."""
    (queue, reached), dead = elsewhere(manager, new_queue), new_queue()
    uri = artemis.uri(protocol=protocol, redelivery__deadLetterDestination=dead)
    with redelivery.connect(uri, policies=NO_RETRY) as connection:
        connection.listen(queue, fail)
        connection.start()
        connection.send(reached, "kept")
        eventually(lambda: connection.report().poisoned == 1)
    with redelivery.dead_letters(uri, dead, take=protocol == "stomp") as found:
        if how == "redrive":
            done: Any = found.redrive(native=True)
        else:
            assert found.export(tmp_path / "dead.jsonl") == 1
            done = found.resend(tmp_path / "dead.jsonl", native=True)
    assert (dict(done.destinations), done.complete) == ({reached: 1}, True)
    assert [body for body, *_ in letters(manager, reached.partition("://")[2])] == ["kept"]


@each_protocol
@pytest.mark.parametrize("how", ["place", "to", "quarantine"])
def test_the_name_of_a_queue_of_another_address_is_no_place(
    artemis: Broker, manager: RawAmqp, new_queue: Callable[[], str], how: str, protocol: str
) -> None:
    """It is refused with the name that reaches it: Artemis would confirm dead letters and drop them."""
    (queue, reached), name, dead = elsewhere(manager, new_queue), new_queue(), new_queue()
    uri = artemis.uri(protocol=protocol)
    manager.send(dead, "kept")
    told = pytest.raises(redelivery.RedeliveryError, match=f"name {reached}")
    if how == "place":
        with redelivery.connect(uri) as connection, told:
            connection.consumer(name, dead_letter=queue)
    else:
        options: Any = {how: queue}
        with redelivery.dead_letters(uri, dead) as found, told:
            found.redrive(**options)
    assert [body for body, *_ in letters(manager, dead)] == ["kept"]


@each_protocol
def test_a_queue_that_artemis_would_not_make_is_no_place_of_its_own_settings(
    artemis: Broker, manager: RawAmqp, new_queue: Callable[[], str], protocol: str
) -> None:
    """The dead-letter-address has no queue, and one of that name belongs elsewhere: the consumer does not begin."""
    takes_settings(artemis)
    (queue, _), name = elsewhere(manager, new_queue, "MULTICAST"), new_queue()
    manager.manage("broker", "addAddressSettings", name, json.dumps({"deadLetterAddress": queue}))
    try:
        with (
            redelivery.connect(artemis.uri(protocol=protocol)) as connection,
            pytest.raises(redelivery.AdapterError, match="does not take the dead letters of"),
        ):
            connection.consumer(name)
    finally:
        manager.manage("broker", "removeAddressSettings", name)


@pytest.mark.parametrize("protocol", ["amqp", "stomp"])
def test_a_letter_goes_back_to_its_subscriber_only(
    artemis: Broker, manager: RawAmqp, new_queue: Callable[[], str], protocol: str
) -> None:
    """A queue that is named with its address is the origin of its letters, and the other queues get no second one."""
    address, one, other, dead = (new_queue() for _ in range(4))
    made(manager, one, address)
    made(manager, other, address)
    uri = artemis.uri(protocol=protocol, redelivery__deadLetterDestination=dead)
    with redelivery.connect(uri, policies=NO_RETRY) as connection:
        connection.listen(f"native://{address}::{one}", fail)
        connection.start()
        connection.send(f"topic://{address}", "kept")
        eventually(lambda: connection.report().poisoned == 1)
    with redelivery.dead_letters(uri, dead, take=protocol == "stomp") as found:
        assert dict(found.redrive(native=True).destinations) == {f"native://{address}::{one}": 1}
    for queue in (one, other):
        assert [body for body, *_ in letters(manager, f"{address}::{queue}")] == ["kept"]


@pytest.mark.parametrize("protocol", ["amqp", "stomp"])
def test_a_letter_that_the_broker_has_put_into_two_queues_is_redriven_once(
    artemis: Broker, manager: RawAmqp, new_queue: Callable[[], str], protocol: str
) -> None:
    """Artemis routes its own letter to each queue of the address: a redrive sends one back and removes the other."""
    takes_settings(artemis)
    name, dead = new_queue(), new_queue()
    made(manager, f"{dead}.all", dead, "ANYCAST")
    made(manager, f"{dead}.own", dead, **{"filter-string": f"_AMQ_ORIG_ADDRESS = '{name}'"})
    settings(manager, name, deadLetterAddress=dead)
    with redelivery.connect(
        artemis.uri(protocol="amqp", redelivery__deadLetter="ack"), policies=NO_RETRY
    ) as connection:
        connection.listen(name, fail)
        connection.start()
        connection.send(name, "once")
        eventually(lambda: connection.report().poisoned == 1)
    uri = artemis.uri(protocol=protocol)
    with redelivery.dead_letters(uri, f"{dead}.>", take=protocol == "stomp") as found:
        (letter,) = found
        done = found.redrive(id=letter.original_id)
        assert (done.redriven, done.doubles, done.incomplete) == (1, 1, None)
        assert found.redrive(id=letter.original_id).matched == 0
    assert [body for body, *_ in letters(manager, name)] == ["once"]
    for queue in ("all", "own"):
        assert letters(manager, f"{dead}::{dead}.{queue}", 0) == []


@pytest.mark.parametrize("protocol", ["amqp", "stomp"])
@pytest.mark.parametrize("kind", ["native", "topic"])
def test_an_address_is_no_place_for_one_of_its_queues(
    artemis: Broker, manager: RawAmqp, new_queue: Callable[[], str], kind: str, protocol: str
) -> None:
    """The consumer would get its own dead letters, without an end."""
    address, queue = new_queue(), new_queue()
    made(manager, queue, address)
    with (
        redelivery.connect(artemis.uri(protocol=protocol)) as connection,
        pytest.raises(redelivery.ConfigurationError, match="dead-letter destination of this"),
    ):
        connection.consumer(f"native://{address}::{queue}", dead_letter=f"{kind}://{address}")


@contextmanager
def kept_by_operators(manager: RawAmqp, address: str) -> Iterator[None]:
    """An address whose queues the broker neither makes nor deletes by itself."""
    values = {"autoCreateQueues": False, "autoDeleteQueues": False, "autoDeleteAddresses": False}
    settings(manager, address, **values)
    try:
        yield
    finally:
        manager.manage("broker", "removeAddressSettings", address)


@contextmanager
def with_place(
    artemis: Broker, manager: RawAmqp, place: str, protocol: str
) -> Iterator[redelivery.Connection]:
    """A connection whose dead letters go to a queue that an operator has made."""
    takes_settings(artemis)
    uri = artemis.uri(protocol=protocol, redelivery__deadLetterDestination=place)
    with (
        kept_by_operators(manager, place),
        redelivery.connect(f"failover:({uri.replace('?', ')?', 1)}", policies=NO_RETRY) as connection,
    ):
        made(manager, place, place, "ANYCAST")
        yield connection


@pytest.fixture
def asks_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer of the management over STOMP is used twice."""
    monkeypatch.setattr("redelivery.core.dead_lettering.artemis_management.FRESH", 0.0)


@each_protocol
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside another"])
@pytest.mark.usefixtures("asks_each_time")
def test_a_letter_waits_while_its_queue_is_gone(
    artemis: Broker, manager: RawAmqp, new_queue: Callable[[], str], beside: bool, protocol: str
) -> None:
    """It is not confirmed while an operator has deleted its queue, and is there once the queue is made again."""
    name, place = new_queue(), new_queue()
    with with_place(artemis, manager, place, protocol) as connection:
        if beside:
            made(manager, f"{place}.more", place)
        connection.listen(name, fail)
        connection.start()
        connection.send(name, "one")
        eventually(lambda: connection.report().poisoned == 1)
        manager.manage("broker", "destroyQueue", place)
        connection.send(name, "two")
        eventually(lambda: connection.health().consumers[0].unconfirmed_cause is not None)
        made(manager, place, place, "ANYCAST")
        eventually(lambda: connection.report().poisoned == 2, 90)
        assert [body for body, *_ in letters(manager, f"{place}::{place}")] == ["two"]


@each_protocol
@pytest.mark.usefixtures("asks_each_time")
def test_a_letter_waits_while_its_queue_has_a_filter(
    artemis: Broker, manager: RawAmqp, new_queue: Callable[[], str], protocol: str
) -> None:
    """An operator has made its queue again, with a filter: Artemis would confirm the letter and drop it."""
    name, place = new_queue(), new_queue()
    with with_place(artemis, manager, place, protocol) as connection:
        connection.listen(name, fail)
        connection.start()
        manager.manage("broker", "destroyQueue", place)
        made(manager, place, place, "ANYCAST", **{"filter-string": EU})
        connection.send(name, "one")
        eventually(lambda: connection.health().consumers[0].unconfirmed_cause is not None)
        manager.manage("broker", "destroyQueue", place)
        made(manager, place, place, "ANYCAST")
        eventually(lambda: connection.report().poisoned == 1, 90)
        assert [body for body, *_ in letters(manager, f"{place}::{place}")] == ["one"]


@each_protocol
def test_a_consumer_goes_on_once_its_place_is_mended(
    artemis: Broker, manager: RawAmqp, new_queue: Callable[[], str], protocol: str
) -> None:
    """A consumer that ran, and is refused over its place after a reconnect, begins again when the place is good."""
    name, place = new_queue(), new_queue()
    made(manager, place, place, "ANYCAST")
    seen: list[str] = []
    uri = artemis.uri(protocol=protocol, redelivery__deadLetterDestination=place, initialReconnectDelay=10)
    with redelivery.connect(f"failover:({uri.replace('?', ')?', 1)}") as connection:
        connection.listen(name, lambda message: seen.append(message.text))
        connection.start()
        connection.send(name, "one")
        eventually(lambda: seen == ["one"])
        manager.manage("broker", "destroyQueue", place)
        made(manager, place, place, "ANYCAST", **{"filter-string": EU})
        manager.manage("broker", "closeConsumerConnectionsForAddress", name)
        eventually(lambda: connection.health().consumers[0].refusal is not None, 60)
        manager.manage("broker", "destroyQueue", place)
        made(manager, place, place, "ANYCAST")
        manager.send(name, "two")
        eventually(lambda: seen == ["one", "two"], 90)
