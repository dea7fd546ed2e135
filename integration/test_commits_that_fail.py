"""A broker that freezes in a commit, or refuses one: no message is lost, and none is handled twice."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from tests.matrix import named, pairwise
from tests.needs import need

import redelivery
from integration.eventually import eventually

need("proton")

from redelivery_amqp.sender import Transfer, judged
from redelivery_stomp.connection import StompConnection

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker
    from integration.conftest import Session

pytestmark = pytest.mark.ci("frozen brokers: 10 s each")

PAIRS = [("activemq", "stomp"), ("activemq", "amqp"), ("artemis", "amqp"), ("brokerj", "amqp")]
BODIES = {"1", "2", "3"}
POLICIES = redelivery.RedeliveryPolicyMap(
    default=redelivery.RedeliveryPolicy(initial_redelivery_delay=0.1, redelivery_delay=0.1)
)


@pytest.fixture
def pair(request: pytest.FixtureRequest, session: Session) -> tuple[Broker, str]:
    """Each broker and protocol with transactions."""
    name, protocol = request.param
    return session.broker(name), protocol


@pytest.mark.own_broker("freezes it")
@pytest.mark.parametrize(
    ("pair", "at", "end"),
    pairwise(PAIRS, ["its begin", "its end"], ["answered late", "connection lost"]),
    ids=named,
    indirect=["pair"],
)
def test_a_broker_frozen_in_a_commit(
    pair: tuple[Broker, str], at: str, end: str, new_queue: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen commit is an error; after that each message is either committed with its result, or redelivered."""
    broker, protocol = pair
    queue, out = new_queue(), f"out.{uuid.uuid4().hex[:8]}"
    heartbeat = 20_000 if end == "answered late" else 5000
    uri = broker.uri(protocol=protocol, redelivery__heartbeat=heartbeat)
    uri = re.sub(r"^(\w+://[^?]*)\?", r"failover:(\1)?maxReconnectDelay=500&", uri)
    with redelivery.connect(uri, policies=POLICIES) as connection:
        for body in BODIES:
            connection.send(queue, body)
        session = connection.session("transacted")
        consumer = session.consumer(queue)
        moved(session, consumer, out)
        freeze(monkeypatch, broker, at)
        if end == "answered late":
            told = "did not answer the commit within 2 s, and may still carry it out"
            with pytest.raises(redelivery.TransportError, match=told):
                session.commit(timeout=2)
        else:
            with pytest.raises(redelivery.TransportError, match="committed as a whole or not at all"):
                session.commit(timeout=60)
        broker.resume()
        monkeypatch.undo()
        if end == "answered late":
            eventually(lambda: not session._state.activity._unanswered)
            assert connection.report().accepted == 3
        again, found = aftermath(consumer, results := connection.consumer(out))
        if again:
            assert again == BODIES, "all of it or nothing"
            for body in again:
                session.send(out, body)
        session.commit()
        print(f"\n{broker.name} {protocol}, frozen at {at}, {end}: {'came again' if again else 'committed'}")

        def found_all() -> bool:
            while (message := results.receive(1)) is not None:
                found.append(message.text)
                message.accept()
            return len(found) >= len(BODIES)

        eventually(found_all)
        assert results.receive(2) is None
        assert sorted(found) == sorted(BODIES), "each once"
        session.close()
        assert connection.consumer(queue).receive(2) is None


@pytest.mark.parametrize("name", ["activemq", "artemis", "brokerj"])
def test_a_refused_commit_over_amqp(
    session: Session, name: str, new_queue: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages of a refused commit are not settled again on that connection: a new one redelivers them, charged."""
    queue, out = new_queue(), f"out.{uuid.uuid4().hex[:8]}"
    discharge = Transfer._discharge

    def refused(outcome: Any, where: str, masked: Any) -> redelivery.RedeliveryError | None:
        return redelivery.AdapterError("no") if "coordinator" in where else judged(outcome, where, masked)

    def rolling_back(transfer: Transfer, then: Any, **_: bool) -> None:
        discharge(transfer, then, failed=True)

    with redelivery.connect(session.broker(name).uri(protocol="amqp"), policies=POLICIES) as connection:
        for body in BODIES:
            connection.send(queue, body)
        transacted = connection.session("transacted")
        consumer = transacted.consumer(queue)
        moved(transacted, consumer, out)
        with monkeypatch.context() as patch:
            patch.setattr("redelivery_amqp.sender.judged", refused)
            patch.setattr(Transfer, "_discharge", rolling_back)
            with pytest.raises(
                redelivery.AdapterError, match="refused the transaction, and rolled it back: no"
            ):
                transacted.commit()
        eventually(lambda: not connection.connected or connection._driver._epoch > 1)
        counts = moved(transacted, consumer, out)
        transacted.commit()
        assert counts == [1, 1, 1]
        assert connection.report().accepted == len(BODIES)
        transacted.close()
        assert connection.consumer(queue).receive(2) is None
        found = connection.consumer(out)
        for _ in BODIES:
            message = found.receive(30)
            assert message is not None
            message.accept()
        assert found.receive(1) is None


def moved(session: redelivery.Session, consumer: redelivery.Consumer, out: str) -> list[int]:
    """Receive all messages, and send a result for each; return their counts."""
    counts: list[int] = []
    for _ in BODIES:
        message = consumer.receive(30)
        assert message is not None
        session.send(out, message.text)
        counts.append(message.redelivery_count)
    return counts


def aftermath(consumer: redelivery.Consumer, results: redelivery.Consumer) -> tuple[set[str], list[str]]:
    """Wait until the result of a commit is known; return the redelivered messages, and the results found so far."""
    again: set[str] = set()
    found: list[str] = []

    def known() -> bool:
        if (message := consumer.receive(0.2)) is not None:
            again.add(message.text)
        elif (message := results.receive(0.2)) is not None:
            found.append(message.text)
            message.accept()
        return bool(again or found)

    eventually(known)
    for _ in range(len(BODIES) - 1 if again else 0):
        message = consumer.receive(30)
        assert message is not None
        again.add(message.text)
    return again, found


def freeze(monkeypatch: pytest.MonkeyPatch, broker: Broker, at: str) -> None:
    """Freeze the broker when the library writes the begin of a transaction, or its end."""
    begin, discharge, write = Transfer.begin, Transfer._discharge, StompConnection.write

    def beginning(transfer: Transfer) -> None:
        broker.pause()
        begin(transfer)

    def discharging(transfer: Transfer, *arguments: Any, **options: Any) -> None:
        broker.pause()
        discharge(transfer, *arguments, **options)

    def writing(link: StompConnection, data: bytes) -> None:
        if data.startswith(b"BEGIN\n" if at == "its begin" else b"COMMIT\n"):
            broker.pause()
        write(link, data)

    if at == "its begin":
        monkeypatch.setattr(Transfer, "begin", beginning)
    else:
        monkeypatch.setattr(Transfer, "_discharge", discharging)
    monkeypatch.setattr(StompConnection, "write", writing)
