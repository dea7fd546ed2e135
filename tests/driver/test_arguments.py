"""Checks of arguments before any I/O, with the name of the argument in the error."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from redelivery import ConfigurationError, RedeliveryPolicy, RedeliveryPolicyMap

if TYPE_CHECKING:
    from tests.driver.twins import Twin

    from redelivery.testing import MemoryBroker

NO_DURATION: list[Any] = [-1, "1", float("nan"), float("inf"), True]
CONSUMER: list[tuple[dict[str, Any], str]] = [
    ({"credit": 0}, "credit must be"),
    ({"credit": "many"}, "credit must be"),
    ({"credit": True}, "credit must be"),
    ({"ordering": "sorted"}, "ordering must be"),
    ({"subscription": "mine"}, "topics only"),
]
LISTENER: list[tuple[dict[str, Any], str]] = [
    *CONSUMER,
    ({"workers": 0}, "workers must be"),
    ({"workers": 1.5}, "workers must be"),
    ({"workers": 2, "ordering": "blocking"}, "cannot keep the order"),
    ({"timeout": 0}, "timeout must be more than 0 seconds"),
]
SEND: list[tuple[dict[str, Any], str]] = [
    ({"priority": 10}, "priority must be"),
    ({"ttl": -1}, "ttl must be"),
    ({"delay": float("inf")}, "delay must be"),
    ({"headers": {"a:b": "c"}}, "header name"),
    ({"headers": {1: "c"}}, "header name"),
    ({"headers": "a=b"}, "headers must be a mapping"),
    ({"priority": "4"}, "priority must be a whole number from 0 to 9, not '4'"),
    ({"ttl": "1"}, "ttl must be a number of seconds"),
    ({"timeout": "1"}, "timeout must be a number of seconds"),
]


@pytest.mark.parametrize("wrong", NO_DURATION)
def test_what_is_no_duration_is_refused_at_the_call(twin: Twin, wrong: Any) -> None:
    """Text, a negative number or NaN as a duration is refused before anything happens, with the argument's name."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    connection.listen("orders", twin.handler(print))
    for name, act in (
        ("timeout", lambda: consumer.receive(wrong)),
        ("until_idle", lambda: connection.run(until_idle=wrong)),
        ("drain_timeout", lambda: connection.run(drain_timeout=wrong)),
        ("timeout", lambda: connection.drain(wrong)),
        ("timeout", lambda: connection.close(wrong)),
        ("timeout", lambda: consumer.close(wrong)),
        ("Defer: delay", lambda: redelivery.Defer(wrong)),
        ("the time to advance by", lambda: twin.clock.advance(wrong)),
    ):
        with pytest.raises(ConfigurationError, match=f"^{name} must be a number of seconds of 0 or more"):
            twin.call(act())


def test_durations_may_be_timedeltas(twin: Twin) -> None:
    """Every duration may be a `timedelta`."""
    consumer = twin.call(twin.connect().consumer("orders"))
    assert twin.call(consumer.receive(timedelta(0))) is None
    assert redelivery.Defer(timedelta(seconds=2)).delay == 2


@pytest.mark.parametrize(("options", "text"), LISTENER)
def test_listen(redelivery_broker: MemoryBroker, options: dict[str, Any], text: str) -> None:
    """`listen` refuses arguments that cannot be used before the connection is open."""
    for connect in (redelivery.connect, redelivery.connect_async):
        connection: Any = connect(redelivery_broker.uri)
        with pytest.raises(ConfigurationError, match=text):
            connection.listen("orders", lambda _: None, **options)
        with pytest.raises(ConfigurationError, match=text):
            connection.listen("orders", **options)(lambda _: None)


@pytest.mark.parametrize(("options", "text"), CONSUMER)
def test_consumer(twin: Twin, options: dict[str, Any], text: str) -> None:
    """`consumer` refuses arguments that cannot be used before anything is subscribed."""
    connection = twin.connect()
    with pytest.raises(ConfigurationError, match=text):
        twin.call(connection.consumer("orders", **options))
    assert twin.broker.history() == []


@pytest.mark.parametrize(("options", "text"), SEND)
def test_send(twin: Twin, options: dict[str, Any], text: str) -> None:
    """`send` refuses arguments that cannot be used before anything is sent."""
    connection = twin.connect()
    with pytest.raises(ConfigurationError, match=text):
        twin.call(connection.send("orders", "x", **options))
    with pytest.raises(ConfigurationError, match="bytes or str"):
        twin.call(connection.send("orders", 42))
    assert twin.broker.depth("orders") == 0


