"""AMQP 1.0 on each broker: TLS, refused log-ins and links, the wrong port, a frozen broker, a long handler."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from integration.eventually import SLACK, eventually
from integration.raw_amqp import RawAmqp, proton

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker
    from integration.proxy import LinkProxy

pytestmark = pytest.mark.ci("AMQP in detail; conformance has the promises")


def test_tls(any_broker: Broker, unique_queue: str) -> None:
    """A message is sent and received over TLS, and the certificate is verified."""
    uri = any_broker.uri(protocol="amqp", tls=True, redelivery__tlsCaFile=any_broker.ca_pem)
    with redelivery.connect(uri) as connection:
        connection.send(unique_queue, b"\0\xff" * 100_000)
        message = connection.consumer(unique_queue).receive(timeout=60)
        assert message is not None
        assert message.body == b"\0\xff" * 100_000
        assert message.accept()


def test_a_certificate_that_nobody_signed(any_broker: Broker) -> None:
    """A certificate without the authority's file is refused, with an error of one sentence."""
    with pytest.raises(redelivery.TransportError, match="certificate is not trusted") as caught:
        redelivery.connect(any_broker.uri(protocol="amqp", tls=True)).__enter__()
    assert "\n" not in str(caught.value)


def test_wrong_password(any_broker: Broker) -> None:
    """A wrong password is refused at once, not retried, and not shown."""
    uri = (
        f"failover:(amqp://127.0.0.1:{any_broker.ports['amqp']})?jms.userName=tester&jms.password=wr0ng-pass"
    )
    started = time.monotonic()
    with pytest.raises(redelivery.AdapterError, match="refused the log-in") as caught:
        redelivery.connect(uri).__enter__()
    assert time.monotonic() - started < 3 + SLACK, "it would be tried for 60 s"
    assert "wr0ng" not in str(caught.value)
    assert "tester" not in str(caught.value), "brokers repeat the name"


def test_a_port_that_speaks_something_else(broker: Broker) -> None:
    """A connection to the port of the other protocol is one error, within the time-out."""
    for scheme, service in (("amqp", "stomp"), ("stomp", "amqp")):
        uri = f"{scheme}://127.0.0.1:{broker.ports[service]}?redelivery.connectTimeout=3000"
        with pytest.raises(redelivery.TransportError) as caught:
            redelivery.connect(uri).__enter__()
        assert "\n" not in str(caught.value)


def test_a_destination_that_nobody_may_use(
    any_broker: Broker, make_proxy: Callable[..., LinkProxy], unique_queue: str
) -> None:
    """A consumer and a send without permission are refused with the broker's reason; the connection stays open."""
    proxy = make_proxy(any_broker.ports["amqp"], opaque=True)
    with redelivery.connect(any_broker.uri(protocol="amqp", port=proxy.port)) as connection:
        for _ in range(2):
            with pytest.raises(redelivery.AdapterError, match=r"denied\.q") as consuming:
                connection.consumer("denied.q")
            with pytest.raises(redelivery.AdapterError, match="denied") as sending:
                connection.send("denied.q", "x", timeout=30)
            for caught in (consuming, sending):
                assert any_broker.user not in str(caught.value), "brokers repeat the name"
        connection.send(unique_queue, b"allowed", timeout=30)
        received(connection.consumer(unique_queue), b"allowed")
    assert proxy.links_ever == 1, "no other connection was needed"


def test_a_dead_letter_destination_that_refuses(any_broker: Broker, unique_queue: str) -> None:
    """A dead-letter queue that refuses is an AdapterError, and where only a message shows it, it is tried again.

    No message is acknowledged, and each is there once.
    """
    policies = redelivery.RedeliveryPolicyMap(default=redelivery.RedeliveryPolicy(maximum_redeliveries=0))
    uri = any_broker.uri(
        protocol="amqp",
        redelivery__deadLetter="forward",
        redelivery__deadLetterDestination="denied.dlq",
    )
    bodies = {"1", "2", "3"}
    with redelivery.connect(uri, policies=policies) as connection:
        for body in bodies:
            connection.send(unique_queue, body)

        def handle(message: redelivery.Message) -> None:
            raise ValueError(message.text)

        connection.listen(unique_queue, handle)
        if any_broker.name == "brokerj":
            # Its refusals of several copies at once have ended the connection: "no such channel". Then one is tried.
            connection.start()
            eventually(lambda: "denied for" in (connection.health().consumers[0].unconfirmed_cause or ""), 60)
        else:
            with pytest.raises(redelivery.AdapterError, match=r"denied\.dlq"):
                connection.run()
        assert connection.report().poisoned == 0
    with redelivery.connect(any_broker.uri(protocol="amqp")) as connection:
        consumer, found = connection.consumer(unique_queue), list[str]()
        while (message := consumer.receive(timeout=2 if len(found) >= len(bodies) else 20)) is not None:
            found.append(message.text)
            message.accept()
    assert sorted(found) == sorted(bodies)


