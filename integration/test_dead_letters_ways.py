"""The tools of a dead-letter queue with a broker's own behaviour: its dead letters, refusals, partial bodies, pages."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from integration.dead_letter_fill import fill, with_cause
from integration.eventually import eventually
from integration.test_dead_letters import BROWSE, NO_RETRY, address, own_place, pairs, poison, received, tools

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from integration.brokers import Broker

pytestmark = [
    pytest.mark.ci("each way to the dead-letter queue"),
    pytest.mark.own_broker("reads its dead-letter queue"),
]

__all__ = ["address"]  # the fixture

NATIVE = [
    ("activemq", "stomp"),
    ("activemq", "amqp"),
    ("artemis", "amqp"),
    ("rabbitmq", "stomp"),
    ("rabbitmq", "amqp"),
]
TELLS = {("activemq", "stomp"), ("artemis", "amqp"), ("rabbitmq", "stomp")}


@pytest.mark.parametrize("peer", NATIVE, ids="-".join, indirect=True)
def test_what_the_broker_has_poisoned_itself(peer: tuple[Broker, str], unique_queue: str) -> None:
    """A message that the broker dead-lettered goes back if the broker records its origin; else only with `to`."""
    broker, protocol = peer
    queue = f"dlx.{unique_queue}" if broker.name == "rabbitmq" else unique_queue
    uri = broker.uri(protocol=protocol)
    uri += f"{'&' if '?' in uri else '?'}redelivery.deadLetter=ack"
    run = uuid.uuid4().hex
    with redelivery.connect(uri, policies=NO_RETRY) as connection:
        connection.send(queue, "bad", headers={"run": run})
        consumer = connection.consumer(queue)
        message = consumer.receive(timeout=20)
        assert message is not None
        identity = message.message_id
        message.fail("who knows")
        eventually(lambda: connection.report().poisoned == 1, 60)
        consumer.close()
        with tools(uri, peer) as dead:
            (letter,) = [one for one in dead if one.headers.get("run") == run]
            newer = (broker.name, protocol) == ("rabbitmq", "amqp") and broker.release >= (4, 0)
            assert letter.cause == ("rejected" if newer else "unknown")
            tells = newer or (broker.name, protocol) in TELLS
            assert letter.original_destination == (f"queue://{queue}" if tells else None)
            name = str(letter.message_id)
            if not tells:
                done = dead.redrive(id=name)
                assert (done.redriven, done.without_origin) == (0, 1)
                assert not done.complete
            done = dead.redrive(id=name, to=None if tells else queue)
            assert done.redriven == 1
        (back,) = received(connection, queue, 1)
        assert back.text == "bad"
        assert back.headers["redeliveryOriginalId"] == (
            letter.original_id if broker.name == "artemis" else identity
        )


@pytest.mark.parametrize("peer", NATIVE, ids="-".join, indirect=True)
def test_a_ledger_tells_why(peer: tuple[Broker, str], unique_queue: str, tmp_path: Path) -> None:
    """The ledger of a running consumer has cause, time and origin of a message that the broker dead-lettered."""
    broker, protocol = peer
    queue = f"dlx.{unique_queue}" if broker.name == "rabbitmq" else unique_queue
    uri, url = broker.uri(protocol=protocol), f"sqlite:///{tmp_path}/ledger.db"
    uri += f"{'&' if '?' in uri else '?'}redelivery.deadLetter=ack"
    run = uuid.uuid4().hex
    with redelivery.connect(uri, policies=NO_RETRY, ledger=redelivery.SqliteLedger(url[10:])) as connection:
        consumer = connection.consumer(queue)
        for number in range(4):
            connection.send(queue, f"bad {number}", headers={"run": run})
        for number in range(4):
            message = consumer.receive(timeout=20)
            assert message is not None
            message.fail(ValueError(f"no {message.text}") if number % 2 else KeyError("x"))
        eventually(lambda: connection.report().poisoned == 4, 60)
        take = (broker.name, protocol) not in BROWSE

        def known() -> list[redelivery.DeadLetter]:
            with redelivery.dead_letters(uri, take=take, idle=1.0, ledger=url) as dead:
                return [one for one in dead if one.headers.get("run") == run and one.cause != "unknown"]

        eventually(lambda: len(known()) == 4, 30, message="the ledger has been written")
        letters = known()
    assert sorted(one.cause_kind for one in letters) == ["KeyError", "KeyError", "ValueError", "ValueError"]
    assert {one.original_destination for one in letters} == {f"queue://{queue}"}
    assert all(one.first_failure and one.died_at and one.redelivery_count == 1 for one in letters)
    ids = [str(one.message_id) for one in letters]
    with redelivery.dead_letters(uri, take=take, idle=1.0, ledger=url) as dead:
        done = dead.redrive(cause="ValueError", id=ids)
        assert done.destinations == {f"queue://{queue}": 2}
        back = received_from(uri, queue, 2)
        assert sorted(back) == sorted(one.body.decode() for one in letters if one.cause_kind == "ValueError")
        assert dead.redrive(id=ids, to=f"{unique_queue}.end").redriven == 2


def received_from(uri: str, queue: str, count: int) -> list[str]:
    """Receive this number of messages on a connection without a ledger."""
    with redelivery.connect(uri, policies=NO_RETRY) as connection:
        return [message.text for message in received(connection, queue, count)]


@pairs
def test_where_it_cannot_go(
    peer: tuple[Broker, str], address: str, unique_queue: str, new_queue: Callable[[], str]
) -> None:
    """A queue that refuses a redrive, or is refused as its source, is an error with its name; dead letters stay."""
    with redelivery.connect(address + "&redelivery.deadLetter=forward", policies=NO_RETRY) as connection:
        poison(connection, unique_queue, 1)
    with tools(address, peer) as dead:
        with pytest.raises(redelivery.RedeliveryError) as caught:
            dead.redrive(to="denied.a")
        assert "denied.a" in str(caught.value)

    def still_there() -> bool:
        with tools(address, peer) as dead:
            return len(list(dead)) == 1

    eventually(still_there, message="Artemis has taken it back from the connection that it ended")
    with redelivery.dead_letters(address, "denied.b", take=True) as dead:
        with pytest.raises(redelivery.RedeliveryError) as caught:
            dead.summary()
        assert "denied.b" in str(caught.value)


@pytest.mark.parametrize("peer", [("activemq", "stomp"), ("artemis", "stomp")], ids="-".join, indirect=True)
def test_a_body_that_does_not_arrive_whole(
    peer: tuple[Broker, str], unique_queue: str, client_for: Callable[[Broker, str], Any]
) -> None:
    """A JMS Map stays in its queue, is counted, and is still whole; a text next to it is redriven."""
    broker, protocol = peer
    dead = f"{unique_queue}.dead"
    java = client_for(broker, protocol)
    origin = {"redeliveryOriginalDestination": f"queue://{unique_queue}"}
    java.send(dead, b"map", kind="map", properties=origin)
    java.send(dead, b"text", kind="text", properties=origin)
    with redelivery.dead_letters(broker.uri(protocol=protocol), dead, idle=1.0) as tools:
        done = tools.redrive()
    assert (done.redriven, done.partial, done.complete) == (1, 1, False)
    (left,) = java.drain(dead)
    assert left.kind == "map"
    assert left.value
    (back,) = java.drain(unique_queue)
    assert back.body == b"text"


MARKS = {("activemq", "stomp"), ("rabbitmq", "stomp"), ("rabbitmq", "amqp")}  # after a release


@pairs
def test_what_taking_leaves_behind(peer: tuple[Broker, str], address: str, unique_queue: str) -> None:
    """Messages that were consumed and released are there once, with the flags of docs/dead-letters-by-broker.md."""
    broker, protocol = peer
    with redelivery.connect(address + "&redelivery.deadLetter=forward", policies=NO_RETRY) as connection:
        poison(connection, unique_queue, 3)
    with redelivery.dead_letters(address, own_place(address), take=True, idle=1.0) as dead:
        assert len(list(dead)) == 3
        assert len(list(dead)) == 3
    other = f"{address.removesuffix('.dead')}.other"
    with redelivery.connect(other, policies=NO_RETRY) as connection:
        seen = received(connection, f"{unique_queue}.dead", 3)
    assert len(seen) == 3
    assert {message.redelivered for message in seen} == {(broker.name, protocol) in MARKS}
    # A classic queue of RabbitMQ 4.3 counts messages that are on the wire when their link ends.
    counts = (broker.name, protocol) == ("rabbitmq", "amqp") and broker.release >= (4, 3)
    assert counts or not any(message.broker_count for message in seen)


@pytest.mark.parametrize("peer", [("activemq", "stomp"), ("activemq", "amqp")], ids="-".join, indirect=True)
def test_a_page_of_classic(peer: tuple[Broker, str], unique_queue: str) -> None:
    """Classic shows 400, and the tools warn that there may be more; a redrive gets all, and reports if as many stay."""
    broker, protocol = peer
    dead, count = f"{unique_queue}.dead", 1000
    fill(broker, protocol, dead, unique_queue, count)
    with redelivery.dead_letters(broker.uri(protocol=protocol), dead) as tools:
        assert sum(group.count for group in tools.summary()) == 400
        assert "no more than 400" in str(tools.limit)
        some = tools.redrive(cause="KeyError")
        assert some.redriven == len(with_cause("KeyError", count))
        assert "shows the first 400" in str(some.incomplete)
        done = tools.redrive()
        assert (some.redriven + done.redriven, done.complete) == (count, True)
        assert tools.summary() == []
        assert tools.limit is None


@pytest.mark.parametrize("peer", [("activemq", "amqp"), ("activemq", "stomp")], ids="-".join, indirect=True)
def test_a_wide_page_of_classic(peer: tuple[Broker, str], unique_queue: str) -> None:
    """With a larger page of Classic each browse shows every dead letter, once, and leaves it there."""
    broker, protocol = peer
    dead, count = f"wide.{unique_queue}", 3000
    fill(broker, protocol, dead, unique_queue, count)
    for _ in range(3):
        with redelivery.dead_letters(broker.uri(protocol=protocol), dead) as tools:
            assert Counter(letter.original_id for letter in tools) == {
                f"original-{n}": 1 for n in range(count)
            }
