"""Messages that cannot be copied or acknowledged over STOMP: they stay on their queue, and the others flow."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import redelivery
from integration.brokers.versions import rabbitmq_release
from integration.eventually import eventually, never
from integration.raw_amqp import RawAmqp
from integration.test_jms_partial import run_as_said
from integration.work import POLICY, Running
from redelivery.core.shown_values import move_command

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from integration.brokers import Broker
    from integration.conftest import Session
    from integration.proxy import LinkProxy

pytestmark = pytest.mark.ci("messages that cannot be copied")

POLICIES = redelivery.RedeliveryPolicyMap(
    default=POLICY(maximum_redeliveries=1, initial_redelivery_delay=0.1)
)
GOOD = [f"good-{number}" for number in range(20)]


class Handled:
    """A handler that succeeds for good bodies and fails for all others; it counts by body."""

    def __init__(self) -> None:
        self.good: Counter[str] = Counter()
        self.bad = 0
        self._lock = threading.Lock()

    def __call__(self, message: redelivery.Message) -> None:
        """Handle one delivery."""
        good = message.body.startswith(b"good-")
        with self._lock:
            if good:
                self.good[message.text] += 1
            else:
                self.bad += 1
        if not good:
            raise ValueError("no such order")


def consume(
    uri: str, queue: str, seen: Handled, wanted: int, ledger: Path | None = None
) -> redelivery.Report:
    """Handle until `wanted` good messages are done and one is set aside; return the report."""
    with redelivery.connect(
        uri, policies=POLICIES, ledger=None if ledger is None else f"sqlite:///{ledger}"
    ) as connection:
        connection.listen(queue, seen)
        with Running(connection) as running:
            eventually(
                lambda: running.ended or (len(seen.good) == wanted and connection.report().set_aside == 1),
                60,
                message=f"{wanted} are handled, and one is set aside",
            )
            never(lambda: running.ended or connection.report().set_aside != 1, 1.0)
        assert running.error is None
        assert running.report is not None
        return running.report


# RabbitMQ 4 shows the bytes of a map, and treats a copy of them as the map.
PARTIAL = ["artemis", "activemq", *(["rabbitmq"] if rabbitmq_release() < (4, 0) else [])]


@pytest.mark.parametrize("name", PARTIAL)
def test_a_poison_map_is_set_aside_and_stays(
    session: Session, unique_queue: str, tmp_path: Path, *, name: str
) -> None:
    """A poison JMS Map is set aside over STOMP, 20 others are handled, and a restart handles none of them again."""
    broker = session.broker(name)
    java, ledger = session.java(broker, "qpid" if name == "rabbitmq" else None), tmp_path / "ledger.db"
    # Classic's own acknowledgement keeps a persistent one.
    java.send(unique_queue, "Grüße".encode(), kind="map", persistent=False)
    with redelivery.connect(broker.uri()) as connection:
        for body in GOOD:
            connection.send(unique_queue, body)
    first, second = Handled(), Handled()
    report = consume(broker.uri(), unique_queue, first, len(GOOD), ledger)
    assert (report.accepted, report.poisoned, report.set_aside) == (len(GOOD), 0, 1)
    assert (sorted(first.good), first.bad) == (sorted(GOOD), 2), "the policy of the map was kept"
    again = consume(broker.uri(), unique_queue, second, 0, ledger)
    assert (again.accepted, again.set_aside, second.bad) == (0, 1, 0)
    (left,) = java.drain(unique_queue, expected=1)
    assert left.kind == "map"


def test_an_id_of_an_amqp_producer_costs_no_connection(
    activemq: Broker, make_proxy: Callable[..., LinkProxy], unique_queue: str
) -> None:
    """A message with an AMQP producer's id is set aside unhandled, as Classic would close the connection on its ACK."""
    proxy = make_proxy(activemq.stomp_port)
    with RawAmqp(activemq) as amqp:
        amqp.send(unique_queue, "the one", id="order-1")
        for body in GOOD:
            amqp.send(unique_queue, body)
    seen = Handled()
    address, _, options = activemq.uri(port=proxy.port).partition("?")
    report = consume(f"failover:({address})?{options}", unique_queue, seen, len(GOOD))
    assert (report.accepted, report.set_aside, proxy.links_ever) == (len(GOOD), 1, 1)
    assert (sorted(seen.good), seen.bad) == (sorted(GOOD), 0)
    run_as_said(move_command(f"queue://{unique_queue}", "order-1"), activemq, f"{unique_queue}.odd")
    with RawAmqp(activemq) as amqp:
        left = amqp.receive(f"{unique_queue}.odd", 10, timeout=2.0, expected=1)
        assert [message.body for message in left] == ["the one"]