def test_a_queue_that_does_not_exist(
    brokerj: Broker, rabbitmq: Broker, make_proxy: Callable[..., LinkProxy]
) -> None:
    """A missing queue is one error with the broker's reason; RabbitMQ accepts and drops a message to it."""
    for broker, destination in ((brokerj, "absent.q"), (rabbitmq, "native:///amq/queue/absent")):
        proxy = make_proxy(broker.ports["amqp"], opaque=True)
        with redelivery.connect(broker.uri(protocol="amqp", port=proxy.port)) as connection:
            with pytest.raises(redelivery.AdapterError, match="absent") as caught:
                connection.consumer(destination)
            assert "\n" not in str(caught.value)
            if broker is brokerj:
                with pytest.raises(redelivery.AdapterError, match="absent"):
                    connection.send(destination, "x", timeout=30)
            connection.send("present", "x", timeout=30)
        assert proxy.links_ever == 1, "no other connection was needed"


def test_heart_beats_that_brokerj_finds_too_often(brokerj: Broker) -> None:
    """Heart-beats of less than a second are refused by Broker-J: an error of the option, without a reconnect."""
    with (
        pytest.raises(redelivery.ConfigurationError, match=r"redelivery\.heartbeat=1000 or more"),
        redelivery.connect(brokerj.uri(protocol="amqp", redelivery__heartbeat=500)) as connection,
    ):
        connection.send("present", "x")


def test_an_address_of_the_other_routing_type(artemis: Broker, unique_queue: str) -> None:
    """Artemis refuses a consumer of the other routing type: the error names the destination that works."""
    with redelivery.connect(artemis.uri(protocol="amqp")) as connection:
        connection.consumer(f"topic://{unique_queue}.t")
        connection.consumer(f"queue://{unique_queue}.q")
        for wrong, right in (("queue", "topic"), ("topic", "queue")):
            name = f"{unique_queue}.{right[0]}"
            with pytest.raises(redelivery.AdapterError, match=f"consume {right}://{name}, or give it"):
                connection.consumer(f"{wrong}://{name}")
            connection.consumer(f"{right}://{name}")


def test_a_message_that_is_too_large(
    any_broker: Broker, make_proxy: Callable[..., LinkProxy], unique_queue: str
) -> None:
    """A message that is too large is one error with the broker's limit; without a limit it arrives whole."""
    proxy = make_proxy(any_broker.ports["amqp"], opaque=True)
    largest = any_broker.largest
    body = b"x" * ((largest or 8 << 20) + 1)
    with redelivery.connect(any_broker.uri(protocol="amqp", port=proxy.port)) as connection:
        consumer = connection.consumer(unique_queue)
        if largest is None:
            connection.send(unique_queue, body, timeout=60)
            received(consumer, body)
        else:
            with pytest.raises(redelivery.AdapterError, match=str(largest)) as caught:
                connection.send(unique_queue, body, timeout=60)
            assert "\n" not in str(caught.value)
        connection.send(unique_queue, b"small", timeout=60)
        received(consumer, b"small")
    assert proxy.links_ever == 1, "no other connection was needed"


def received(consumer: redelivery.Consumer, body: bytes) -> None:
    """Check the body of the next message."""
    message = consumer.receive(timeout=60)
    assert message is not None
    assert message.body == body
    assert message.accept()


