"""A dead letter is where Artemis' own address settings put it: each way to set them; a user without rights.

docs/measured/artemis-dead-letter-address.md has the facts.
"""

from __future__ import annotations

import json
import logging
import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from integration.eventually import eventually, gathered
from integration.raw_amqp import AmqpError, RawAmqp, proton
from integration.test_dead_letters import NO_RETRY
from redelivery import events
from redelivery.brokers.facts import numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from integration.brokers import Broker

pytestmark = [
    pytest.mark.ci("the operator's own settings of Artemis, each way"),
    pytest.mark.own_broker("changes its settings"),
]

each_protocol = pytest.mark.parametrize("protocol", ["amqp", "stomp"])


def takes_settings(artemis: Broker) -> None:
    """Skip the test on a version that takes only all settings of an address at once."""
    if numbers(artemis.version) < (2, 32):
        # test_operators_settings.py has what its configuration file sets.
        pytest.skip(f"Artemis {artemis.version} takes no part of an address' settings while it runs")


@pytest.fixture
def operator(artemis: Broker) -> Iterator[RawAmqp]:
    """A user who manages the broker."""
    takes_settings(artemis)
    with RawAmqp(artemis) as raw:
        yield raw


def settings(operator: RawAmqp, match: str, **values: object) -> None:
    """Set what differs from the broker's default for an address."""
    operator.manage("broker", "addAddressSettings", match, json.dumps(values))


def made(operator: RawAmqp, name: str, address: str, routing: str = "MULTICAST", **more: object) -> None:
    """Make a durable queue on an address."""
    told = {"name": name, "address": address, "routing-type": routing, "durable": True, **more}
    operator.manage("broker", "createQueue", json.dumps({"auto-create-address": True, **told}))


def fail(message: redelivery.Message) -> None:
    """Handle no message."""
    raise ValueError(message.text)


def poison(broker: Broker, protocol: str, *names: str, **options: Any) -> None:
    """Make one message of each destination fail, with its name as its body."""
    with redelivery.connect(broker.uri(protocol=protocol, **options), policies=NO_RETRY) as connection:
        for name in names:
            connection.listen(name, fail)
        connection.start()
        for name in names:
            connection.send(name, name)
        eventually(lambda: connection.report().poisoned == len(names), 60)


def letters(operator: RawAmqp, place: str, expected: int = 1) -> list[tuple[str, object, object]]:
    """Take the dead letters of a queue: body, cause, and original destination of each."""
    found = gathered(lambda: operator.receive(place, 100, timeout=1.0 if expected else 0.5), expected)
    return [
        (
            str(each.body),
            each.properties.get("redeliveryCause"),
            each.properties.get("redeliveryOriginalDestination"),
        )
        for each in found
    ]


@each_protocol
def test_another_address(
    artemis: Broker, operator: RawAmqp, new_queue: Callable[[], str], protocol: str
) -> None:
    """The copy goes to the `dead-letter-address` of its queue, whatever queue that address has."""
    stem = new_queue()
    for kind in ("none", "own", "other", "one"):
        settings(operator, f"{stem}.{kind}", deadLetterAddress=f"{stem}.dead.{kind}")
    made(operator, f"{stem}.dead.own", f"{stem}.dead.own", "ANYCAST")
    made(operator, f"{stem}.q", f"{stem}.dead.other", "ANYCAST")
    made(operator, f"{stem}.audit", f"{stem}.dead.one")
    poison(artemis, protocol, *(f"{stem}.{kind}" for kind in ("none", "own", "other", "one")))
    places = {
        "none": f"{stem}.dead.none", "own": f"{stem}.dead.own", "other": f"{stem}.dead.other::{stem}.q",
        "one": f"{stem}.dead.one::{stem}.audit",
    }  # fmt: skip
    for kind, place in places.items():
        name = f"{stem}.{kind}"
        assert letters(operator, place) == [(name, f"ValueError: {name}", f"queue://{name}")]


