"""RabbitMQ's own features over STOMP: releases, quorum queues, virtual hosts, its time limit, dropped messages."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from integration.availability import own_settings
from integration.brokers import RabbitMQ
from integration.eventually import eventually, never
from integration.work import POLICY, Running, Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker
    from integration.conftest import Client
    from integration.proxy import LinkProxy

pytestmark = pytest.mark.ci("RabbitMQ's STOMP in detail")

QUORUM = "x-queue-type:quorum"
QUICK = redelivery.RedeliveryPolicyMap(
    default=POLICY(maximum_redeliveries=1, initial_redelivery_delay=0.05, redelivery_delay=0.05)
)


@pytest.fixture
def client(rabbitmq: Broker, client_for: Callable[[Broker, str], Client]) -> Client:
    """Return the other client."""
    return client_for(rabbitmq, "stomp")


def pull(consumer: redelivery.Consumer) -> redelivery.Message:
    """Return the next message, which must arrive."""
    message = consumer.receive(timeout=20)
    assert message is not None, f"no message arrived from {consumer.destination}"
    return message


@pytest.mark.parametrize("settled", [0, 40], ids=["untouched", "in the flow"])
def test_a_consumer_that_closes_gives_everything_to_others(
    rabbitmq: Broker, client: Client, unique_queue: str, settled: int
) -> None:
    """A consumer that closes releases unsettled and late messages at once, on an open connection, none twice."""
    client.send(unique_queue, b"x", copies=400)
    uri = rabbitmq.uri(redelivery__credit=100, redelivery__maxParked=100)
    with redelivery.connect(uri) as leaving, redelivery.connect(uri) as staying:
        consumer = leaving.consumer(unique_queue)
        done = [pull(consumer) for _ in range(settled)]
        for message in done:
            message.accept()
        held = pull(consumer)
        consumer.close()
        assert held.accept() is False
        numbers = [message.headers["number"] for message in done]
        other = staying.consumer(unique_queue)
        while len(numbers) < 400:
            message = pull(other)
            message.accept()
            numbers.append(message.headers["number"])
        assert sorted(map(int, numbers)) == list(range(400))
        assert leaving.send(unique_queue, "the connection lives")
        assert pull(other).text == "the connection lives"


def test_a_released_message_goes_to_whoever_is_free(
    rabbitmq: Broker, client: Client, unique_queue: str
) -> None:
    """A released message is redelivered at once, with the redelivered flag, and is not charged."""
    client.send(unique_queue, b"x")
    with redelivery.connect(rabbitmq.uri()) as connection:
        first = connection.consumer(unique_queue)
        message = pull(first)
        assert (message.redelivered, message.release()) == (False, True)
        message = pull(first)
        assert (message.redelivered, message.delivery_count, message.broker_count) == (True, 1, None)
        message.accept()
    assert client.count(unique_queue) == 0


def test_quorum_queues(rabbitmq: Broker, client: Client, unique_queue: str) -> None:
    """A quorum queue is declared with the URI's arguments, also for dead letters; the broker's count is reported."""
    graves = f"{unique_queue}.graves"
    options: dict[str, Any] = {
        "redelivery__queueArguments": QUORUM,
        "redelivery__deadLetterArguments": f"{QUORUM},x-max-length:5",
        "redelivery__deadLetterDestination": graves,
    }
    uri = rabbitmq.uri(**options)
    with redelivery.connect(uri) as connection:
        connection.send(unique_queue, "bad")
        message = pull(connection.consumer(unique_queue))
        assert (message.broker_count, list(message.headers)) == (None, ["redeliveryId"])
    work = Work()
    with redelivery.connect(uri, policies=QUICK) as connection:
        again = pull(consumer := connection.consumer(unique_queue))
        assert (again.broker_count, again.redelivered, again.message_id) == (1, True, message.message_id)
        consumer.close()
        connection.listen(unique_queue, work)
        with Running(connection):
            eventually(lambda: connection.report().poisoned == 1)
    assert work.counts() == {"bad": 2}
    with redelivery.connect(
        rabbitmq.uri(
            redelivery__queueArguments=f"{QUORUM},x-max-length:5", redelivery__deadLetterDestination="x"
        )
    ) as connection:
        letter = pull(connection.consumer(graves))
        assert letter.headers["redeliveryOriginalId"] == letter.message_id == message.message_id
        letter.accept()


def test_a_queue_that_is_there_with_other_arguments(
    rabbitmq: Broker, make_proxy: Callable[[int], LinkProxy], unique_queue: str
) -> None:
    """A queue with other arguments is refused once, with the broker's text; its native address can be consumed."""
    with redelivery.connect(rabbitmq.uri(redelivery__queueArguments=QUORUM)) as connection:
        connection.send(unique_queue, "there")
    proxy = make_proxy(rabbitmq.stomp_port)
    with redelivery.connect(rabbitmq.uri(port=proxy.port)) as connection:
        with pytest.raises(redelivery.AdapterError, match=f"PRECONDITION_FAILED .*{unique_queue}"):
            connection.consumer(unique_queue)
        message = pull(connection.consumer(f"native:///amq/queue/{unique_queue}"))
        assert (message.text, message.destination) == ("there", f"queue://{unique_queue}")
        message.accept()
        links = proxy.links_ever
        assert links <= 2
        never(lambda: proxy.links_ever > links, 0.5)


