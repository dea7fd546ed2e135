"""Connections that are cut again and again while a consumer has many prefetched messages."""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from tests.matrix import cover

import redelivery
from integration.brokers import STOMP_BROKERS
from integration.eventually import eventually, settled
from integration.raw_amqp import RawAmqp
from integration.work import POLICY, Running

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker
    from integration.java_client import JavaClient, JmsMessage
    from integration.proxy import LinkProxy

pytestmark = pytest.mark.own_broker("reads its dead-letter queue")

PREFETCHED = 100
MAX_DELIVERY_ATTEMPTS = 10  # Artemis' default


class Held:
    """A handler that keeps its first message until the gate opens."""

    def __init__(self) -> None:
        """Begin with the gate closed."""
        self.gate = threading.Event()
        self.numbers: list[int] = []

    def __call__(self, message: redelivery.Message) -> None:
        """Wait, and record the message's number."""
        self.gate.wait(60.0)
        self.numbers.append(int(message.headers["number"]))


def quick(broker: Broker, proxy: LinkProxy) -> str:
    """Return the URI through the proxy, with short reconnect delays, which would grow to seconds.

    The place of dead letters is one that nothing is asked about: there is one connection.
    """
    uri = (
        f"{broker.uri(port=proxy.port, maxReconnectDelay=50)}&redelivery.deadLetterDestination=topic://unused"
    )
    return uri.replace("stomp://", "failover:(stomp://", 1).replace("?", ")?", 1)


def cut_when_held(proxy: LinkProxy, *, all_may_be_dead: bool = False) -> None:
    """Cut the connection after messages have arrived; wait for the next one, and for messages, if any must be left."""
    # On a busy machine nothing may pass for a while before the first message.
    eventually(lambda: "MESSAGE" in proxy.to_client.log, message="messages")
    settled(lambda: proxy.to_client.frames, 0.15, interval=0.02)
    links, held = proxy.links_ever, proxy.to_client.log.count("MESSAGE")
    assert proxy.cut() >= 1
    eventually(lambda: proxy.links_ever > links, interval=0.002, message="a new link")
    if not all_may_be_dead:
        eventually(lambda: proxy.to_client.log.count("MESSAGE") > held, message="messages again")


@pytest.mark.parametrize(("broker", "cuts"), cover(sorted(STOMP_BROKERS), [8, 11]), indirect=["broker"])
def test_links_cut_again_and_again_cost_no_prefetched_message_a_delivery(
    broker: Broker, java: JavaClient, proxy: LinkProxy, unique_queue: str, cuts: int
) -> None:
    """The library dead-letters none of 100 prefetched messages after more cuts than redeliveries.

    Artemis itself counts the messages of a lost connection, and dead-letters at its `max-delivery-attempts` (10): the
    first message after 10 connections, the others too if it counted as many for them. See
    docs/measured/artemis-stomp.md, "Lost connections and max-delivery-attempts".
    """
    run = uuid.uuid4().hex
    java.send(unique_queue, b"held", properties={"run": run}, copies=PREFETCHED)
    work = Held()
    policies = redelivery.RedeliveryPolicyMap(default=POLICY(maximum_redeliveries=cuts - 5))
    with redelivery.connect(quick(broker, proxy), policies=policies) as connection:
        connection.listen(unique_queue, work, credit=PREFETCHED)
        with Running(connection):
            for number in range(1, cuts + 1):
                # Artemis may have counted that many for all of them.
                cut_when_held(proxy, all_may_be_dead=number >= MAX_DELIVERY_ATTEMPTS)
            work.gate.set()
            dead: list[dict[str, Any]] = []

            def all_found() -> bool:
                letters = java.drain(broker.dead_letter_queue, selector=f"run = '{run}'", timeout=0.3)
                dead.extend(letter.properties for letter in letters)
                return {each["number"] for each in dead} | set(work.numbers) == set(range(PREFETCHED))

            eventually(all_found, message="nothing is lost")
    numbers = {properties["number"] for properties in dead}
    print(
        f"\n{broker.name}: {cuts} cuts: {len(set(work.numbers))} of {PREFETCHED} handled, in {len(work.numbers)} runs; "
        f"dead-lettered by the broker: {sorted(numbers)}"
    )
    assert not any("redeliveryCause" in properties for properties in dead), "none by us"
    if broker.name == "activemq" or cuts < MAX_DELIVERY_ATTEMPTS:
        assert dead == []


def test_artemis_counts_lost_links(
    artemis: Broker,
    make_proxy: Callable[[int], LinkProxy],
    unique_queue: str,
) -> None:
    """Artemis counts each lost connection for its first unsettled message, and for none of the others more often.

    How often for the others differs from run to run; nothing relies on it being the same for all of them.
    """
    cuts, proxy = 5, make_proxy(artemis.stomp_port)
    with RawAmqp(artemis) as raw:
        for _ in range(PREFETCHED):
            raw.send(unique_queue)
        with redelivery.connect(quick(artemis, proxy)) as connection:
            connection.consumer(unique_queue, credit=PREFETCHED)
            for number in range(1, cuts + 1):
                arrived = number * PREFETCHED
                eventually(lambda a=arrived: proxy.to_client.log.count("MESSAGE") == a, message="all")  # type: ignore[misc]
                cut_when_held(proxy)
        counts = [message.delivery_count for message in raw.receive(unique_queue, PREFETCHED)]
    print(
        f"\nartemis: {cuts} links lost: {counts[0]} counted for the first message, {set(counts[1:])} for the others"
    )
    assert len(counts) == PREFETCHED
    assert counts[0] >= cuts
    assert max(counts[1:]) <= counts[0]


def test_artemis_dead_letters_what_nobody_saw(
    artemis: Broker,
    java_client: Callable[[Broker, str | None], JavaClient],
    make_proxy: Callable[[int], LinkProxy],
    unique_queue: str,
) -> None:
    """Artemis dead-letters a queue's first message after 10 lost connections; each other is received or also dead."""
    java, proxy, run = java_client(artemis, None), make_proxy(artemis.stomp_port), uuid.uuid4().hex
    java.send(unique_queue, b"held", properties={"run": run}, copies=PREFETCHED)
    with redelivery.connect(quick(artemis, proxy)) as connection:
        consumer = connection.consumer(unique_queue, credit=PREFETCHED)
        for number in range(1, MAX_DELIVERY_ATTEMPTS + 2):
            cut_when_held(proxy, all_may_be_dead=number >= MAX_DELIVERY_ATTEMPTS)
        seen: list[int] = []
        dead: list[JmsMessage] = []

        def all_found() -> bool:
            while (message := consumer.receive(timeout=0.3)) is not None:
                seen.append(int(message.headers["number"]))
                message.accept()
            dead.extend(java.drain(artemis.dead_letter_queue, selector=f"run = '{run}'", timeout=0.3))
            return len(seen) + len(dead) >= PREFETCHED

        eventually(all_found, message="each is seen, or dead-lettered by the broker")
    print(f"\nartemis: {len(seen)} seen, dead-lettered unseen: {[m.properties['number'] for m in dead]}")
    assert sorted([*seen, *(m.properties["number"] for m in dead)]) == list(range(PREFETCHED))
    # The number of lost connections that count for the others differs from run to run:
    # docs/measured/artemis-stomp.md, "Lost connections and max-delivery-attempts".
    assert 0 in [m.properties["number"] for m in dead]
    assert {m.properties["_AMQ_ORIG_ADDRESS"] for m in dead} == {unique_queue}