@each_protocol
def test_several_subscribers_of_a_dead_letter_address(
    artemis: Broker, operator: RawAmqp, new_queue: Callable[[], str], protocol: str
) -> None:
    """Of several durable queues of a multicast dead-letter address the first by name gets the letter, once."""
    name, dead = new_queue(), new_queue()
    settings(operator, name, deadLetterAddress=dead)
    for each in ("b", "a"):
        made(operator, f"{dead}.{each}", dead)
    poison(artemis, protocol, name)
    assert [body for body, *_ in letters(operator, f"{dead}::{dead}.a")] == [name]
    assert letters(operator, f"{dead}::{dead}.b", 0) == []


@each_protocol
def test_an_address_whose_queues_take_only_others_letters(
    artemis: Broker, operator: RawAmqp, new_queue: Callable[[], str], protocol: str
) -> None:
    """Beside queues for the letters of other addresses one is made for this one: Artemis would drop its letter."""
    stem, dead = new_queue(), new_queue()
    settings(operator, f"{stem}.#", deadLetterAddress=dead)
    settings(operator, f"{stem}.ind.#", deadLetterAddress=dead, autoCreateDeadLetterResources=True)
    poison(artemis, protocol, f"{stem}.ind.x")
    poison(artemis, protocol, f"{stem}.plain")
    for name in (f"{stem}.ind.x", f"{stem}.plain"):
        assert [body for body, *_ in letters(operator, f"{dead}::DLQ.{name}")] == [name]


@each_protocol
def test_a_consumer_of_its_own_dead_letters_is_refused(
    artemis: Broker, operator: RawAmqp, new_queue: Callable[[], str], protocol: str
) -> None:
    """It is refused by whatever name it has the queue; one of another queue of that address is not."""
    queue, address = new_queue(), new_queue()
    settings(operator, address, deadLetterAddress=address)
    made(operator, queue, address, "ANYCAST")
    made(operator, f"{queue}.other", address, "ANYCAST")
    with redelivery.connect(artemis.uri(protocol=protocol)) as connection:
        first = min(queue, f"{queue}.other")
        for name in (first, f"native://{address}::{first}", f"topic://{address}", "DLQ", "native://DLQ::DLQ"):
            with pytest.raises(redelivery.ConfigurationError, match="gets its own dead letters"):
                connection.consumer(name)
        with connection.consumer(f"native://{address}::{queue}.other"):
            pass


@each_protocol
def test_a_queue_for_each_address(
    artemis: Broker, operator: RawAmqp, new_queue: Callable[[], str], protocol: str
) -> None:
    """With `auto-create-dead-letter-resources` each address has its queue, with prefix and suffix; topics, too."""
    stem, dead = new_queue(), new_queue()
    settings(
        operator, f"{stem}.#", deadLetterAddress=dead, autoCreateDeadLetterResources=True,
        deadLetterQueuePrefix="P.", deadLetterQueueSuffix=".S",
    )  # fmt: skip
    names = [f"{stem}.a", f"{stem}.b", f"topic://{stem}.t"]
    poison(artemis, protocol, *names)
    for name in names:
        address = name.removeprefix("topic://")
        origin = name if "://" in name else f"queue://{name}"
        assert letters(operator, f"{dead}::P.{address}.S") == [(name, f"ValueError: {name}", origin)]


@each_protocol
def test_a_queue_of_an_address_with_another_name(
    artemis: Broker, operator: RawAmqp, new_queue: Callable[[], str], protocol: str
) -> None:
    """The settings of the queue's address count, and the filter of its dead-letter queue lets the copy in."""
    address, queue, dead = new_queue(), new_queue(), new_queue()
    settings(operator, address, deadLetterAddress=dead, autoCreateDeadLetterResources=True)
    made(operator, queue, address, "ANYCAST")
    with ExitStack() as stack:
        connection = stack.enter_context(
            redelivery.connect(artemis.uri(protocol=protocol), policies=NO_RETRY)
        )
        for name in (queue, f"native://{address}::{queue}"):
            with connection.consumer(name) as consumer:
                connection.send(address, name)
                message = consumer.receive(timeout=60)
                assert message is not None
                message.fail("bad")
                eventually(lambda: connection.report().unconfirmed == 0)
    found = letters(operator, f"{dead}::DLQ.{address}", 2)
    assert [body for body, *_ in found] == [queue, f"native://{address}::{queue}"]


