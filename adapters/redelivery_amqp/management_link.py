"""Pair of links to a broker's management: to look up and declare queues and bindings, or to ask for settings.

RabbitMQ ends the session over a request that the user has no right to, and does not name the request (4.3.6: a
declaration by a user without the right to configure): there one request is sent at a time. Artemis refuses a link, or
rejects the request.

Every method runs under the wire's lock.
"""

from __future__ import annotations

import itertools
import uuid
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

import proton

from redelivery_amqp.receiver import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from redelivery.errors import RedeliveryError
    from redelivery_amqp.io_thread import Handle, ProtonEngine

__all__ = ["BrokerJNode", "Management", "ManagementLink", "ManagementNode", "RabbitNode", "Reply", "Request"]


# ---- Management link -------------------------------------------------------------------------------------

# Condition of a message that the broker has no room for at the moment.
FULL = "amqp:resource-limit-exceeded"
# A message without a body ends the session, and proton writes no body for None.
_NO_BODY = b"\x00\x53\x77\x40"


@dataclass(frozen=True, slots=True)
class Reply:
    """Reply to a request. `status` as in HTTP; 0: no reply, and `error` is the reason."""

    status: int
    body: Any = None
    error: RedeliveryError | None = None

    @property
    def done(self) -> bool:
        """True if the request was carried out."""
        return 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Request:
    """One request, and the callback for its reply."""

    method: str
    path: str
    body: Any
    answer: Callable[[Reply], None]


class ManagementNode(Protocol):
    """The form of a broker's requests and replies."""

    most: ClassVar[int]
    """Number of requests that may await their replies."""

    def describe(self, sender: Any, receiver: Any) -> None:
        """Fill in both links before they are attached."""

    def mark(self) -> str:
        """Return the correlation id of the reply to the next request."""
        ...

    def encode(self, mark: str, request: Request) -> bytes:
        """Return the message of a request."""
        ...

    def read(self, message: proton.Message) -> Reply:
        """Return the reply in a message."""
        ...


class RabbitNode:
    """RabbitMQ's `/management`: requests as of HTTP, over a pair of links that belong together."""

    most: ClassVar[int] = 1

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def describe(self, sender: Any, receiver: Any) -> None:
        """See ManagementNode."""
        for link, ours, theirs in (
            (sender, sender.source, sender.target),
            (receiver, receiver.target, receiver.source),
        ):
            link.properties = {proton.symbol("paired"): True}
            link.snd_settle_mode = proton.Link.SND_SETTLED
            ours.address, theirs.address = "redelivery", "/management"

    def mark(self) -> str:
        """See ManagementNode."""
        return str(next(self._numbers))

    def encode(self, mark: str, request: Request) -> bytes:
        """See ManagementNode."""
        message = proton.Message(
            id=mark, subject=request.method, address=request.path, reply_to="$me", body=request.body
        )
        encoded: bytes = message.encode()
        return encoded + (_NO_BODY if request.body is None else b"")

    def read(self, message: proton.Message) -> Reply:
        """See ManagementNode."""
        subject = str(message.subject)
        return Reply(int(subject) if subject.isascii() and subject.isdigit() else 0, message.body)


