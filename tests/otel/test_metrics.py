"""Metrics: they agree with the connection's report, and their attributes are limited."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.metrics import NoOpMeterProvider
from tests.driver.twins import eventually
from tests.otel.recorded import ONCE

import redelivery
from redelivery import Defer, Discard
from redelivery.otel.attributes import broker_attributes
from redelivery.otel.telemetry import Instruments, Measures, instruments_of

if TYPE_CHECKING:
    import pytest
    from tests.driver.twins import Twin
    from tests.otel.recorded import Recorded

    from redelivery import Message


def decides(message: Message) -> None:
    """Return or raise as the message says."""
    match message.text:
        case "bad":
            raise ValueError("no stock")
        case "old":
            raise Discard("old")
        case "later":
            raise Defer(100)
        case _:
            pass


def test_counts_are_those_of_the_report(twin: Twin, recorded: Recorded) -> None:
    """All outcomes are counted; each delivery is counted once, and redeliveries have an attribute."""
    connection = twin.connect(observers=[recorded.telemetry()], policies=ONCE)
    twin.listen(connection, "orders", decides)
    for text in ("good", "good", "bad", "old", "later"):
        twin.call(connection.send("orders", text))
    twin.advance(60)
    report = connection.report()
    outcomes = recorded.counts("redelivery.outcomes", "redelivery.outcome")
    assert outcomes == {
        name: getattr(report, name)
        for name in ("accepted", "redelivered", "poisoned", "discarded", "deferred")
    }
    assert recorded.counts("redelivery.dead_letters", "error.type") == {"ValueError": 1}
    assert sum(recorded.counts("messaging.client.consumed.messages", "").values()) == sum(outcomes.values())
    assert recorded.counts("messaging.client.sent.messages", "messaging.destination.name") == {"orders": 5}
    assert sum(each.count for each in recorded.points("redelivery.delay")) == 2


def test_durations_have_the_buckets_of_the_conventions(twin: Twin, recorded: Recorded) -> None:
    """Durations of handlers, by type of failure, and of sends have the buckets of the conventions."""
    connection = twin.connect(observers=[recorded.telemetry()], policies=ONCE)
    twin.listen(connection, "orders", decides)
    for text in ("good", "bad"):
        twin.call(connection.send("orders", text))
    twin.advance(60)
    points = [
        *recorded.points("messaging.process.duration"),
        *recorded.points("messaging.client.operation.duration"),
    ]
    assert {each.explicit_bounds for each in points} == {
        (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
    }
    found = [
        (each.attributes["messaging.operation.name"], each.attributes.get("error.type"), each.count)
        for each in points
    ]
    assert sorted(found, key=str) == [("process", "ValueError", 2), ("process", None, 1), ("send", None, 2)]


def test_two_connections_count_together(
    twin: Twin, recorded: Recorded, caplog: pytest.LogCaptureFixture
) -> None:
    """Two connections count together; their instruments are registered once."""
    for _ in range(2):
        connection = twin.connect(observers=[recorded.telemetry()])
        twin.call(connection.send("orders", "a"))
    assert recorded.counts("messaging.client.sent.messages", "messaging.destination.name") == {"orders": 2}
    assert caplog.records == []


def test_reconnects_and_the_breaker(twin: Twin, recorded: Recorded) -> None:
    """A lost connection is counted; the breaker's state is a number."""
    errors = redelivery.Classifier().trip(OSError)

    def down(_: Message) -> None:
        raise OSError("down")

    connection = twin.connect(
        observers=[recorded.telemetry()], breaker=redelivery.Breaker(named=2), errors=errors
    )
    assert recorded.points("redelivery.reconnects") == []
    twin.broker.cut()
    eventually(twin, lambda: recorded.points("redelivery.reconnects"))
    assert [each.value for each in recorded.points("redelivery.reconnects")] == [1]
    twin.listen(connection, "orders", down)
    for _ in range(3):
        twin.broker.send("orders", "a")
    eventually(twin, lambda: recorded.points("redelivery.breaker.state"))
    assert [each.value for each in recorded.points("redelivery.breaker.state")] == [2]
    twin.advance(60)
    # Probes that fail are no changes.
    assert recorded.counts("redelivery.breaker.transitions", "redelivery.breaker.state") == {"open": 1}


def test_made_up_destinations_are_bounded(twin: Twin, recorded: Recorded) -> None:
    """Answers to many senders do not make a time series each."""
    connection = twin.connect(observers=[recorded.telemetry()])
    for number in range(220):
        twin.call(connection.send(f"answers.{number}", "a"))
    for number in range(5):
        twin.call(connection.send(f"temp-queue://a{number}", "a"))
    found = recorded.counts("messaging.client.sent.messages", "messaging.destination.name")
    assert (len(found), found["other"], found["(temporary)"]) == (202, 20, 5)


def test_made_up_errors_are_bounded(recorded: Recorded) -> None:
    """At most fifty types of errors are distinguished, as a cause may be any text."""
    instruments = instruments_of(recorded.meters, "1")
    assert isinstance(instruments, Instruments)
    assert instruments_of(recorded.meters, "1") is instruments
    assert instruments_of(NoOpMeterProvider(), "1") is None
    measures = Measures(instruments, {})
    assert [measures._bounded(f"E{number}") for number in (0, *range(60), 3)][-3:] == [
        "_OTHER",
        "_OTHER",
        "E3",
    ]


def test_the_brokers_names() -> None:
    """Both brokers of ActiveMQ are `activemq`; an address has a host and a port, whichever node of the name it is."""
    assert broker_attributes("artemis", "stomp://b1:61613") == {
        "messaging.system": "activemq",
        "server.address": "b1",
        "server.port": 61613,
    }
    assert broker_attributes("artemis", "stomp://b:61613 (10.0.0.4)") == {
        "messaging.system": "activemq",
        "server.address": "b",
        "server.port": 61613,
    }
    assert broker_attributes("qpid-broker-j", "amqps://[::1]:5671")["server.address"] == "::1"
    assert broker_attributes("rabbitmq", "amqp://b") == {
        "messaging.system": "rabbitmq",
        "server.address": "b",
    }
    assert broker_attributes("memory", "memory://shop") == {"messaging.system": "memory"}
