"""Refusals of a broker are reported at once and clearly; addresses, wildcards and limits work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from integration.eventually import PATIENCE, eventually, never
from integration.sending import send_again
from integration.work import POLICY, Running, Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker
    from integration.java_client import JavaClient
    from integration.proxy import LinkProxy

pytestmark = pytest.mark.ci("refusals over STOMP")

QUICK = redelivery.RedeliveryPolicyMap(default=POLICY(maximum_redeliveries=1, initial_redelivery_delay=0.1))


def test_sending_without_permission(broker: Broker, unique_queue: str) -> None:
    """A send without permission is an AdapterError with the broker's text; the connection works on, or reconnects."""
    with redelivery.connect(broker.uri()) as connection:
        with pytest.raises(redelivery.AdapterError, match=r"denied\.x") as caught:
            connection.send("denied.x", "no")
        assert broker.password not in str(caught.value)
        # Artemis closes the connection after each refusal.
        send_again(connection, unique_queue, "yes")
        message = connection.consumer(unique_queue).receive(timeout=PATIENCE)
        assert message is not None
        assert message.text == "yes"


@pytest.mark.parametrize(("destination", "selector"), [("denied.x", None), ("fine.y", "colour = = 'red'")])
def test_a_subscription_that_is_refused(
    broker: Broker, proxy: LinkProxy, unique_queue: str, destination: str, selector: str | None
) -> None:
    """A refused subscription is an error without endless reconnects; another consumer still gets messages."""
    with redelivery.connect(broker.uri(port=proxy.port)) as connection:
        other = connection.consumer(unique_queue)
        with pytest.raises((redelivery.AdapterError, redelivery.ConfigurationError)):
            connection.consumer(destination, selector=selector)
        send_again(connection, unique_queue, "still served")
        message = other.receive(timeout=PATIENCE)
        assert message is not None
        links = proxy.links_ever
        # Artemis' management is asked over another one, of each connection.
        asked = 2 if broker.name == "artemis" else 1
        assert links <= 2 * asked
        never(lambda: proxy.links_ever > links, 0.5)
        assert proxy.to_broker.log.count("SUBSCRIBE") <= 3 * asked


def test_a_listener_that_is_refused_ends_the_run(broker: Broker) -> None:
    """A refused listener ends `run`, which raises the broker's refusal."""
    with redelivery.connect(broker.uri()) as connection:
        connection.listen("denied.x", print)
        with pytest.raises(redelivery.AdapterError):
            connection.run()


def test_a_dead_letter_destination_that_refuses(broker: Broker, java: JavaClient, unique_queue: str) -> None:
    """A dead-letter queue that refuses is an AdapterError before the first dispatch; no message is acknowledged."""
    java.send(unique_queue, b"bad", copies=5)
    work = Work()
    uri = broker.uri(redelivery__deadLetterDestination="denied.dlq")
    with redelivery.connect(uri, policies=QUICK) as connection:
        connection.listen(unique_queue, work)
        with pytest.raises(redelivery.AdapterError, match=r"denied\.dlq"):
            connection.run()
    assert work.counts() == {}
    eventually(lambda: java.count(unique_queue) == 5)


def test_failover_skips_a_dead_address(broker: Broker, make_proxy: Callable[..., LinkProxy]) -> None:
    """Failover skips an address that refuses, later also the other one, and no message is lost."""
    first, second = make_proxy(broker.stomp_port), make_proxy(broker.stomp_port)
    first.refuse()
    _, _, query = broker.uri().partition("?")
    uri = f"failover:(stomp://{first.host}:{first.port},stomp://{second.host}:{second.port})?randomize=false&{query}"
    queue, work = f"failover.{first.port}", Work()
    with redelivery.connect(uri) as connection:
        connection.listen(queue, work)
        with Running(connection):
            connection.send(queue, "1")
            eventually(lambda: connection.report().accepted == 1)
            # The broker has read the acceptance when it confirms a later frame: a cut before that redelivers it.
            connection.send(f"{queue}.other", "a later frame")
            first.accept()
            second.refuse()
            second.cut()
            eventually(lambda: first.links == 1)
            connection.send(queue, "2")
            eventually(lambda: work.done["2"])
    assert work.counts() == {"1": 1, "2": 1}


def test_no_address_answers(make_proxy: Callable[..., LinkProxy], broker: Broker) -> None:
    """A connect without an answer is a TransportError with each address, after one try each."""
    dead = [make_proxy(broker.stomp_port) for _ in range(2)]
    for proxy in dead:
        proxy.refuse()
    addresses = ",".join(f"stomp://{p.host}:{p.port}" for p in dead)
    with pytest.raises(redelivery.TransportError) as caught, redelivery.connect(f"failover:({addresses})"):
        pass
    assert all(str(proxy.port) in str(caught.value) for proxy in dead)


