"""The port of the drivers: connections of packages that are built on the library."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from redelivery import ConfigurationError, TransportError
from redelivery.core.delivery import Cause
from redelivery.core.events import Failed, Poisoned, Succeeded
from redelivery.core.outgoing import Outgoing
from redelivery.driver.port import ConnectionPort, ConsumerHooks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redelivery.core.events import Confirmed
    from redelivery.testing import ManualClock, MemoryBroker

MANY = 1 << 20


@pytest.fixture
def port(redelivery_broker: MemoryBroker, redelivery_clock: ManualClock) -> Iterator[ConnectionPort]:
    """Return an open port."""
    with ConnectionPort(redelivery_broker.uri, clock=redelivery_clock) as made:
        yield made


def test_a_port_is_entered_once(redelivery_broker: MemoryBroker) -> None:
    """A second `with` of a port is refused; its capabilities are known only inside of the first one."""
    port = ConnectionPort(redelivery_broker.uri)
    with pytest.raises(ConfigurationError, match="not open yet"):
        _ = port.capabilities
    with port:
        assert port.capabilities.broker == "memory"
        assert port.connected
    with pytest.raises(ConfigurationError, match="closed"):
        _ = port.capabilities
    with pytest.raises(ConfigurationError, match="entered once"):
        port.__enter__()


def test_many_are_taken_within_limits(port: ConnectionPort, redelivery_broker: MemoryBroker) -> None:
    """`take_many` returns ready messages up to a number and a size, and nothing after its timeout."""
    for body in ("aaaa", "bbbb", "cccc", "dddd"):
        redelivery_broker.send("orders", body)
    with port.consume(port.plan("orders", {})) as consumer:
        assert [each.body for each in consumer.take_many(2, MANY, 0.0)] == [b"aaaa", b"bbbb"]
        assert [each.body for each in consumer.take_many(9, 4, 0.0)] == [b"cccc"]
        assert [each.body for each in consumer.take_many(9, MANY, 0.0)] == [b"dddd"]
        assert consumer.take_many(9, MANY, 3.0) == []
    assert redelivery_broker.depth("orders") == 4, "what is not settled goes back at the end of `consume`"


def test_what_expired_is_dead_lettered_with_what_is_taken(
    port: ConnectionPort, redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """`take_many` dead-letters expired messages at once: the caller may be busy afterwards."""
    redelivery_broker.send("orders", "first")
    redelivery_broker.send("orders", "late", expires_at=redelivery_clock.time() + 1)
    redelivery_broker.send("orders", "last")
    with port.consume(port.plan("orders", {})) as consumer:
        redelivery_clock.advance(2)
        assert [each.body for each in consumer.take_many(9, MANY, 0.0)] == [b"first", b"last"]
        assert [(held.body, held.cause) for held in redelivery_broker.dead_letters()] == [
            (b"late", "expired")
        ]


def test_many_are_settled_at_once(port: ConnectionPort, redelivery_broker: MemoryBroker) -> None:
    """`settle_many` feeds several results together; each delivery has its own outcome."""
    for body in ("good", "bad"):
        redelivery_broker.send("orders", body)
    confirmed: list[Confirmed] = []
    hooks = ConsumerHooks(logs_results=False, confirmed=confirmed.append)
    with port.consume(port.plan("orders", {}), hooks) as consumer:
        good, bad = consumer.take_many(9, MANY, 0.0)
        consumer.settle_many([Succeeded(good), Poisoned(bad, Cause("bad"))])
        consumer.wait_unconfirmed(1)
        assert (good.outcome, bad.outcome) == ("accepted", "poisoned")
    assert [event.delivery for event in confirmed] == [bad]
    assert redelivery_broker.depth("orders") == 0
    assert [held.body for held in redelivery_broker.dead_letters()] == [b"bad"]


def test_an_expired_message_is_taken_where_it_was_asked_for(
    port: ConnectionPort, redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """With `expires=False` an expired message is returned instead of dead-lettered."""
    redelivery_broker.send("orders", "late", expires_at=redelivery_clock.time() + 1)
    redelivery_broker.send("others", "late", expires_at=redelivery_clock.time() + 1)
    with (
        port.consume(port.plan("orders", {}), ConsumerHooks(expires=False)) as asked,
        port.consume(port.plan("others", {})) as usual,
    ):
        redelivery_clock.advance(2)
        assert asked.take(None, 0.0) is not None
        assert usual.take(None, 0.0) is None


@pytest.mark.parametrize("keeps", [True, False])
def test_a_consumer_whose_caller_knows_more_knows_no_message_again(
    port: ConnectionPort, redelivery_broker: MemoryBroker, redelivery_clock: ManualClock, *, keeps: bool
) -> None:
    """With `keeps_history=False` messages are new after a reconnect, except for the broker's count."""
    redelivery_broker.send("orders", "a")
    with port.consume(port.plan("orders", {}), ConsumerHooks(keeps_history=keeps)) as consumer:
        delivery = consumer.take(None, 0.0)
        assert delivery is not None
        cause = Cause("no")
        consumer.settle(delivery, Failed(delivery, cause))
        redelivery_broker.cut()
        redelivery_clock.advance(10)
        again = consumer.take(None, 0.0)
        assert again is not None
        assert again.record is not None
        assert again.record.cause == (cause if keeps else None)


