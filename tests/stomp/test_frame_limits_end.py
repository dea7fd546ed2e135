"""A poison message whose copy is too large for its broker: a whole connection, over a socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.eventually import eventually
from tests.stomp.peer import ScriptedPeer

import redelivery
from redelivery import AdapterError

if TYPE_CHECKING:
    from collections.abc import Iterator


class SmallPeer(ScriptedPeer):
    """A RabbitMQ with one poison message and one other on each connection; closes it on more than 100 headers."""

    connected = b"CONNECTED\nversion:1.2\nserver:RabbitMQ/4.3.6\nheart-beat:0,0\n\n\0"

    def __init__(self) -> None:
        super().__init__(self._messages)

    def ends_over(self, frame: bytes) -> bool:
        return frame.startswith(b"SEND") and frame.partition(b"\n\n")[0].count(b"\n") > 100

    def _messages(self, identity: bytes) -> Iterator[bytes]:
        if b"." in identity:
            # A further subscription of the same consumer.
            return
        properties = b"".join(b"h%d:v\n" % number for number in range(95))
        for body in (b"bad", b"good"):
            yield (
                b"MESSAGE\n%bsubscription:%b\ndestination:/queue/orders\nack:T_%b@@s@@%b\n"
                b"message-id:T_%b@@s@@%b\ncontent-length:%d\n\n%b\0\n"
                % (properties, identity, identity, body, identity, body, len(body), body)
            )


def test_poison_without_an_id_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A poison message without an id is set aside after two ends; the second one is of a connection for copies."""
    monkeypatch.setattr("redelivery.core.pending_confirms.FIRST", 0.02)
    runs: list[bytes] = []

    def handle(message: redelivery.Message) -> None:
        runs.append(message.body)
        if message.body == b"bad":
            raise ValueError("no such order")

    with SmallPeer() as peer:
        uri = f"failover:({peer.uri})?initialReconnectDelay=10"
        uri += "&jms.redeliveryPolicy.maximumRedeliveries=0"
        connection = redelivery.connect(uri)
        connection.listen("orders", handle)
        with connection.running():
            eventually(lambda: connection.report().set_aside == 1)
            eventually(lambda: any(each.startswith(b"ACK") and b"good" in each for each in peer.settled))
            with pytest.raises(AdapterError, match="more than 100 headers, and this message needs 1"):
                connection.send("orders", "x", headers={f"h{number}": "v" for number in range(110)})
            report = connection.report()
    # Two of the consumer, one that a copy has ended, and one for the copy that is refused here.
    assert (peer.connections, runs.count(b"bad"), report.poisoned) == (4, 2, 0)
