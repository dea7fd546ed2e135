"""RabbitMQ 4.3 takes a message back from a consumer that keeps it too long: the others flow, and none is lost."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

import pytest

import redelivery
from integration.availability import own_settings
from integration.brokers import RabbitMQ4
from integration.eventually import SLACK, eventually
from integration.raw_amqp import RawAmqp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.ci("RabbitMQ's timeouts: 10 s and more each")

# Broker and protocol of these tests.
PAIR = ("rabbitmq4", "amqp")
# Seconds. The node's consumer timeout, and the latest time of its check.
TIMEOUT = 10.0
LATEST = TIMEOUT + 30.0
# Seconds between messages whose timeouts end one after the other, and without traffic.
BETWEEN, QUIET = 0.2, TIMEOUT + 3.0


@pytest.fixture(scope="module")
def broker() -> Iterator[RabbitMQ4]:
    """Return a node of the newest version with a short consumer timeout."""
    with own_settings(RabbitMQ4, consumer_timeout_ms=int(TIMEOUT * 1000)) as node:
        yield node


class Handler:
    """Hangs with the first delivery of one message, and then raises; counts the deliveries of each."""

    def __init__(self) -> None:
        """Begin without deliveries."""
        self.hangs = threading.Event()
        self.counts: dict[str, list[int]] = {}
        self.times: dict[str, float] = {}

    def __call__(self, message: redelivery.Message) -> None:
        """Handle one delivery."""
        self.times.setdefault(message.text, time.monotonic())
        self.counts.setdefault(message.text, []).append(message.delivery_count)
        if message.text == "hangs" and len(self.counts["hangs"]) == 1:
            self.hangs.wait(120.0)
            raise ValueError("late")


def test_what_is_taken_back_is_stale_and_the_others_flow(
    broker: RabbitMQ4, unique_queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler that exceeds the timeout logs one warning, others flow within a second, its late failure is charged."""
    with RawAmqp(broker) as raw:
        raw.declare(unique_queue)
    uri = broker.uri(protocol="amqp", redelivery__consumerTimeout=0)
    uri += "&jms.redeliveryPolicy.initialRedeliveryDelay=100"
    handler = Handler()

    def taken_back() -> list[str]:
        return [text for each in caplog.records if "consumer timeout" in (text := each.getMessage())]

    connection = redelivery.connect(uri)
    connection.listen(unique_queue, handler, workers=2)
    with caplog.at_level(logging.WARNING, logger="redelivery"), connection.running():
        connection.send(unique_queue, "hangs")
        eventually(lambda: "hangs" in handler.times, 30.0)
        eventually(taken_back, LATEST, 0.005, "the broker takes it back")
        released = time.monotonic()
        connection.send(unique_queue, "flows")
        eventually(lambda: "flows" in handler.times, 1.0 + SLACK, 0.005)
        print(
            f"\ntaken back after {released - handler.times['hangs']:.2f} s, "
            f"the next one {handler.times['flows'] - released:.3f} s later"
        )
        handler.hangs.set()
        eventually(lambda: len(handler.counts["hangs"]) == 2, 30.0, message="the first one comes again")
    assert handler.counts == {"hangs": [1, 2], "flows": [1]}
    assert len(taken_back()) == 1
    assert sum("a result is stale" in each.getMessage() for each in caplog.records) == 1
    with RawAmqp(broker) as raw:
        assert raw.receive(unique_queue, timeout=1.0) == [], "all is accepted"