class ManagementLink:
    """One pair in its own session. It ends with the connection, or when the broker ends it."""

    def __init__(self, wire: ProtonEngine, name: str, node: ManagementNode) -> None:
        self._wire = wire
        self._name = name
        self._node = node
        self._waiting: deque[Request] = deque()
        # Requests that were sent, by their marks.
        self._asked: dict[str, Request] = {}
        self._tags = itertools.count(1)
        # Marks of requests without an outcome, by the tags of their messages.
        self._sent: dict[str, str] = {}
        self._attached = 0
        self._sender: Any = None
        self._receiver: Any = None
        self.session: Any = None
        self.handle: Handle | None = None
        # What has arrived of a reply that is not complete yet.
        self.begun = bytearray()

    def attach(self, connection: proton.Connection) -> None:
        """Attach both links."""
        self.session = connection.session()
        self.session.open()
        self._sender, self._receiver = self.session.sender(self._name), self.session.receiver(self._name)
        self._node.describe(self._sender, self._receiver)
        self._sender.open()
        self._receiver.open()
        self.handle = self._receiver._impl

    def on_attached(self) -> None:
        """Handle the broker's answer to one of the two attaches."""
        self._attached += 1
        self.pump()

    def ask(self, request: Request) -> None:
        """Send a request after the replies to those before it."""
        self._waiting.append(request)
        self.pump()

    def pump(self) -> None:
        """Send the next requests, as many as may await their replies and the link has credit for."""
        while self._waiting and self._attached == 2 and len(self._asked) < self._node.most:
            if self._sender.credit <= 0:
                return
            request, mark = self._waiting.popleft(), self._node.mark()
            self._asked[mark] = request
            self._wire.flow(self.handle, 1)
            tag = str(next(self._tags))
            delivery = self._sender.delivery(tag)
            self._sender.stream(self._node.encode(mark, request))
            self._sender.advance()
            if self._sender.snd_settle_mode == proton.Link.SND_SETTLED:
                delivery.settle()
            else:
                self._sent[tag] = mark

    def arrived(self, found: Sequence[tuple[bytes, Handle]]) -> None:
        """Handle replies."""
        for data, handle in found:
            self._wire.forget(handle)
            message = proton.Message()
            message.decode(data)
            self._answer(str(message.correlation_id), self._node.read(message))

    def on_outcome(self, delivery: proton.Delivery, masked: Callable[[str], str]) -> bool:
        """Handle the outcome of a request that was not sent settled; return False if the broker could not take it."""
        state, condition = delivery.remote_state, delivery.remote.condition
        if not state and not delivery.settled:
            return True
        mark = self._sent.pop(str(delivery.tag), "")
        delivery.settle()
        if state == proton.Delivery.REJECTED and (condition is None or condition.name != FULL):
            error = refusal("the broker rejected a request to its management", condition, masked)
            self._answer(mark, Reply(0, error=error))
            return True
        return state in (None, 0, proton.Delivery.ACCEPTED)

    def _answer(self, mark: str, reply: Reply) -> None:
        request = self._asked.pop(mark, None)
        if request is not None:
            request.answer(reply)
            self.pump()

    @property
    def broken_off(self) -> bool:
        """True if the links were there, and requests await replies that no other pair gets."""
        return self._node.most > 1 and self._attached == 2 and bool(self._asked)

    def on_ended(self, error: RedeliveryError) -> list[Request]:
        """Answer the request that has ended the pair with the error; return the others.

        If the attach was refused, the first request gets the error; all get it where several may be sent.
        """
        blamed = list(self._asked.values())
        if not blamed and self._waiting:
            blamed = list(self._waiting) if self._node.most > 1 else [self._waiting.popleft()]
        left = [each for each in self._waiting if each not in blamed]
        self._asked.clear()
        self._waiting.clear()
        for each in blamed:
            each.answer(Reply(0, error=error))
        return left

    def fail(self, error: RedeliveryError) -> None:
        """Answer all requests with the error: the connection was lost."""
        requests = [*self._asked.values(), *self._waiting]
        self._asked.clear()
        self._waiting.clear()
        for request in requests:
            request.answer(Reply(0, error=error))

    def close(self) -> None:
        """End the links and their session."""
        self._sender.close()
        self._receiver.close()
        self.session.close()

    def free(self) -> None:
        """Free the session, and both links with it."""
        self.session.free()
        self._sender = self._receiver = self.session = self.handle = None


class Management:
    """Management links of one connection, one pair at a time; `make` creates a pair for the first request."""

    def __init__(self, wire: ProtonEngine, make: Callable[[], ManagementLink]) -> None:
        self._wire = wire
        self._make = make
        self._link: ManagementLink | None = None

    def ask(self, method: str, path: str, body: Any, answer: Callable[[Reply], None]) -> None:
        """Send a request after those before it. `answer` may get an error, and may be called before this returns."""
        self._ask(Request(method, path, body, answer))

    def _ask(self, request: Request) -> None:
        if self._link is None:
            self._link = self._make()
        self._link.ask(request)

    def holds(self, handle: Handle) -> bool:
        """True if replies arrive on this receiving link."""
        return self._link is not None and self._link.handle == handle

    def take(self) -> None:
        """Handle the replies that have arrived."""
        if self._link is not None and self._link.handle is not None:
            self._link.arrived(self._wire.take(self._link.handle, self._link.begun))

    def ended(self, link: ManagementLink, error: RedeliveryError) -> None:
        """Handle a pair that the broker has ended: requests without a reply are sent over another pair."""
        if link is self._link:
            self._link = None
        for request in link.on_ended(error):
            self._ask(request)


# ---- Brokerj node ----------------------------------------------------------------------------------------
# Management node of Qpid Broker-J: each virtual host has one, which reads the attributes of a queue.

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