@pytest.mark.parametrize("protocol", ["stomp", "amqp"])
def test_the_address_that_the_refusal_names_works(rabbitmq: Broker, protocol: str, unique_queue: str) -> None:
    """A refusal over arguments names an address that declares nothing; with it the queue is sent to and consumed."""
    with redelivery.connect(rabbitmq.uri(redelivery__queueArguments=QUORUM)) as connection:
        connection.send(unique_queue, "there")
    with redelivery.connect(rabbitmq.uri(protocol=protocol)) as connection:
        if (protocol, rabbitmq.release >= (4,)) == ("amqp", True):
            named = unique_queue
        else:
            with pytest.raises(redelivery.AdapterError) as caught:
                connection.consumer(unique_queue)
            (named,) = re.findall("name it ([^,]+),", str(caught.value))
        consumer = connection.consumer(named)
        connection.send(named, "more")
        messages = [pull(consumer) for _ in range(2)]
        assert sorted(message.text for message in messages) == ["more", "there"]
        assert all(message.accept() for message in messages)


@pytest.mark.parametrize("destination", ["native:///amq/queue/{}", "native:///exchange/{}/key"])
def test_what_is_not_there(rabbitmq: Broker, unique_queue: str, destination: str) -> None:
    """A missing destination is refused, for a consumer and for dead letters, which RabbitMQ would confirm and drop."""
    missing = destination.format(unique_queue)
    with (
        redelivery.connect(rabbitmq.uri()) as connection,
        pytest.raises(redelivery.AdapterError, match="NOT_FOUND"),
    ):
        connection.consumer(missing)
    uri = rabbitmq.uri(redelivery__deadLetterDestination=missing)
    with (
        redelivery.connect(uri) as connection,
        pytest.raises(redelivery.AdapterError, match="confirms and drops"),
    ):
        connection.consumer(unique_queue)


@pytest.mark.parametrize(("address", "said"), [("/exchange/{}/k", "NOT_FOUND"), ("/{}/k", "not a valid")])
def test_a_message_to_nowhere(rabbitmq: Broker, unique_queue: str, address: str, said: str) -> None:
    """A message to a missing exchange, or to an unknown kind of address, is refused with the broker's text."""
    with (
        redelivery.connect(rabbitmq.uri()) as connection,
        pytest.raises(redelivery.AdapterError, match=said),
    ):
        connection.send(f"native://{address.format(unique_queue)}", "x")