@each_protocol
def test_the_settings_are_read_again_after_a_reconnect(
    artemis: Broker, operator: RawAmqp, new_queue: Callable[[], str], protocol: str
) -> None:
    """A changed setting counts from the next connection on."""
    name, first, second = new_queue(), new_queue(), new_queue()
    settings(operator, name, deadLetterAddress=first)
    seen: list[object] = []
    with redelivery.connect(
        artemis.uri(protocol=protocol), policies=NO_RETRY, observers=[seen.append]
    ) as connection:
        connection.listen(name, fail)
        connection.start()
        operator.send(name, "before")
        eventually(lambda: connection.report().poisoned == 1)
        settings(operator, name, deadLetterAddress=second)
        operator.manage("broker", "closeConsumerConnectionsForAddress", name)
        eventually(lambda: sum(isinstance(each, events.Connected) for each in seen) == 2)
        operator.send(name, "after")
        eventually(lambda: connection.report().poisoned == 2, 60)
    assert [body for body, *_ in letters(operator, first)] == ["before"]
    assert [body for body, *_ in letters(operator, second)] == ["after"]


@each_protocol
def test_a_dead_letter_queue_that_goes(
    artemis: Broker, operator: RawAmqp, new_queue: Callable[[], str], protocol: str
) -> None:
    """A queue that an operator deletes meanwhile is made again by the next copy, which is in it."""
    name, dead = new_queue(), new_queue()
    settings(operator, name, deadLetterAddress=dead, autoCreateDeadLetterResources=True)
    with redelivery.connect(artemis.uri(protocol=protocol), policies=NO_RETRY) as connection:
        connection.listen(name, fail)
        connection.start()
        operator.manage("broker", "destroyQueue", f"DLQ.{name}")
        connection.send(name, "kept")
        eventually(lambda: connection.report().poisoned == 1)
    assert [body for body, *_ in letters(operator, f"{dead}::DLQ.{name}")] == ["kept"]


@each_protocol
def test_many_consumers_at_once(
    artemis: Broker, operator: RawAmqp, new_queue: Callable[[], str], protocol: str
) -> None:
    """Two connections with ten consumers each of ten queues find or make each dead-letter queue once."""
    stem, dead = new_queue(), new_queue()
    settings(operator, f"{stem}.#", deadLetterAddress=dead, autoCreateDeadLetterResources=True)
    names = [f"{stem}.{number}" for number in range(10)]
    with ExitStack() as stack:
        for _ in range(2):
            connection = stack.enter_context(
                redelivery.connect(artemis.uri(protocol=protocol), policies=NO_RETRY)
            )
            for name in names:
                connection.listen(name, fail)
            connection.start()
        for name in names:
            connection.send(name, name)
        for name in names:
            found = letters(operator, f"{dead}::DLQ.{name}")
            assert [body for body, *_ in found] == [name]


@each_protocol
def test_the_tools_find_the_letters_without_a_queue(
    artemis: Broker, operator: RawAmqp, new_queue: Callable[[], str], protocol: str
) -> None:
    """`dead_letters(uri)` looks into all queues of dead-letter addresses; a redrive without a filter leaves them."""
    stem, dead, other = new_queue(), new_queue(), new_queue()
    settings(operator, f"{stem}.#", deadLetterAddress=dead, autoCreateDeadLetterResources=True)
    settings(operator, f"{stem}.one", deadLetterAddress=other, autoCreateDeadLetterResources=False)
    names = [f"{stem}.a", f"{stem}.b", f"{stem}.one"]
    poison(artemis, protocol, *names)
    places = [f"native://{dead}::DLQ.{stem}.a", f"native://{dead}::DLQ.{stem}.b", f"queue://{other}"]
    # No queue is shown over STOMP.
    takes = protocol == "stomp"
    with redelivery.dead_letters(artemis.uri(protocol=protocol), take=takes) as letters_of:
        found = {
            each.body: each.queue for each in letters_of if stem in each.queue or each.queue == places[2]
        }
        assert found == {name.encode(): place for name, place in zip(names, places, strict=True)}
        done = letters_of.redrive()
        assert all(stem not in str(name) for name in done.destinations)
        assert done.incomplete is not None
        assert places[0] in done.incomplete
        assert letters_of.redrive(destination=[f"queue://{names[0]}"]).redriven == 1
        assert letters_of.places(destination=[f"queue://{names[1]}"])[0] == places[1]
    assert [body for body, *_ in letters(operator, names[0])] == [names[0]]


