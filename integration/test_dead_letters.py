"""The tools of a dead-letter queue on real brokers: browse, redrive, purge."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

import redelivery
from integration.eventually import eventually
from integration.peers import PAIRS

if TYPE_CHECKING:
    from integration.brokers import Broker
    from redelivery import Connection, DeadLetter, DeadLetterQueue

pytestmark = pytest.mark.own_broker("reads its dead-letter queue")

NO_RETRY = redelivery.RedeliveryPolicyMap(default=redelivery.RedeliveryPolicy(maximum_redeliveries=0))
BROWSE = {("activemq", "stomp"), ("activemq", "amqp"), ("artemis", "amqp"), ("brokerj", "amqp")}
pairs = pytest.mark.parametrize("peer", PAIRS, ids="-".join, indirect=True)


def poison(connection: Connection, queue: str, count: int) -> None:
    """Send and poison this number of messages, odd ones with another cause."""
    before = connection.report().poisoned
    for number in range(count):
        connection.send(queue, f"body {number}", headers={"number": str(number)}, correlation_id=f"c{number}")
    consumer = connection.consumer(queue)
    for number in range(count):
        message = consumer.receive(timeout=20)
        assert message is not None, f"only {number} came"
        message.fail(ValueError(f"bad {number}") if number % 2 else KeyError("x"))
    eventually(lambda: connection.report().poisoned == before + count, 60, message="all are dead")
    consumer.close()


def is_poisoned(connection: Connection, count: int) -> bool:
    """True if this number of messages is dead-lettered."""
    return connection.report().poisoned == count


def received(
    connection: Connection, queue: str, count: int, timeout: float = 20.0
) -> list[redelivery.Message]:
    """Receive this number of messages, and check that there are no more."""
    consumer = connection.consumer(queue)
    found: list[redelivery.Message] = []
    while len(found) <= count:
        message = consumer.receive(timeout=timeout if len(found) < count else 0.5)
        if message is None:
            break
        found.append(message)
        message.accept()
    consumer.close()
    return found


@pytest.fixture
def address(peer: tuple[Broker, str], unique_queue: str) -> str:
    """The URI with a dead-letter queue of the test's own."""
    broker, protocol = peer
    uri = broker.uri(protocol=protocol)
    return f"{uri}{'&' if '?' in uri else '?'}redelivery.deadLetterDestination={unique_queue}.dead"


def tools(address: str, peer: tuple[Broker, str]) -> DeadLetterQueue:
    """The tools for the test's own dead-letter queue, which consume if the broker cannot browse."""
    return redelivery.dead_letters(
        address, own_place(address), take=(peer[0].name, peer[1]) not in BROWSE, idle=1.0
    )


def own_place(address: str) -> str | None:
    """Return the dead-letter queue in a URI; without its name, Classic's own queue is looked at, too."""
    return redelivery.parse_uri(address).dead_letters.default.destination


@pairs
def test_a_handful(peer: tuple[Broker, str], address: str, unique_queue: str) -> None:
    """A few dead letters are listed, counted, redriven by cause, quarantined and purged, each exactly once."""
    origin, quarantine = f"queue://{unique_queue}", f"{unique_queue}.quarantine"
    with redelivery.connect(address + "&redelivery.deadLetter=forward", policies=NO_RETRY) as connection:
        poison(connection, unique_queue, 6)
        with tools(address, peer) as dead:
            letters = list(dead)
            check_letters(letters, origin)
            assert [(g.original_destination, g.cause, g.count) for g in dead.summary()] == [
                (origin, "KeyError", 3),
                (origin, "ValueError", 3),
            ]
            for identity in (letters[1].message_id, letters[1].original_id):
                assert dead.show(str(identity)).body == letters[1].body
            planned = dead.redrive(cause="ValueError", dry_run=True)
            done = dead.redrive(cause="ValueError")
            assert (planned.redriven, planned.skipped, done.redriven) == (3, 3, 3)
            assert done.skipped in (0, 3), "a broker with selectors sends only matched messages"
            assert done.destinations == {origin: 3}
            assert done.complete
            back = received(connection, unique_queue, 3)
            assert sorted(m.text for m in back) == ["body 1", "body 3", "body 5"]
            ids = {one.body: one.original_id for one in letters}
            for message in back:
                check_back(message, ids)
            assert sorted(one.cause for one in dead) == ["KeyError: 'x'"] * 3
            assert dead.purge(cause="OSError").purged == 0
            again = dead.redrive(to=quarantine)
            assert again.destinations == {f"queue://{quarantine}": 3}
            assert len(received(connection, quarantine, 3)) == 3
            poison(connection, unique_queue, 2)
            assert dead.purge(cause="KeyError").purged == 1
            assert [one.cause for one in dead] == ["ValueError: bad 1"]
            assert dead.purge().purged == 1
            assert list(dead) == []


