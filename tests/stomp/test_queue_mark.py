"""A header of a delivery shows that its queue is a quorum queue of RabbitMQ, which drops messages after some losses."""

from __future__ import annotations

import pytest
from tests.cautions import cautions
from tests.eventually import eventually
from tests.stomp.peer import ScriptedPeer

import redelivery
from redelivery.core.commands import Subscribe
from redelivery_stomp.rabbitmq_profile import StompRabbitMQ

MESSAGE = (
    b"MESSAGE\nsubscription:%b\nmessage-id:T_1@@s@@%d\nack:T_1@@s@@%d\ndestination:/queue/orders\n"
    b"redelivered:true\n%bcontent-length:1\n\nx\0"
)
COUNTED = b"x-delivery-count:1\n"


class Peer(ScriptedPeer):
    """A RabbitMQ that delivers a message for each of these lines; the first connection ends after them."""

    def __init__(self, server: bytes, *lines: bytes) -> None:
        self._accepts = 0
        self.connected = b"CONNECTED\nversion:1.2\nserver:RabbitMQ/%b\nheart-beat:0,0\n\n\0" % server
        self._lines = lines
        super().__init__(self._deliver)

    def ends_over(self, frame: bytes) -> bool:
        accepts = frame.startswith(b"ACK")
        self._accepts += accepts
        return accepts and self._accepts == len(self._lines)

    def _deliver(self, identity: bytes) -> list[bytes]:
        if b"." in identity:
            # A further subscription of the same consumer.
            return []
        return [MESSAGE % (identity, number, number, line) for number, line in enumerate(self._lines, 1)]


@pytest.mark.parametrize(
    ("server", "lines", "warned"),
    [
        (b"4.3.6", (b"", COUNTED, COUNTED), True),
        (b"4.3.6", (b"", b""), False),
        (b"3.13.7", (COUNTED, COUNTED), False),
    ],
    ids=["quorum", "classic", "RabbitMQ 3"],
)
def test_a_quorum_queue_is_recognised_by_its_deliveries(
    server: bytes, lines: tuple[bytes, ...], *, warned: bool
) -> None:
    """The first delivery with a count of RabbitMQ 4 warns of the limit of its queue, once over all connections."""
    seen: list[object] = []
    handled: list[str] = []

    with Peer(server, *lines) as peer:
        uri = f"failover:({peer.uri})?initialReconnectDelay=10"
        with redelivery.connect(uri, observers=[seen.append]) as connection:
            connection.listen("orders", lambda message: handled.append(message.text))
            connection.start()
            eventually(lambda: len(handled) == 2 * len(lines))
            assert peer.connections == 2
    shown = cautions(seen)
    assert len(shown) == warned
    assert not warned or "after 20 lost connections" in shown[0]


def test_the_policy_names_the_queue() -> None:
    """The command that lifts the limit names the queue of the consumer, also that of a durable subscription."""
    profile = StompRabbitMQ(redelivery.parse_uri("stomp://h?jms.clientID=shop"))
    able = profile.able("4.3.6")
    for destination, subscription, name in (
        ("queue://a/b", None, "a/b"),
        ("native:///amq/queue/a%2Fb", None, "a/b"),
        ("topic://news", "one", "stomp\\-subscription\\-shop\\.one"),
    ):
        found = profile.for_marked(Subscribe(1, destination, window=10, subscription=subscription), able)
        assert found is not None
        assert f"'^{name}$'" in found.caution
        assert found.loss_limit == 20