@pytest.mark.parametrize("auto", [True, False])
def test_what_artemis_does_with_a_message_to_a_queue_by_its_name(
    operator: RawAmqp, new_queue: Callable[[], str], auto: bool
) -> None:
    """By address and queue only the filter drops a confirmed message; a queue that is gone is made, or refused."""
    dead, queue = new_queue(), new_queue()
    settings(operator, dead, autoCreateQueues=auto, autoCreateAddresses=auto)
    made(operator, queue, dead, **{"filter-string": "_AMQ_ORIG_ADDRESS = 'orders'"})
    # Without a capability, as the library addresses it.
    sender = operator.connection.create_sender(f"{dead}::{queue}", name=queue)

    def send(body: str, **properties: str) -> None:
        sender.send(proton.Message(body=body, durable=True, properties=properties))

    send("no property")
    send("one", _AMQ_ORIG_ADDRESS="orders")
    assert [each["messageCount"] for each in listed(operator, queue)] == ["1"]
    operator.manage("broker", "destroyQueue", queue, True)
    if auto:
        send("two", _AMQ_ORIG_ADDRESS="orders")
        assert [each["messageCount"] for each in listed(operator, queue)] == ["1"]
        return
    with pytest.raises(AmqpError):
        send("two", _AMQ_ORIG_ADDRESS="orders")
    assert listed(operator, queue) == []


def listed(operator: RawAmqp, queue: str) -> list[dict[str, str]]:
    """The broker's list of the queues of this name."""
    wanted = json.dumps({"field": "NAME", "operation": "EQUALS", "value": queue})
    told = json.loads(str(operator.manage("broker", "listQueues", wanted, 1, 10)))
    found: list[dict[str, str]] = told["data"]
    return found


ALL = "amq,limited"


def allow(operator: RawAmqp, match: str, *, manage: bool = False) -> None:
    """Give both users all rights to the addresses, the limited one only with `manage` that right."""
    operator.manage("broker", "addSecuritySettings", match, *[ALL] * 6, ALL if manage else "amq", *[ALL] * 3)


@each_protocol
@pytest.mark.parametrize("rights", ["none", "send", "manage"])
def test_a_user_without_the_right_to_ask(
    artemis: Broker,
    operator: RawAmqp,
    new_queue: Callable[[], str],
    caplog: pytest.LogCaptureFixture,
    rights: str,
    protocol: str,
) -> None:
    """Without the right to manage the copy goes to DLQ, and one warning says so; with it, to the broker's place."""
    stem, dead, user = new_queue(), new_queue(), f"user{uuid.uuid4().hex[:8]}"
    settings(operator, f"{stem}.#", deadLetterAddress=dead)
    operator.manage("broker", "addUser", user, "secret", "limited", True)
    for match in (f"{stem}.#", dead, "DLQ"):
        allow(operator, match)
    if rights != "none":
        for match in ("activemq.management", "redelivery.management"):
            allow(operator, match, manage=rights == "manage")
    try:
        names = [f"{stem}.a", f"{stem}.b"]
        with caplog.at_level(logging.WARNING):
            poison(artemis, protocol, *names, jms__userName=user, jms__password="secret")
    finally:
        for match in ("activemq.management", "redelivery.management"):
            operator.manage("broker", "removeSecuritySettings", match)
        operator.manage("broker", "removeUser", user)
    warnings = [each.message for each in caplog.records if "own settings" in each.message]
    assert len(warnings) == (0 if rights == "manage" else 1), warnings
    assert "secret" not in "".join(warnings)
    place = dead if rights == "manage" else "DLQ"
    assert sorted(body for body, *_ in letters(operator, place, 2)) == names
