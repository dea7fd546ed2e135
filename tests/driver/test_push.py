"""Handlers: `run`, `stop`, `report`, and the effect of their exceptions."""

from __future__ import annotations

import functools
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from redelivery import ConfigurationError, Defer, Discard, Poison

if TYPE_CHECKING:
    from tests.driver.twins import Twin

    from redelivery import Message


class Script:
    """Handler that does what the body says, and records its calls."""

    def __init__(self, twin: Twin) -> None:
        self.twin = twin
        self.calls: list[tuple[str, int, float]] = []
        self.began = twin.clock.monotonic()
        self.lock = threading.Lock()

    def __call__(self, message: Message) -> None:
        with self.lock:
            at = self.twin.clock.monotonic() - self.began
            self.calls.append((message.text, message.delivery_count, round(at, 6)))
        match message.text.split():
            case ["fail"]:
                raise ValueError("no")
            case ["fail", times] if message.delivery_count <= int(times):
                raise ValueError("no")
            case ["poison"]:
                raise Poison("bad")
            case ["discard"]:
                raise Discard("old")
            case ["defer"]:
                raise Defer(2)
            case ["settle"]:
                message.release() if len(self.calls) == 1 else message.accept()
            case ["settle", "then", "raise"]:
                message.accept()
                raise ValueError("later")
            case ["exit"]:
                raise SystemExit(3)
            case _:
                pass


@pytest.mark.parametrize("workers", [1, 8])
def test_run_until_stopped(twin: Twin, workers: int) -> None:
    """`run` handles all messages, ends on `stop`, and returns the report."""
    for number in range(20):
        twin.broker.send("orders", str(number))
    connection = twin.connect()
    seen: Counter[str] = Counter()
    lock = threading.Lock()

    def handle(message: Message) -> None:
        with lock:
            seen[message.text] += 1
            if len(seen) == 20:
                connection.stop()

    connection.listen("orders", twin.handler(handle), workers=workers)
    report = twin.run(connection)
    assert seen == Counter(str(number) for number in range(20))
    assert report == redelivery.Report(accepted=20)
    assert twin.broker.depth("orders") == 0


def test_listen_is_a_decorator(twin: Twin) -> None:
    """A function decorated by `listen` stays the same, and is called for each message."""
    connection = twin.connect()
    script = Script(twin)
    handler = twin.handler(script)
    assert connection.listen("orders")(handler) is handler
    twin.call(connection.start())
    twin.broker.send("orders", "a")
    twin.advance(0)
    assert [call[0] for call in script.calls] == ["a"]


def test_delays_are_exact(twin: Twin) -> None:
    """Redeliveries are on the policy's delays, to the millisecond; then the message is poison."""
    policy = redelivery.RedeliveryPolicy(
        maximum_redeliveries=4, initial_redelivery_delay=0.5, redelivery_delay=2, use_exponential_back_off=True,
        back_off_multiplier=3, maximum_redelivery_delay=4,
    )  # fmt: skip
    connection = twin.connect(policies=redelivery.RedeliveryPolicyMap(default=policy))
    script = Script(twin)
    twin.listen(connection, "orders", script)
    twin.broker.send("orders", "fail")
    twin.advance(3600)
    due = [0.0]
    for delay in policy.delays_ms(4):
        due.append(due[-1] + delay / 1000)
    assert script.calls == [("fail", n + 1, at) for n, at in enumerate(due)]
    (letter,) = twin.broker.dead_letters()
    assert (letter.cause, letter.count, letter.original_destination) == (
        "ValueError: no",
        5,
        "queue://orders",
    )
    assert twin.call(connection.drain()) == redelivery.Report(redelivered=4, poisoned=1)


def test_others_flow_while_one_waits(twin: Twin) -> None:
    """Other messages are handled while one is parked; it is handled at its due time among them."""
    connection = twin.connect()
    script = Script(twin)
    twin.listen(connection, "orders", script)
    for body in ("fail 1", "a", "b"):
        twin.broker.send("orders", body)
    twin.advance(0.5)
    twin.broker.send("orders", "c")
    twin.advance(1)
    assert script.calls == [
        ("fail 1", 1, 0.0), ("a", 1, 0.0), ("b", 1, 0.0), ("c", 1, 0.5), ("fail 1", 2, 1.0),
    ]  # fmt: skip


@pytest.mark.parametrize("workers", [1, 3])
def test_steering(twin: Twin, workers: int) -> None:
    """Poison dead-letters at once, Discard drops, Defer redelivers without a charge."""
    connection = twin.connect("?redelivery.maximumDeferrals=2&jms.redeliveryPolicy.maximumRedeliveries=1")
    script = Script(twin)
    twin.listen(connection, "orders", script, workers=workers)
    for body in ("poison", "discard", "defer"):
        twin.broker.send("orders", body)
    twin.advance(60)
    deferred = [call for call in script.calls if call[0] == "defer"]
    # Two deferrals are not charged. The third is a failure with the policy's delay of a second; the next one is the
    # last.
    assert deferred == [("defer", 1, 0.0), ("defer", 1, 2.0), ("defer", 1, 4.0), ("defer", 2, 5.0)]
    assert Counter(call[0] for call in script.calls) == {"poison": 1, "discard": 1, "defer": 4}
    assert sorted(letter.cause or "" for letter in twin.broker.dead_letters()) == [
        "Defer: deferred by the handler", "Poison: bad",
    ]  # fmt: skip
    assert twin.call(connection.drain()) == redelivery.Report(
        redelivered=1, deferred=2, poisoned=2, discarded=1
    )


