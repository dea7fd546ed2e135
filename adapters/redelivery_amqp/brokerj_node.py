"""Management node of Qpid Broker-J: each virtual host has one, which reads the attributes of a queue."""

from __future__ import annotations

import itertools
import uuid
from typing import TYPE_CHECKING, Any, ClassVar, cast

import proton

from redelivery_amqp.management_link import Reply

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery_amqp.management_link import Request

__all__ = ["BrokerJNode"]

ADDRESS = "$management"
_OPERATIONS = {"GET": "READ"}


class BrokerJNode:
    """Broker-J's `$management`: requests by the AMQP management draft, and their answers on a link from the same node.

    Measured with 9.1.0 to 10.1.0 (docs/measured/brokerj-management.md): an answer goes to the link whose target is the
    request's `reply-to`.
    """

    most: ClassVar[int] = 1

    def __init__(self) -> None:
        self._answers = f"redelivery-{uuid.uuid4().hex}"
        self._numbers = itertools.count(1)

    def describe(self, sender: Any, receiver: Any) -> None:
        """See ManagementNode."""
        sender.target.address = receiver.source.address = ADDRESS
        receiver.target.address = self._answers
        receiver.snd_settle_mode = proton.Link.SND_SETTLED

    def mark(self) -> str:
        """See ManagementNode."""
        return f"{self._answers}-{next(self._numbers)}"

    def encode(self, mark: str, request: Request) -> bytes:
        """See ManagementNode. The path of a request is the name of a queue."""
        asked = {
            "operation": _OPERATIONS[request.method],
            "type": "org.apache.qpid.Queue",
            "index": "object-path",
            # Else the answer has no attribute that is by default: a limit may be set for all queues.
            "actuals": False,
            "key": request.path.replace("\\", "\\\\").replace("/", "\\/"),
        }
        message = proton.Message(
            id=mark, correlation_id=mark, reply_to=self._answers, properties=asked, body={}
        )
        encoded: bytes = message.encode()
        return encoded

    def read(self, message: proton.Message) -> Reply:
        """See ManagementNode. The body is in the form of RabbitMQ's: `type` and `arguments` of the queue."""
        status, body = (message.properties or {}).get("statusCode"), cast("object", message.body)
        if status != 200 or not isinstance(body, dict):
            return Reply(status if isinstance(status, int) else 0)
        told = cast("Mapping[object, object]", body)
        return Reply(200, {"type": told.get("qpid-type"), "arguments": told})