def test_several_messages_to_nowhere(rabbitmq: Broker) -> None:
    """Several refused messages get the reason, though RabbitMQ often answers those after the first without one."""

    async def refused() -> list[BaseException | str]:
        async with redelivery.connect_async(rabbitmq.uri()) as connection:
            sends = (connection.send("native:///exchange/there-is-none/x", "x") for _ in range(5))
            return await asyncio.gather(*sends, return_exceptions=True)

    for _ in range(20):
        errors = asyncio.run(refused())
        assert any(isinstance(error, redelivery.AdapterError) for error in errors)
        others = {str(e) for e in errors if "NOT_FOUND - no exchange 'there-is-none'" not in str(e)}
        assert others <= {"not connected: the connection was lost"}, "those that were never written"


def test_virtual_hosts(rabbitmq: Broker, unique_queue: str) -> None:
    """The virtual host is the default one, or that of the URI; a missing one is refused at once."""
    with (
        redelivery.connect(rabbitmq.uri(redelivery__virtualHost="second")) as there,
        redelivery.connect(rabbitmq.uri()) as here,
    ):
        there.send(unique_queue, "there")
        here.send(unique_queue, "here")
        assert pull(there.consumer(unique_queue)).text == "there"
        assert pull(here.consumer(unique_queue)).text == "here"
    with (
        pytest.raises(redelivery.AdapterError, match="Virtual host 'third' access denied"),
        redelivery.connect(rabbitmq.uri(redelivery__virtualHost="third")),
    ):
        pass


@pytest.mark.own_broker("restarts it")
def test_a_dead_letter_queue_that_nobody_has_made(
    rabbitmq: Broker, client: Client, unique_queue: str
) -> None:
    """A missing dead-letter queue is declared durable before the first dispatch: a copy survives a restart.

    Not a kill: RabbitMQ may lose a queue that was declared right before a SIGKILL, with confirmed messages.
    """
    graves, work = f"{unique_queue}.graves", Work()
    uri = rabbitmq.uri(redelivery__deadLetterDestination=graves)
    with redelivery.connect(uri, policies=QUICK) as connection:
        connection.send(unique_queue, "bad", persistent=False)
        connection.listen(unique_queue, work)
        with Running(connection):
            eventually(lambda: connection.report().poisoned == 1)
    rabbitmq.restart()
    (letter,) = client.drain(graves, expected=1)
    assert (letter.body, letter.persistent) == (b"bad", True)
    assert letter.properties["redeliveryOriginalDeliveryMode"] == "NON_PERSISTENT"


def test_names_that_rabbitmq_escapes(rabbitmq: Broker, unique_queue: str) -> None:
    """Slashes, percent signs, blanks and umlauts in a name reach the queue of that name, and are read back."""
    name = f"{unique_queue}/50% ü"
    with redelivery.connect(rabbitmq.uri()) as connection:
        connection.send(name, "x", reply_to=name)
        message = pull(connection.consumer(name))
        assert (message.destination, message.reply_to) == (f"queue://{name}", f"queue://{name}")


def test_a_message_held_too_long_comes_again(unique_queue: str) -> None:
    """A message that is kept too long is redelivered on a new connection, uncharged, and none is lost.

    From 4.3 on this is so for a quorum queue only; a classic queue has no such limit.
    """
    with own_settings(RabbitMQ, consumer_timeout_ms=1000, tick_ms=500) as broker:
        kind = "quorum" if broker.release >= (4, 3) else "classic"
        with redelivery.connect(broker.uri(redelivery__queueArguments=f"x-queue-type:{kind}")) as connection:
            connection.send(unique_queue, "slow")
            consumer = connection.consumer(unique_queue)
            held = pull(consumer)
            epoch = connection._driver._epoch
            assert held.delivery_count == 1
            # The next connection begins after the message's engine has handled the loss.
            eventually(lambda: connection._driver._epoch > epoch, 60, message="the connection is lost")
            assert not held.accept()
            assert held.outcome == "stale"
            eventually(
                lambda: connection.report().deduplicated, 20, message="the copy is accepted without running"
            )
            consumer.close()
            assert connection.consumer(unique_queue).receive(timeout=1.0) is None