def test_wildcards_use_each_messages_own_policy(broker: Broker, new_queue: Callable[[], str]) -> None:
    """A consumer of a wildcard redelivers each message by the policy of its own queue; refused on RabbitMQ."""
    stem, work = new_queue(), Work()
    if broker.name == "rabbitmq":
        with (
            redelivery.connect(broker.uri()) as connection,
            pytest.raises(redelivery.ConfigurationError, match=stem),
        ):
            connection.consumer(f"{stem}.>")
        return
    policies = redelivery.RedeliveryPolicyMap({
        f"{stem}.never": POLICY(maximum_redeliveries=0),
        f"{stem}.*": POLICY(maximum_redeliveries=2, initial_redelivery_delay=0.05, redelivery_delay=0.05),
    })  # fmt: skip
    meant: dict[str, Any] = {"redelivery__wildcards": "address"} if broker.name == "artemis" else {}
    with redelivery.connect(broker.uri(**meant), policies=policies) as connection:
        connection.listen(f"{stem}.>", work)
        connection.start()  # on Artemis earlier messages go to a queue of their own name, not to the subscription
        with Running(connection):
            for name in ("never", "thrice"):
                connection.send(f"{stem}.{name}", "x", headers={"key": f"bad-{name}"})
            eventually(lambda: connection.report().poisoned == 2)
    assert work.counts() == {"bad-never": 1, "bad-thrice": 3}


def test_native_addresses(broker: Broker, java: JavaClient, unique_queue: str) -> None:
    """A `native://` address is sent to the broker unchanged, for sending and for consuming."""
    address = broker.destination(unique_queue)
    with redelivery.connect(broker.uri()) as connection:
        java.send(unique_queue, b"from Java")
        consumer = connection.consumer(f"native://{address}")
        message = consumer.receive(timeout=PATIENCE)
        assert message is not None
        assert message.text == "from Java"
        message.accept()
        connection.send(f"native://{address}", "from Python")
        message = consumer.receive(timeout=PATIENCE)
        assert message is not None
        assert message.text == "from Python"


def test_two_consumers_on_one_connection(broker: Broker, new_queue: Callable[[], str]) -> None:
    """Each of two consumers on one connection has its own queue's messages, redeliveries and end."""
    queues, works = [new_queue(), new_queue()], [Work(), Work()]
    with redelivery.connect(broker.uri(), policies=QUICK) as connection:
        first = connection.consumer(queues[0])
        connection.listen(queues[1], works[1])
        with Running(connection):
            for number in range(20):
                connection.send(queues[number % 2], f"once-{number}", persistent=False)
            eventually(lambda: len(works[1].done) == 10)
            for number in range(0, 20, 2):
                message = first.receive(timeout=PATIENCE)
                assert message is not None
                assert message.text == f"once-{number}"
                message.accept()
            first.close()
            connection.send(queues[1], "after")
            eventually(lambda: works[1].done["after"])
    assert works[1].counts() == {**{f"once-{n}": 2 for n in range(1, 20, 2)}, "after": 1}


@pytest.mark.parametrize("persistent", [True, False])
def test_many_parked_messages_keep_the_others_flowing(
    broker: Broker, java: JavaClient, unique_queue: str, *, persistent: bool
) -> None:
    """400 messages are handled while 150 are parked (Classic stalls at 200 unacknowledged ones)."""
    policies = redelivery.RedeliveryPolicyMap(
        default=POLICY(maximum_redeliveries=1, initial_redelivery_delay=600)
    )
    java.send(unique_queue, b"once", persistent=persistent, properties={"key": "once"}, copies=150)
    java.send(unique_queue, b"good", persistent=persistent, copies=400)
    parked, done = 0, 0

    def handle(message: redelivery.Message) -> None:
        nonlocal parked, done
        if message.text == "once" and message.redelivery_count == 0:
            parked += 1
            raise ValueError("once")
        done += 1

    with redelivery.connect(broker.uri(), policies=policies) as connection:
        connection.listen(unique_queue, handle)
        with Running(connection):
            eventually(lambda: (parked, done) == (150, 400), message="the others flow meanwhile")
    eventually(lambda: java.count(unique_queue) == 150, message="those that waited go back")
    with redelivery.connect(broker.uri()) as connection:
        again = Work()
        connection.listen(unique_queue, again)
        with Running(connection):
            eventually(lambda: done + again.done["once"] == 550, message="all are handled")
    assert java.count(unique_queue) == 0