def check_letters(letters: list[DeadLetter], origin: str) -> None:
    """Check the properties of each dead letter."""
    assert [one.body for one in letters] == [f"body {n}".encode() for n in range(6)]
    for number, one in enumerate(letters):
        assert one.original_destination == origin
        assert one.cause == (f"ValueError: bad {number}" if number % 2 else "KeyError: 'x'")
        assert (one.redrives, one.whole, one.headers["number"]) == (0, True, str(number))
        assert one.correlation_id == f"c{number}"
        assert one.died_at is not None


def check_back(message: redelivery.Message, ids: dict[bytes, str | None]) -> None:
    """Check that the message is the original, with its first id."""
    names = set(message.headers)
    assert {"redeliveryOriginalId", "redeliveryRedrives", "number"} <= names
    stale = {
        "redeliveryCause",
        "redeliveryCount",
        "dlqDeliveryFailureCause",
        "_AMQ_ORIG_ADDRESS",
        "_AMQ_ORIG_QUEUE",
    }
    assert not stale & names
    assert message.headers["redeliveryOriginalId"] == ids[message.body]
    assert str(message.headers["redeliveryRedrives"]) == "1"
    assert message.correlation_id == f"c{message.text.removeprefix('body ')}"
    assert message.redelivery_count == 0


@pairs
def test_what_fails_again_goes_to_quarantine(
    peer: tuple[Broker, str], address: str, unique_queue: str
) -> None:
    """A message goes to the quarantine after two redrives, with its first id; no run sends a message twice."""
    quarantine = f"{unique_queue}.quarantine"
    with redelivery.connect(address + "&redelivery.deadLetter=forward", policies=NO_RETRY) as connection:
        connection.send(unique_queue, "bad")
        first: str | None = None
        with tools(address, peer) as dead:
            for times in range(3):
                consumer = connection.consumer(unique_queue)
                message = consumer.receive(timeout=20)
                assert message is not None
                message.fail("again")
                eventually(partial(is_poisoned, connection, times + 1), 60)
                consumer.close()
                (letter,) = dead
                first = first or letter.original_id
                assert (letter.redrives, letter.original_id) == (times, first)
                done = dead.redrive(quarantine=quarantine, maximum_redrives=2)
                assert (done.redriven, done.quarantined) == (1, times == 2)
        (message,) = received(connection, quarantine, 1)
        assert message.headers["redeliveryOriginalId"] == first


@pairs
def test_looking_changes_nothing(peer: tuple[Broker, str], address: str, unique_queue: str) -> None:
    """A browse changes no message; if the broker cannot browse, it is refused with the reason."""
    broker, protocol = peer
    with redelivery.connect(address + "&redelivery.deadLetter=forward", policies=NO_RETRY) as connection:
        poison(connection, unique_queue, 4)
        with redelivery.dead_letters(address, own_place(address)) as dead:
            if (broker.name, protocol) not in BROWSE:
                with pytest.raises(redelivery.ConfigurationError, match="--take"):
                    list(dead)
            else:
                assert [len(list(dead)) for _ in range(3)] == [4, 4, 4]
                assert len(list(dead.list(cause="KeyError"))) == 2
    other = f"{address.removesuffix('.dead')}.other"
    with redelivery.connect(other, policies=NO_RETRY) as connection:
        seen = received(connection, f"{unique_queue}.dead", 4)
        assert len(seen) == 4
        assert not any(message.redelivered for message in seen)


TELLS_MISSING = {("rabbitmq", "stomp"), ("rabbitmq", "amqp"), ("brokerj", "amqp")}


@pairs
def test_a_queue_that_is_not_there(peer: tuple[Broker, str], unique_queue: str) -> None:
    """A missing queue is an error with its name if a browse does not create it; else it is empty."""
    broker, protocol = peer
    queue = f"absent.{unique_queue}"  # Broker-J's configuration creates no queue with this name
    for take in (True, (broker.name, protocol) not in BROWSE):
        with redelivery.dead_letters(broker.uri(protocol=protocol), queue, take=take, idle=0.5) as tools:
            if (broker.name, protocol) in TELLS_MISSING:
                with pytest.raises(redelivery.AdapterError, match=queue):
                    tools.summary()
                with pytest.raises(redelivery.AdapterError, match=queue):
                    tools.redrive()
            else:
                assert tools.summary() == []
                assert tools.redrive().redriven == 0