@pytest.mark.parametrize("destination", ["", "queue://", "orders,others", "orders?consumer.priority=1"])
def test_destinations(twin: Twin, destination: str) -> None:
    """A consumer has one destination, without options, and a name."""
    connection = twin.connect()
    with pytest.raises(ConfigurationError):
        twin.call(connection.consumer(destination))
    with pytest.raises(ConfigurationError):
        connection.listen(destination, lambda _: None)


def test_unknown_arguments(twin: Twin) -> None:
    """A misspelt keyword argument is a TypeError with the nearest known name."""
    connection = twin.connect()
    with pytest.raises(TypeError, match="did you mean 'workers'"):
        connection.listen("orders", lambda _: None, worker=2)
    with pytest.raises(TypeError, match="did you mean 'credit'"):
        twin.call(connection.consumer("orders", credits=2))
    with pytest.raises(TypeError, match="did you mean 'priority'"):
        twin.call(connection.send("orders", "x", prioriti=2))


def test_one_policy(twin: Twin) -> None:
    """`policy=` is refused with the argument to use instead."""
    with pytest.raises(TypeError, match=r"policies=RedeliveryPolicyMap\(default=policy\)"):
        twin.call(twin.connect().consumer("orders", policy=RedeliveryPolicy()))


def test_a_handler_must_be_callable(twin: Twin) -> None:
    """A handler that is not callable is refused."""
    with pytest.raises(ConfigurationError, match="callable"):
        twin.make().listen("orders", "handler")


def test_durable_subscriptions_need_a_client_id(twin: Twin) -> None:
    """A durable subscription without `jms.clientID` is refused: the broker could not find it again."""
    connection = twin.connect()
    with pytest.raises(ConfigurationError, match=r"jms\.clientID"):
        twin.call(connection.consumer("topic://news", subscription="mine"))


@pytest.mark.parametrize(
    "option",
    [
        "jms.redeliveryPolicy.maximumRedeliveries=1",
        "jms.redeliveryPolicyMap.orders.initialRedeliveryDelay=5",
        "jms.redeliveryPolicy.useExponentialBackOff=true",
    ],
)
def test_policies_from_two_sides(twin: Twin, option: str) -> None:
    """Policies in the URI and as an argument contradict each other."""
    with pytest.raises(ConfigurationError, match="contradict") as caught:
        twin.make(f"?{option}", policies=RedeliveryPolicyMap())
    assert caught.value.option == "policies"


def test_other_options_go_with_the_argument(twin: Twin) -> None:
    """`policies=` may be used with options of the URI that set no policy."""
    policies = RedeliveryPolicyMap(default=RedeliveryPolicy(maximum_redeliveries=0))
    connection = twin.connect("?redelivery.credit=5&redelivery.deadLetter=forward", policies=policies)
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "x")
    message = twin.receive(consumer)
    message.fail()
    assert message.outcome == "poisoned"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"policies": RedeliveryPolicy()}, r"RedeliveryPolicyMap\(default=policy\)"),
        ({"errors": object()}, "errors= must be a redelivery.Classifier, not object"),
        ({"ledger": "/var/x"}, "a ledger is sqlite:///relative/path or sqlite:////absolute/path"),
        ({"ledger": object()}, r"such as redelivery.SqliteLedger\(path\), not object"),
    ],
)
def test_arguments_of_connect(twin: Twin, arguments: dict[str, Any], text: str) -> None:
    """An argument of `connect` that cannot be used is refused, never ignored."""
    with pytest.raises(ConfigurationError, match=text):
        twin.make(**arguments)


def test_nothing_is_connected_before_with(twin: Twin) -> None:
    """Making a connection does not connect."""
    twin.make()
    assert twin.broker.connections == 0


def test_an_observer_sees_what_happens(twin: Twin) -> None:
    """A function as an observer is called with each event, in order."""
    seen: list[str] = []
    connection = twin.connect(observers=[lambda event: seen.append(event.name)])
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "x")
    twin.receive(consumer).fail()
    twin.receive(consumer, 1).accept()
    assert seen == ["connected", "consumer started", "received", "finished", "finished"]


def test_an_observer_that_fails_changes_nothing(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """An observer's exception is logged, and has no effect on messages."""

    def observer(*_: object) -> None:
        raise ValueError("no")

    connection = twin.connect(observers=[observer])
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "x")
    assert twin.receive(consumer).accept() is True
    assert twin.broker.depth("orders") == 0
    assert "the observer failed" in caplog.text
