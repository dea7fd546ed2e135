"""Ordering, credit, and the limit of parked messages, through the public interface."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tests.driver.twins import body_of

if TYPE_CHECKING:
    import pytest
    from tests.driver.twins import Twin

    from redelivery import Message


def fails_first(calls: list[tuple[str, float]], twin: Twin, *bodies: str) -> object:
    began = twin.clock.monotonic()

    def handle(message: Message) -> None:
        calls.append((message.text, round(twin.clock.monotonic() - began, 6)))
        if message.text in bodies and message.delivery_count == 1:
            raise ValueError("no")

    return handle


def test_blocking_keeps_strict_order(twin: Twin) -> None:
    """With `blocking` nothing is handled while a message is parked."""
    connection = twin.connect("?redelivery.ordering=blocking")
    calls: list[tuple[str, float]] = []
    twin.listen(connection, "orders", fails_first(calls, twin, "a"))
    for body in ("a", "b", "c"):
        twin.broker.send("orders", body)
    twin.advance(5)
    assert calls == [("a", 0.0), ("a", 1.0), ("b", 1.0), ("c", 1.0)]


def test_the_reference_option_means_blocking(twin: Twin) -> None:
    """`jms.nonBlockingRedelivery=false` in the URI means the Java client's order."""
    connection = twin.connect("?jms.nonBlockingRedelivery=false")
    calls: list[tuple[str, float]] = []
    twin.listen(connection, "orders", fails_first(calls, twin, "a"))
    for body in ("a", "b"):
        twin.broker.send("orders", body)
    twin.advance(5)
    assert [body for body, _ in calls] == ["a", "a", "b"]


def test_per_group_keeps_order_within_a_group(twin: Twin) -> None:
    """With `per_group` the group of a parked message waits; other groups, and messages without a group, go on."""
    connection = twin.connect()
    calls: list[tuple[str, float]] = []
    handle = fails_first(calls, twin, "x1")
    twin.listen(connection, "orders", handle, ordering="per_group", workers=4)
    for body in ("x1", "x2", "y1", "free", "y2", "x3"):
        twin.broker.send("orders", body, group=None if body == "free" else body[0])
    twin.advance(5)
    by_time = {at: [body for body, when in calls if when == at] for _, at in calls}
    assert set(by_time[0.0]) == {"x1", "y1", "y2", "free"}
    assert by_time[1.0] == ["x1", "x2", "x3"]
    assert [body for body, _ in calls if body[0] == "y"] == ["y1", "y2"]


def test_a_spent_credit_warns_once(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """An application that settles nothing gets no more than its credit, and one warning."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders", credit=2))
    for body in ("a", "b", "c"):
        twin.broker.send("orders", body)
    held = [twin.receive(consumer), twin.receive(consumer)]
    with caplog.at_level(logging.WARNING, "redelivery"):
        assert twin.receive(consumer, 1) is None
        assert twin.receive(consumer, 1) is None
    assert [record.message.partition("(")[0] for record in caplog.records] == [
        "queue://orders: the application has its whole credit "
    ]
    held[0].accept()
    assert body_of(twin.receive(consumer)) == "c"


def test_a_spent_credit_beside_a_due_message_lets_the_others_run(twin: Twin) -> None:
    """Waiting for credit with a parked message neither spins nor stops when credit is there."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders", credit=1))
    twin.broker.send("orders", "a")
    twin.broker.send("orders", "b")
    twin.receive(consumer).fail()
    other = twin.receive(consumer)
    assert other.text == "b"
    assert twin.receive(consumer, 5) is None
    other.accept()
    assert body_of(twin.receive(consumer)) == "a"


def test_no_fresh_message_past_the_limit_of_waiting_ones(twin: Twin) -> None:
    """With `maxParked` messages parked, the next one is dispatched when one of them is settled."""
    connection = twin.connect("?redelivery.maxParked=2")
    calls: list[tuple[str, float]] = []
    twin.listen(connection, "orders", fails_first(calls, twin, "a", "b", "c"))
    for body in ("a", "b", "c", "d"):
        twin.broker.send("orders", body)
    twin.advance(0.5)
    assert [body for body, _ in calls] == ["a", "b"]
    twin.advance(10)
    # Due messages and new messages are dispatched alternately.
    assert [body for body, at in calls if at == 1.0] == ["a", "c", "b", "d"]
    assert calls[-1] == ("c", 2.0)
