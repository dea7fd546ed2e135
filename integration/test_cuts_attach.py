"""Connections cut in the middle of a subscription: the consumer has one link on the next one, with its whole credit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import redelivery
from integration.raw_amqp import RawAmqp

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker
    from integration.proxy import Direction, LinkProxy

# Frames of a subscription: begins and attaches of the dead letters' link and of its own, and a flow.
PLACES: list[tuple[Direction, int]] = [
    *(("to_broker", count) for count in (1, 60, 150, 250, 350, 450)),
    *(("to_client", count) for count in (1, 60, 150, 250, 350, 450)),
]
MESSAGES = 5


def test_a_link_cut_in_the_middle_of_an_attach(
    any_broker: Broker, make_proxy: Callable[..., LinkProxy], new_queue: Callable[[], str]
) -> None:
    """Each message arrives after a cut at any place: a second link of the same consumer would keep some."""
    proxy = make_proxy(any_broker.ports["amqp"], opaque=True)
    address, _, login = any_broker.uri(protocol="amqp", port=proxy.port).partition("?")
    uri = f"failover:({address})?{login}&initialReconnectDelay=5&maxReconnectDelay=50"
    with redelivery.connect(uri) as connection, RawAmqp(any_broker) as raw:
        for direction, count in PLACES:
            queue = new_queue()
            proxy.cut_after_bytes(direction, count, reset=count % 100 == 0)
            with connection.consumer(queue, credit=MESSAGES) as consumer:
                proxy.disarm()  # if the subscription was shorter
                for number in range(MESSAGES):
                    raw.send(queue, str(number))
                got = [consumer.receive(timeout=30) for _ in range(MESSAGES)]
                assert sorted(message.text for message in got if message is not None) == list("01234"), count
                assert all(message.accept() for message in got if message is not None)
        assert proxy.cuts >= len(PLACES) // 2, "most of them hit the subscription"
