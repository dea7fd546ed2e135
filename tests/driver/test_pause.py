"""Paused consumers, and rate limits, on threads and on a loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.driver.twins import eventually

import redelivery
from redelivery import ConfigurationError, Rate

if TYPE_CHECKING:
    from tests.driver.twins import Twin


def sent(twin: Twin, many: int) -> None:
    for number in range(many):
        twin.broker.send("orders", str(number))


def test_a_paused_consumer_gets_nothing(twin: Twin) -> None:
    """A paused consumer gets nothing until it is resumed; the application's messages are settled as usual."""
    sent(twin, 3)
    consumer = twin.call(twin.connect().consumer("orders"))
    first = twin.receive(consumer)
    assert first is not None
    consumer.pause()
    assert consumer.paused
    assert twin.receive(consumer, 5) is None
    assert first.accept()
    consumer.resume()
    assert [body.text for _ in range(2) if (body := twin.receive(consumer)) is not None] == ["1", "2"]


def test_what_waits_goes_to_others(twin: Twin) -> None:
    """Prefetched new messages of a paused consumer are released; parked ones stay, and their delay passes."""
    sent(twin, 4)
    consumer = twin.call(twin.connect().consumer("orders"))
    bad = twin.receive(consumer)
    assert bad is not None
    bad.fail("no")
    consumer.pause()
    other = twin.call(twin.connect().consumer("orders"))
    assert [body.text for _ in range(3) if (body := twin.receive(other)) is not None] == ["1", "2", "3"]
    twin.advance(2)
    assert twin.receive(consumer) is None
    consumer.resume()
    again = twin.receive(consumer)
    assert again is not None
    assert (again.text, again.redelivery_count) == ("0", 1)


def test_a_pause_outlives_a_lost_connection(twin: Twin) -> None:
    """A pause goes on over a reconnect, without credit."""
    consumer = twin.call(twin.connect().consumer("orders"))
    consumer.pause()
    twin.broker.cut()
    twin.advance(5)
    sent(twin, 2)
    assert twin.receive(consumer) is None
    assert not any(held.delivered for held in twin.broker.messages("orders"))
    consumer.resume()
    assert twin.receive(consumer) is not None


def test_a_handler_may_pause_its_own_consumer(twin: Twin) -> None:
    """A handler may pause its consumer: its message is settled, and the next one waits for the resume."""
    sent(twin, 3)
    connection = twin.connect()
    seen: list[str] = []

    def handle(message: redelivery.Message) -> None:
        seen.append(message.text)
        connection.pause("orders")

    twin.listen(connection, "orders", handle)
    eventually(twin, lambda: connection.report().accepted == 1)
    twin.advance(5)
    assert seen == ["0"]
    health = connection.health()
    assert (health.live, health.ready, health.reasons) == (True, False, ("queue://orders: paused",))
    assert connection.health("connected").ready
    connection.resume()
    eventually(twin, lambda: connection.report().accepted == 2)


def test_a_connection_pauses_what_starts_later(twin: Twin) -> None:
    """`pause()` pauses all consumers, also of listeners that start later; with a destination only its own."""
    sent(twin, 2)
    twin.broker.send("others", "x")
    connection = twin.connect()
    connection.listen("orders", twin.handler(lambda _: None))
    connection.pause("queue://orders")
    twin.call(connection.start())
    other = twin.call(connection.consumer("others"))
    assert not other.paused
    assert twin.receive(other) is not None
    twin.advance(5)
    assert connection.report().accepted == 0
    connection.pause()
    assert other.paused
    connection.resume()
    eventually(twin, lambda: connection.report().accepted == 2)


def test_what_nothing_consumes_is_not_paused(twin: Twin) -> None:
    """Pausing a destination without a consumer is refused, with the nearest name."""
    connection = twin.connect()
    twin.call(connection.consumer("orders"))
    with pytest.raises(
        ConfigurationError, match=r"pause\('order'\): nothing consumes from queue://order.*orders"
    ):
        connection.pause("order")


def test_a_rate_limits_handlers(twin: Twin) -> None:
    """A rate of ten a second lets 35 messages take two and a half seconds, after a second's worth at once."""
    sent(twin, 35)
    connection = twin.connect()
    times: list[float] = []
    began = twin.clock.monotonic()
    twin.listen(connection, "orders", lambda _: times.append(twin.clock.monotonic() - began), rate=10)
    for _ in range(40):
        twin.advance(0.1)
    eventually(twin, lambda: len(times) == 35)
    assert times[9] == 0.0
    assert times[10] == pytest.approx(0.1)
    assert times[-1] == pytest.approx(2.5)


def test_a_rate_may_stand_in_the_uri(twin: Twin) -> None:
    """`redelivery.rate` is messages a second; the argument `rate` replaces it."""
    sent(twin, 6)
    connection = twin.connect("?redelivery.rate=1")
    consumer = twin.call(connection.consumer("orders"))
    assert [twin.receive(consumer) is not None for _ in range(2)] == [True, False]
    twin.advance(1)
    assert twin.receive(consumer) is not None
    other = twin.call(connection.consumer("others", rate=Rate(2, burst=2)))
    for number in range(3):
        twin.broker.send("others", str(number))
    assert [twin.receive(other) is not None for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize("rate", [0, -1, True, "10", float("nan")])
def test_a_rate_that_makes_no_sense_is_refused(twin: Twin, rate: Any) -> None:
    """A rate that makes no sense is refused by name, before anything is subscribed."""
    connection = twin.connect()
    with pytest.raises(ConfigurationError, match="rate"):
        twin.call(connection.consumer("orders", rate=rate))
    with pytest.raises(ConfigurationError, match=r"redelivery\.rate"):
        twin.make("?redelivery.rate=0")