def test_a_consumer_asks_for_more_time_than_the_broker_gives(
    broker: RabbitMQ4, unique_queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A consumer asks for its policy's time by default: no message is taken back after twice the broker's timeout."""
    with RawAmqp(broker) as raw:
        raw.declare(unique_queue)
    with redelivery.connect(broker.uri(protocol="amqp")) as connection:
        connection.send(unique_queue, "slow")
        with (
            connection.consumer(unique_queue) as consumer,
            caplog.at_level(logging.WARNING, logger="redelivery"),
        ):
            message = consumer.receive(timeout=10.0)
            assert message is not None
            # Remove the log lines about the queue at the consumer's start.
            caplog.clear()
            assert consumer.receive(timeout=2 * TIMEOUT + 5.0) is None
            assert message.accept() is True
    assert [each for each in caplog.records if "taken" in each.getMessage()] == []
    with RawAmqp(broker) as raw:
        assert raw.receive(unique_queue, timeout=1.0) == []


class Traffic:
    """Messages sent one by one to a queue in which others wait."""

    def __init__(self, connection: redelivery.Connection, queue: str, until: Callable[[], bool]) -> None:
        """Send nothing yet."""
        self.sent: list[str] = []
        self._connection, self._queue, self._until = connection, queue, until

    def __call__(self) -> bool:
        """Send one; return True if no more are needed."""
        self.sent.append(f"later {len(self.sent)}")
        self._connection.send(self._queue, self.sent[-1])
        return self._until()


def test_what_is_prefetched_goes_back_with_what_hangs(
    broker: RabbitMQ4, unique_queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Prefetched messages go to another process, uncounted, while a handler hangs; this one gets later ones."""
    with RawAmqp(broker) as raw:
        raw.declare(unique_queue)
    names = [f"order {number}" for number in range(5)]
    hangs, seen, others = threading.Event(), list[str](), dict[str, int]()

    def hang(message: redelivery.Message) -> None:
        seen.append(message.text)
        if len(seen) == 1:
            hangs.wait(300.0)

    uri = broker.uri(protocol="amqp", redelivery__consumerTimeout=0, redelivery__credit=5)
    first = redelivery.connect(uri)
    first.listen(unique_queue, hang)
    with caplog.at_level(logging.WARNING, logger="redelivery"), first.running():
        for name in names:
            first.send(unique_queue, name)
            # Each gets a time of its own in the broker.
            threading.Event().wait(BETWEEN)
        eventually(lambda: seen == names[:1], 30.0)
        second = redelivery.connect(broker.uri(protocol="amqp"))
        second.listen(unique_queue, lambda message: others.setdefault(message.text, message.delivery_count))
        traffic = Traffic(first, unique_queue, lambda: set(names) <= set(others))
        with second.running():
            threading.Event().wait(QUIET)
            quiet = len(others)
            # 4.3.6 often forgets a timeout in a queue without traffic; the next message there reminds it. The consumer
            # that hangs gets its share again each time.
            eventually(traffic, 3 * LATEST, 1.0, "the other process has all of them")
        print(f"\n{quiet} of {len(names)} without traffic, the others after {len(traffic.sent)} messages")
        hangs.set()
        eventually(lambda: set(traffic.sent) <= {*seen, *others}, 30.0)
        first.send(unique_queue, "fresh")
        eventually(lambda: "fresh" in seen, 30.0)
    assert others == dict.fromkeys(others, 1)
    assert seen[0] == names[0]
    assert set(seen[1:]) <= {*traffic.sent, "fresh"}
    lines = [text for each in caplog.records if "taken" in (text := each.getMessage())]
    # The broker takes them back one by one, or a few at once; at most one line in ten seconds is written.
    assert "and their results will be stale" in lines[0]
    with RawAmqp(broker) as raw:
        assert raw.receive(unique_queue, timeout=1.0) == []


def test_what_waits_here_for_longer_is_taken_back_and_still_comes_when_it_is_due(
    broker: RabbitMQ4, unique_queue: str
) -> None:
    """A parked message with a delay of 2.5 times the timeout is charged once, is not early, and blocks no other."""
    with RawAmqp(broker) as raw:
        raw.declare(unique_queue)
    # Not a multiple of the timeout: the acknowledgement could meet the next time that the broker takes it back.
    delay = 2.5 * TIMEOUT
    uri = broker.uri(protocol="amqp", redelivery__consumerTimeout=int(TIMEOUT * 1000))
    uri += f"&jms.redeliveryPolicy.initialRedeliveryDelay={int(delay * 1000)}"
    with redelivery.connect(uri) as connection, connection.consumer(unique_queue) as consumer:
        connection.send(unique_queue, "waits")
        message = consumer.receive(timeout=30.0)
        assert message is not None
        failed = time.monotonic()
        message.fail("no stock")
        again = consumer.receive(timeout=delay + LATEST)
        assert again is not None
        assert time.monotonic() - failed >= delay
        assert again.delivery_count == 2
        assert again.accept() is True
    with RawAmqp(broker) as raw:
        assert raw.receive(unique_queue, timeout=1.0) == []