def test_frames_are_shown_without_credentials(
    any_broker: Broker, unique_queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The wire log has each frame, without the content of the log-in, and with only the size of a message."""
    caplog.set_level(logging.DEBUG, "redelivery.wire")
    with redelivery.connect(any_broker.uri(protocol="amqp")) as connection:
        connection.send(unique_queue, "tell-tale")
        with connection.consumer(unique_queue) as consumer:
            message = consumer.receive(timeout=20)
            assert message is not None
            assert message.text == "tell-tale"
            message.accept()
    text = "\n".join(record.getMessage() for record in caplog.records)
    for shown in (
        "-> @open(16)",
        "-> @sasl-init not shown",
        "-> @transfer(20)",
        "<- @transfer(20)",
        " bytes)",
    ):
        assert shown in text, text
    for secret in (any_broker.password, any_broker.user, "tell-tale"):
        assert secret not in text, [line for line in text.splitlines() if secret in line]


@pytest.mark.own_broker("freezes it")
def test_a_frozen_broker_is_noticed(any_broker: Broker) -> None:
    """A frozen broker is noticed: the connection is lost after two missing heart-beats."""
    uri = any_broker.uri(protocol="amqp", redelivery__heartbeat=1000)
    with redelivery.connect(uri) as connection:
        any_broker.pause()
        started = time.monotonic()
        try:
            eventually(lambda: not connection.connected, 60, message="the loss is noticed")
        finally:
            any_broker.resume()
        took = time.monotonic() - started
        print(f"{any_broker.name}: noticed after {took:.1f} s")
        assert took < 6 + SLACK, "not by the time-outs of TCP or of the broker"
        eventually(lambda: connection.connected, 60, message="connected again")


def test_a_handler_that_outlasts_the_heart_beats(any_broker: Broker, unique_queue: str) -> None:
    """A handler of 15 s with heart-beats of 3 s keeps its connection, and another message is redelivered meanwhile."""
    over = threading.Event()
    times: list[float] = []
    policy = redelivery.RedeliveryPolicy(
        maximum_redeliveries=5, initial_redelivery_delay=0.5, redelivery_delay=0.5
    )
    policies = redelivery.RedeliveryPolicyMap(default=policy)
    uri = any_broker.uri(protocol="amqp", redelivery__heartbeat=3000)
    with redelivery.connect(uri, policies=policies) as connection:

        def handle(message: redelivery.Message) -> None:
            if message.text == "long":
                threading.Event().wait(15.0)
                assert over.wait(60), "the redeliveries have waited for this handler"
                return
            times.append(time.monotonic())
            if len(times) < 6:
                raise ValueError("again")
            over.set()

        connection.listen(unique_queue, handle, workers=2)
        connection.send(unique_queue, "long")
        connection.send(unique_queue, "short")
        connection.start()
        eventually(lambda: connection.report().accepted == 2, 60, message="both are done")
        report = connection.report()
    assert (report.stale, report.deduplicated, report.redelivered) == (0, 0, 5)
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert min(gaps) >= 0.5, gaps


@pytest.mark.parametrize("name", ["artemis", "activemq"])
def test_a_wildcards_consumer_believes_no_other_destination(
    request: pytest.FixtureRequest, name: str, unique_queue: str
) -> None:
    """A producer's forged destination selects neither the policy nor the destination of a redrive."""
    broker: Broker = request.getfixturevalue(name)
    once = redelivery.RedeliveryPolicyMap(default=redelivery.RedeliveryPolicy(maximum_redeliveries=0))
    graves = f"{unique_queue}_dead"
    meant: dict[str, Any] = {"redelivery__wildcards": "address"} if name == "artemis" else {}
    uri = broker.uri(protocol="amqp", redelivery__deadLetterDestination=graves, **meant)
    told = "queue://" if name == "activemq" else ""
    with redelivery.connect(uri, policies=once) as connection:
        consumer = connection.consumer(f"{unique_queue}.>")
        seen: list[str] = []
        with RawAmqp(broker) as raw:
            for to in ("admin", f"{unique_queue}.orders"):
                message = proton.Message(body="x", durable=True, address=told + to)
                assert raw.send_encoded(f"{told}{unique_queue}.orders", message.encode())
        for _ in range(2):
            came = consumer.receive(timeout=60)
            assert came is not None
            seen.append(came.destination)
            came.fail("bad")
    # Classic writes the real destination there itself.
    unknown = 1 if name == "artemis" else 0
    right = f"queue://{unique_queue}.orders"
    assert seen == [f"queue://{unique_queue}.>" if unknown else right, right]
    with redelivery.dead_letters(uri, graves) as dead:
        done = dead.redrive()
        assert (done.destinations, done.without_origin) == ({right: 2 - unknown}, unknown)
