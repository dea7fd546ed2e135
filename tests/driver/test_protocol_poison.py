"""Protocol poison: messages over which the broker closes the connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.driver.twins import body_of

import redelivery
from redelivery.core.events import ConnectionLost

if TYPE_CHECKING:
    from tests.driver.twins import Twin


def test_only_the_consumer_that_has_the_message_stops(twin: Twin) -> None:
    """Three closings over one message end its consumer; the others of the connection go on."""
    connection = twin.connect()
    consumer, other = (twin.call(connection.consumer(name)) for name in ("orders", "others"))
    bad = twin.broker.send("orders", "bad")
    for _ in range(3):
        twin.broker.cut(suspect=bad)
        twin.advance(1)
    with pytest.raises(redelivery.AdapterError, match="3 times"):
        twin.receive(consumer)
    twin.broker.send("others", "good")
    assert body_of(twin.receive(other)) == "good"
    assert not twin.broker.messages("orders")[0].delivered


def test_long_delays_of_reconnecting_do_not_hide_it(twin: Twin) -> None:
    """Three closings over one message end its consumer also if 30 s pass before each reconnect."""
    uri = f"failover:({twin.broker.uri})?initialReconnectDelay=30000"
    consumer = twin.call(twin.connect(uri=uri).consumer("orders"))
    bad = twin.broker.send("orders", "bad")
    for _ in range(3):
        twin.broker.cut(suspect=bad)
        twin.advance(31)
    with pytest.raises(redelivery.AdapterError, match="3 times"):
        twin.receive(consumer)


def test_the_next_that_gets_the_message_stops_at_once(twin: Twin) -> None:
    """A message that has ended one consumer of its queue ends the next one at once, without three tries."""
    connection = twin.connect()
    consumers = [twin.call(connection.consumer("orders")) for _ in range(2)]
    bad = twin.broker.send("orders", "bad")

    def stopped() -> int:
        errors = 0
        for consumer in consumers:
            try:
                twin.receive(consumer)
            except redelivery.AdapterError:
                errors += 1
        return errors

    ended = []
    for _ in range(4):
        twin.broker.cut(suspect=bad)
        twin.advance(1)
        ended.append(stopped())
    assert ended == [0, 0, 2, 2]


def test_where_nobody_knows_whose_message_it_was_all_stop(twin: Twin) -> None:
    """A suspect that belongs to no consumer ends all: else the connection would never stay up."""
    connection = twin.connect()
    consumers = [twin.call(connection.consumer(name)) for name in ("orders", "others")]
    for _ in range(3):
        twin.broker.cut(suspect="ID:nobody's")
        twin.advance(1)
    for consumer in consumers:
        with pytest.raises(redelivery.AdapterError, match="nobody's"):
            twin.receive(consumer)


def test_a_consumer_for_each_message_does_not_go_round_for_ever(twin: Twin) -> None:
    """A program that makes a consumer for each message gets the message three times, then the error."""
    connection = twin.connect()
    twin.broker.send("orders", "bad")
    for _ in range(3):
        consumer = twin.call(connection.consumer("orders"))
        message = twin.receive(consumer)
        assert body_of(message) == "bad"
        twin.broker.cut(suspect=message.message_id)
        twin.call(consumer.close())
        twin.advance(1)
    consumer = twin.call(connection.consumer("orders"))
    with pytest.raises(redelivery.AdapterError, match="3 times"):
        twin.receive(consumer)
    twin.advance(61)
    consumer = twin.call(connection.consumer("orders"))
    assert body_of(twin.receive(consumer)) == "bad"


@pytest.mark.parametrize("held", [True, False])
def test_a_suspect_is_known_by_the_id_that_its_sender_got(twin: Twin, held: bool) -> None:
    """A suspect is known by its sender's id, whether a consumer has it or it still is on the broker."""
    connection = twin.connect()
    bad = twin.call(connection.send("orders", "bad"))
    if held:
        twin.call(connection.consumer("orders"))
    for _ in range(3):
        twin.broker.cut(suspect=bad)
        twin.advance(1)
    consumer = twin.call(connection.consumer("orders"))
    with pytest.raises(redelivery.AdapterError, match="3 times"):
        twin.receive(consumer)


def test_a_loss_that_is_reported_twice_counts_once(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss that stomp.py reports twice counts as one closing over the message."""
    driver = twin.connect()._driver

    def nobody(_: object) -> None:
        raise redelivery.TransportError("no broker is there")

    monkeypatch.setattr(driver, "_connect", nobody)
    lost = ConnectionLost(driver._epoch, redelivery.TransportError("gone"), "ID:1")
    for _ in range(3):
        driver._sink(lost)
    assert driver.protocol_poison.convicted == {}
