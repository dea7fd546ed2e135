"""An annotation of the first delivery shows that its queue is a stream of RabbitMQ 3, which has no management node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.amqp.peer import Conversation, ScriptedPeer, proton
from tests.cautions import cautions
from tests.eventually import eventually

import redelivery

if TYPE_CHECKING:
    from collections.abc import Mapping

QUEUE = "native:///amq/queue/log"


class Log(ScriptedPeer):
    """A RabbitMQ that delivers messages with these annotations to each consumer."""

    product = "RabbitMQ"

    def __init__(self, version: str, *annotations: Mapping[str, Any]) -> None:
        self.version = version
        self._annotations = annotations
        super().__init__(self._deliver)

    def _deliver(self, conversation: Conversation, link: Any) -> None:
        for number, given in enumerate(self._annotations):
            message = proton.Message(id=f"m{number}", body=b"x")
            message.annotations = {proton.symbol(name): value for name, value in given.items()}
            conversation.send(link, message.encode())


@pytest.mark.parametrize(
    ("version", "annotations", "warned"),
    [
        ("3.13.7", ({"x-stream-offset": 3}, {"x-stream-offset": 4}), True),
        ("3.10.8", ({"x-opt-jms-msg-type": 5}, {"x-stream-offset": 4}), False),
        ("3.10.8", ({}, {}), False),
    ],
    ids=["stream", "a producer's", "queue"],
)
def test_a_stream_is_recognised_by_its_first_delivery(
    version: str, annotations: tuple[Mapping[str, Any], ...], *, warned: bool
) -> None:
    """A first delivery of RabbitMQ 3 with a stream's offset warns of what a stream does, once over all connections."""
    seen: list[object] = []
    handled: list[str] = []

    with (
        Log(version, *annotations) as peer,
        redelivery.connect(peer.uri, observers=[seen.append]) as connection,
    ):
        connection.listen(QUEUE, lambda message: handled.append(message.text))
        connection.start()
        eventually(lambda: len(handled) == len(annotations))
        peer.cut()
        eventually(lambda: len(handled) == 2 * len(annotations))
        assert peer.connections >= 2
    shown = cautions(seen)
    assert len(shown) == warned
    assert not warned or "this is a stream; a stream of RabbitMQ keeps its messages" in shown[0]