def test_a_look_takes_nothing(port: ConnectionPort, redelivery_broker: MemoryBroker) -> None:
    """A browse shows the messages of a queue, which stay there."""
    for body in ("a", "b"):
        redelivery_broker.send("orders", body)
    assert [each.body for each in port.browse("queue://orders", window=1)] == [b"a", b"b"]
    assert redelivery_broker.depth("orders") == 2


def test_a_send_waits_for_the_connection_and_for_its_confirmation(
    port: ConnectionPort, redelivery_broker: MemoryBroker
) -> None:
    """`send_connected` ends when the broker has confirmed; a broker that stays away is a TransportError."""
    sent = port.send_connected(Outgoing("queue://orders", b"a"))
    sent.wait()
    assert (sent.error, redelivery_broker.depth("orders")) == (None, 1)
    redelivery_broker.refuse_connections()
    redelivery_broker.cut()
    with pytest.raises(TransportError, match="nothing was sent to queue://orders"):
        port.send_connected(Outgoing("queue://orders", b"b"))


def test_failures_that_are_settled_together_are_logged(
    port: ConnectionPort, redelivery_broker: MemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Each failure of `settle_many` has its log line; none with `logs_results=False`."""
    for hooks, lines in ((ConsumerHooks(), 2), (ConsumerHooks(logs_results=False), 0)):
        caplog.clear()
        for body in ("a", "b"):
            redelivery_broker.send("orders", body)
        with port.consume(port.plan("orders", {}), hooks) as consumer:
            consumer.settle_many([Failed(each, Cause("no")) for each in consumer.take_many(2, MANY, 0.0)])
        assert sum("delivery 1 of 7 failed (no)" in record.getMessage() for record in caplog.records) == lines


def test_a_plan_that_is_counted_is_not_subscribed(port: ConnectionPort) -> None:
    """A plan with `counted=True` is not subscribed: no ledger would look up its attempts."""
    with pytest.raises(ValueError, match="counted=True"):
        port.subscribe(port.plan("orders", {}, counted=True))


def test_a_hook_that_fails_changes_nothing(
    port: ConnectionPort, redelivery_broker: MemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """A hook that fails is logged, and the engine gets the broker's answer."""

    def fails(_: Confirmed) -> None:
        raise ValueError("no")

    redelivery_broker.send("orders", "bad")
    with port.consume(port.plan("orders", {}), ConsumerHooks(confirmed=fails)) as consumer:
        (bad,) = consumer.take_many(1, MANY, 0.0)
        consumer.settle_many([Poisoned(bad, Cause("bad"))])
        consumer.wait_unconfirmed(1)
    assert redelivery_broker.depth("DLQ") == 1
    assert "a consumer's hook failed" in caplog.text
