"""A dead-letter queue that refuses each dead letter for a while: nothing is lost, and other messages are handled."""

from __future__ import annotations

import logging
import threading
import uuid
from typing import TYPE_CHECKING

import pytest

import redelivery
from integration.brokers import RabbitMQ
from integration.eventually import eventually
from integration.raw_amqp import RawAmqp, Received
from integration.work import POLICY, Running, Work

if TYPE_CHECKING:
    from integration.brokers import Broker

pytestmark = [
    pytest.mark.ci("a dead letter that is refused for 12 s"),
    pytest.mark.own_broker("changes its settings"),
]

BAD, GOOD = 3, 12
ONCE = redelivery.RedeliveryPolicyMap(default=POLICY(maximum_redeliveries=0))
FILLER = "filler" * 5000
PAIRS = [(name, protocol) for name in ("rabbitmq", "rabbitmq4", "artemis") for protocol in ("stomp", "amqp")]


class SmallQueue:
    """A queue with room for one filler: behind it, each message is refused."""

    def __init__(self, broker: Broker) -> None:
        self.name = f"it.small.{uuid.uuid4().hex[:8]}"
        self._broker = broker
        if isinstance(broker, RabbitMQ):
            policy = '{"max-length": 1, "overflow": "reject-publish"}'
            broker.control("set_policy", self.name, f"^{self.name}$", policy, "--apply-to", "queues")
            return
        settings = '{"maxSizeBytes": 20000, "pageSizeBytes": 10000, "addressFullMessagePolicy": "FAIL"}'
        with RawAmqp(broker) as raw:
            raw.manage("broker", "addAddressSettings", self.name, settings)

    def fill(self) -> None:
        """Make it full: a consumer is not started whose dead letters are refused."""
        with RawAmqp(self._broker) as raw:
            raw.send(self.name, FILLER)

    def drain(self, count: int) -> list[str]:
        """Make room; return the dead letters until there are `count` different ones."""
        if isinstance(self._broker, RabbitMQ):
            self._broker.control("clear_policy", self.name)
        found: list[str] = []

        def came() -> bool:
            with RawAmqp(self._broker) as raw:
                found.extend(
                    text for each in raw.receive(self.name, 1, 1.0) if (text := _text(each)) != FILLER
                )
            return len(set(found)) >= count

        eventually(came, 90, message="the dead letters come")
        return found


def _text(message: Received) -> str:
    body = message.body
    return bytes(body).decode() if isinstance(body, bytes | memoryview) else str(body)


@pytest.mark.parametrize(("broker", "protocol"), PAIRS, indirect=["broker"])
def test_others_are_handled_while_dead_letters_are_refused(
    broker: Broker, unique_queue: str, caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    """While dead letters are refused, others are handled, few connections end, and the log says why; none is lost."""
    work, dead = Work(), SmallQueue(broker)
    uri = broker.uri(protocol=protocol, redelivery__deadLetterDestination=dead.name)
    caplog.set_level(logging.INFO, logger="redelivery")
    with (
        redelivery.connect(broker.uri(protocol=protocol)) as direct,
        redelivery.connect(uri, policies=ONCE) as connection,
    ):
        connection.listen(unique_queue, work)
        with Running(connection) as running:
            direct.send(unique_queue, "good-0")
            eventually(lambda: running.ended or work.done["good-0"])
            dead.fill()
            for number in range(BAD):
                direct.send(unique_queue, f"bad-{number}")
            for number in range(1, GOOD):
                direct.send(unique_queue, f"good-{number}")
                eventually(lambda: running.ended or work.done[f"good-{number}"])  # noqa: B023
                threading.Event().wait(1.0)
            assert running.error is None
            assert not running.ended
            (consumer,) = connection.health().consumers
            assert consumer.unconfirmed_cause is not None
            lines = [each.getMessage() for each in caplog.records]
            lost = sum("connection lost" in line for line in lines)
            refused = [line for line in lines if "its dead letter is not confirmed" in line]
            print(f"\n{broker.name} over {protocol}: {lost} connections lost in {GOOD} s; {refused}")
            found = dead.drain(BAD)
            print(f"dead letters: {found}")
            assert sorted(found) == [f"bad-{number}" for number in range(BAD)]
            eventually(lambda: connection.health().consumers[0].unconfirmed_cause is None)
        assert running.error is None
    counts = work.counts()
    assert {key for key, count in work.done.items() if count} == {f"good-{number}" for number in range(GOOD)}
    assert [counts[f"bad-{number}"] for number in range(BAD)] == [1] * BAD, (
        "the verdict stays over each reconnect"
    )
    # Artemis redelivers some accepted messages without the redelivered flag when it closes a STOMP connection.
    assert max(counts.values()) <= (2 if (broker.name, protocol) == ("artemis", "stomp") else 1)
    assert lost <= 6
    assert len(refused) == 1