def test_a_handler_that_settles_itself(twin: Twin) -> None:
    """A message that the handler has settled is not settled again by its return or its exception."""
    connection = twin.connect()
    script = Script(twin)
    twin.listen(connection, "orders", script)
    twin.broker.send("orders", "settle")
    twin.broker.send("orders", "settle then raise")
    twin.advance(0)
    assert Counter(call[:2] for call in script.calls) == {("settle", 1): 2, ("settle then raise", 1): 1}
    assert twin.call(connection.drain()) == redelivery.Report(accepted=2, released=1)


def test_system_exit_ends_the_run(twin: Twin) -> None:
    """SystemExit in a handler releases the message, ends `run`, and is raised by it."""
    twin.broker.send("orders", "exit")
    connection = twin.connect()
    connection.listen("orders", twin.handler(Script(twin)))
    with pytest.raises(SystemExit):
        twin.run(connection)
    report = (
        connection.report()
    )  # a released message is dispatched again at once, and is released by the drain
    assert report == redelivery.Report(released=report.released)
    assert report.released in (1, 2)
    assert [held.broker_count for held in twin.broker.messages("orders")] == [0]


def test_stop_before_run(twin: Twin) -> None:
    """A `run` that is stopped before it begins handles no message, and returns a report."""
    connection = twin.connect()
    connection.listen("orders", twin.handler(Script(twin)))
    connection.stop()
    assert twin.run(connection) == redelivery.Report()


def test_a_handler_may_stop_the_connection(twin: Twin) -> None:
    """The message of a handler that stops the connection is accepted."""
    connection = twin.connect()
    for body in ("a", "b", "c"):
        twin.broker.send("orders", body)
    connection.listen("orders", twin.handler(lambda _: connection.stop()), credit=1)
    report = twin.run(connection)
    assert report.accepted >= 1
    assert report.accepted + twin.broker.depth("orders") == 3
    assert {held.broker_count for held in twin.broker.messages("orders")} <= {0}


def test_two_listeners(twin: Twin) -> None:
    """Each listener has its own handler, policies and counts; the report is their sum."""
    connection = twin.connect(
        "?jms.redeliveryPolicyMap.fast.initialRedeliveryDelay=10&jms.redeliveryPolicyMap.slow.initialRedeliveryDelay=60000"
    )
    fast, slow = Script(twin), Script(twin)
    connection.listen("fast", twin.handler(fast))
    connection.listen("slow", twin.handler(slow))
    twin.call(connection.start())
    for destination in ("fast", "slow"):
        twin.broker.send(destination, "fail 1")
    twin.advance(120)
    assert [call[2] for call in fast.calls] == [0.0, 0.01]
    assert [call[2] for call in slow.calls] == [0.0, 60.0]
    assert twin.call(connection.drain()) == redelivery.Report(accepted=2, redelivered=2)


def test_run_without_listeners_is_refused(twin: Twin) -> None:
    """`run` without a listener is refused."""
    connection = twin.connect()
    with pytest.raises(ConfigurationError, match="nothing to run"):
        twin.run(connection)


def test_a_wildcard_has_the_policy_of_each_messages_own_destination(twin: Twin) -> None:
    """The policy is chosen by the destination of a message, not by the pattern of its consumer."""
    connection = twin.connect(
        "?jms.redeliveryPolicyMap.orders.eu.maximumRedeliveries=0&jms.redeliveryPolicyMap.orders.>.maximumRedeliveries=1"
    )
    script = Script(twin)
    twin.broker.send("orders.eu", "fail")
    twin.broker.send("orders.us", "fail")
    twin.listen(connection, "orders.*", script)
    twin.advance(60)
    counts = {letter.original_destination: letter.count for letter in twin.broker.dead_letters()}
    assert counts == {"queue://orders.eu": 1, "queue://orders.us": 2}


def test_expired_messages_are_never_handled(twin: Twin) -> None:
    """A message that expires while it is parked is dead-lettered as expired."""
    connection = twin.connect()
    script = Script(twin)
    twin.listen(connection, "orders", script)
    twin.broker.send("orders", "fail", expires_at=twin.clock.time() + 1.5)
    twin.advance(10)
    assert [call[2] for call in script.calls] == [0.0, 1.0]
    assert [letter.cause for letter in twin.broker.dead_letters()] == ["expired"]


def test_an_asynchronous_handler_needs_an_asynchronous_connection(redelivery_broker: Any) -> None:
    """A synchronous connection refuses an async handler before any I/O."""
    connection = redelivery.connect(redelivery_broker.uri)

    async def handle(message: Message) -> None:
        """Do nothing; it is never called."""

    with pytest.raises(ConfigurationError, match="connect_async"):
        connection.listen("orders", handle)
    with pytest.raises(ConfigurationError, match="connect_async"):
        connection.listen("orders", functools.partial(handle))
