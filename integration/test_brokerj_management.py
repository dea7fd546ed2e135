"""Answers of Broker-J's management node about a queue, and what doctor and consumers make of them.

docs/measured/brokerj-management.md has the facts.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from integration.peers import put, take
from integration.raw_amqp import AmqpError, RawAmqp
from integration.test_doctor import PATIENT, Diagnosis

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import BrokerJ

pytestmark = pytest.mark.ci("Broker-J's own settings for dead letters")

TO_DLQ = {"destination": "DLQ", "attributes": {}}


@pytest.mark.parametrize("stranger", [False, True], ids=["user", "stranger"])
def test_what_it_tells_of_a_queue(brokerj: BrokerJ, new_queue: Callable[[], str], stranger: bool) -> None:
    """Limit and alternate binding are in the answer, also to a user without a right; no queue is made by a question."""
    queue = new_queue()
    expected: dict[str, tuple[object, object]] = {
        f"max3.{queue}": (3, TO_DLQ), f"drop3.{queue}": (3, None), f"alt.{queue}": (0, TO_DLQ), queue: (0, None),
    }  # fmt: skip
    for name in expected:
        put(brokerj, "amqp", name)
    with RawAmqp(brokerj, brokerj.stranger if stranger else None) as raw:
        assert "maximumDeliveryAttempts" not in raw.manage_brokerj(queue, actuals=True)[1]
        for name, told in expected.items():
            status, body = raw.manage_brokerj(name)
            assert (status, body["name"], body["qpid-type"]) == (200, name, "standard")
            assert (body.get("maximumDeliveryAttempts"), body.get("alternateBinding")) == told
        for _ in range(2):
            assert raw.manage_brokerj(f"{queue}.missing")[0] == 404


def test_a_name_with_a_backslash(brokerj: BrokerJ, unique_queue: str) -> None:
    """A backslash of a name is escaped in a path; with a slash no link reaches a queue."""
    name = f"alt.{unique_queue}a\\b"
    put(brokerj, "amqp", name)
    with RawAmqp(brokerj) as raw:
        assert raw.manage_brokerj(name)[0] == 404
        assert raw.manage_brokerj(name.replace("\\", "\\\\"))[0] == 200
        with pytest.raises(AmqpError):
            raw.send(f"alt.{unique_queue}/a")
    found = Diagnosis(brokerj.uri(**PATIENT), name)
    assert any("the queue's alternateBinding DLQ gets" in text for *_, text in found.findings)


@pytest.mark.own_broker("reads its dead-letter queue")
@pytest.mark.parametrize("ends", ["link", "connection"])
def test_what_it_gives_up(brokerj: BrokerJ, unique_queue: str, ends: str) -> None:
    """After as many deliveries as the limit allows a message is in the alternate binding, or dropped without one."""
    for prefix in ("max3", "drop3"):
        queue = f"{prefix}.{unique_queue}"
        put(brokerj, "amqp", queue, prefix.encode())
        for count in range(3):
            with RawAmqp(brokerj) as raw:
                receiver = raw.connection.create_receiver(queue, credit=1)
                assert receiver.receive(60.0).delivery_count == count
                if ends == "link":
                    receiver.close()
        assert take(brokerj, "amqp", queue, 0.5) is None
    assert take(brokerj, "amqp", "DLQ") == b"max3"
    assert take(brokerj, "amqp", "DLQ", 0.5) is None


def test_doctor_names_the_alternate_binding(brokerj: BrokerJ, unique_queue: str) -> None:
    """The copy wins, and the alternate binding is named beside it; a limit without one is a warning."""
    said: dict[str, Any] = {}
    for prefix in ("max3.", "alt.", "drop3.", ""):
        put(brokerj, "amqp", prefix + unique_queue)
        said[prefix] = Diagnosis(brokerj.uri(**PATIENT), prefix + unique_queue).findings
    for prefix, own in (("max3.", "the queue's alternateBinding DLQ (after 3 deliveries)"), ("alt.", "DLQ")):
        (text,) = [text for *_, text in said[prefix] if "alternateBinding" in text]
        assert f"{own} gets what the broker itself gives up; a copy wins, for it carries the cause" in text
    assert not any("alternateBinding" in text for *_, text in said[""])
    (found,) = [each for each in said["drop3."] if "alternateBinding" in each[2]]
    assert found[:2] == ("warn", f"queue://drop3.{unique_queue}")
    assert "a message is dropped after 3 deliveries" in found[2]


def test_a_consumer_says_that_messages_may_be_dropped(
    brokerj: BrokerJ, unique_queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A consumer of a queue with a limit and no alternate binding begins with a warning."""
    queue = f"drop3.{unique_queue}"
    put(brokerj, "amqp", queue)
    caplog.set_level(logging.WARNING)
    with redelivery.connect(brokerj.uri()) as connection, connection.consumer(queue):
        pass
    (warning,) = [each.message for each in caplog.records if "alternateBinding" in each.message]
    assert "dropped after 3 deliveries" in warning
