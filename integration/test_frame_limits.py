"""A poison message whose copy is too large for the broker's STOMP frames: it stays on its queue, others flow."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.needs import need

import redelivery
from integration.availability import own_settings
from integration.brokers import ActiveMQ, RabbitMQ, RabbitMQ4
from integration.eventually import eventually, never
from integration.raw_amqp import RawAmqp
from integration.work import POLICY, Running

need("proton")

import proton

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.brokers import Broker
    from integration.proxy import LinkProxy

pytestmark = pytest.mark.ci("messages as large as brokers allow")

GOOD = [f"good-{number}" for number in range(5)]
# RabbitMQ 4.2.6 and later accept 100 headers in a SEND; the copy of a message with 100 headers has more.
WIDE = {f"h{number}": "v" for number in range(100)}
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def rabbitmq4() -> Iterator[RabbitMQ4]:
    """Return a node of the newest version."""
    with own_settings(RabbitMQ4) as node:
        yield node


@pytest.fixture(scope="module")
def shipped() -> Iterator[ActiveMQ]:
    """Return a Classic with the frame limit of its default configuration since 6.2.8."""
    with own_settings(ActiveMQ, stomp_frames=10 * MIB) as node:
        yield node


class Handled:
    """A handler that fails for all bodies except good ones, and waits with the first until all have arrived."""

    def __init__(self) -> None:
        """Begin without deliveries."""
        self.good: list[str] = []
        self.bad = 0
        self._lock = threading.Lock()

    def __call__(self, message: redelivery.Message) -> None:
        """Handle one delivery."""
        good = message.body.startswith(b"good-")
        with self._lock:
            if good:
                self.good.append(message.text)
            else:
                self.bad += 1
        if not good:
            raise ValueError("no such order")


def set_aside(
    broker: Broker, proxy: LinkProxy, queue: str, caplog: pytest.LogCaptureFixture, needs: str, **options: Any
) -> Handled:
    """Consume until poison is set aside, and a little longer; return what the handler got."""
    seen = Handled()
    uri = broker.uri(port=proxy.port, **options)
    policies = redelivery.RedeliveryPolicyMap(default=POLICY(maximum_redeliveries=0))
    with (
        caplog.at_level(logging.INFO, logger="redelivery"),
        redelivery.connect(uri, policies=policies) as connection,
    ):
        connection.listen(queue, seen)
        with Running(connection) as running:
            eventually(
                lambda: running.ended or (connection.report().set_aside and {*seen.good} == {*GOOD}),
                message="the poison is set aside, and the others are handled",
            )
            connection.send(queue, "good-bye")
            eventually(lambda: running.ended or "good-bye" in seen.good)
            links = proxy.links_ever
            never(lambda: running.ended or proxy.links_ever > links, 2.0)
        assert running.error is None
    # Two connections ended because of the copy. Where each refusal closes one, the second was for copies alone, and
    # so is a third, over which the copy is refused here.
    assert links == 3 + isinstance(broker, RabbitMQ)
    (line,) = {text for each in caplog.records if "set aside, and" in (text := each.getMessage())}
    assert needs in line
    return seen


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("poison", ["100 headers", "5 MB"])
def test_poison_on_rabbitmq(
    rabbitmq4: RabbitMQ4,
    make_proxy: Any,
    unique_queue: str,
    caplog: pytest.LogCaptureFixture,
    *,
    kind: str,
    poison: str,
) -> None:
    """Poison is set aside after two lost connections, and the log has the reason; no message is lost."""
    arguments = {"x-queue-type": kind}
    with RawAmqp(rabbitmq4) as raw:
        raw.declare(unique_queue, arguments)
        # Without an id.
        sender = raw.connection.create_sender(rabbitmq4.address(unique_queue))
        fields = {"properties": WIDE} if poison == "100 headers" else {}
        body = b"bad" if fields else b"z" * 5_000_000
        send(sender, body, **fields)
        for text in GOOD:
            send(sender, text.encode())
    options: dict[str, Any] = {
        "redelivery__queueArguments": f"x-queue-type:{kind}",
        "redelivery__deadLetterArguments": "x-queue-type:quorum",
    }
    needs = "more than 100 headers" if fields else "raise stomp.max_frame_size"
    seen = set_aside(rabbitmq4, make_proxy(rabbitmq4.stomp_port), unique_queue, caplog, needs, **options)
    # Without an id the message is not recognised after a reconnect; the second end was not of its connection.
    assert seen.bad == 2
    with RawAmqp(rabbitmq4) as raw:
        assert [each.body for each in raw.receive(unique_queue, 10, 2.0, expected=1)] == [body]
    with redelivery.connect(rabbitmq4.uri(**options)) as connection:
        for _ in range(2):
            with pytest.raises(redelivery.TransportError):
                connection.send(unique_queue, body, headers=WIDE if fields else None)
            eventually(lambda: connection.health().ready)
        with pytest.raises(redelivery.AdapterError, match=needs):
            connection.send(unique_queue, body, headers=WIDE if fields else None)


def send(sender: Any, body: bytes, **fields: Any) -> None:
    """Send a durable message of plain bytes."""
    sender.send(proton.Message(body=body, inferred=True, durable=True, **fields))


def test_poison_on_classic(
    shipped: ActiveMQ, make_proxy: Any, unique_queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Poison on Classic, whose ERROR names the limit, stops no consumer and accuses no other message."""
    body = b"z" * (10 * MIB - 100)
    with RawAmqp(shipped) as raw:
        raw.send(unique_queue, body)
        for text in GOOD:
            raw.send(unique_queue, text)
    needs = "more than 10,485,760 bytes, and this message needs 10,486,"
    seen = set_aside(shipped, make_proxy(shipped.stomp_port), unique_queue, caplog, needs)
    # Its id is known.
    assert seen.bad == 1
    with RawAmqp(shipped) as raw:
        assert [each.body == body for each in raw.receive(unique_queue, 10, 2.0, expected=1)] == [True]
