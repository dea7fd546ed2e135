"""Pair of links to a broker's management: to look up and declare queues and bindings, or to ask for settings.

One request is sent at a time. RabbitMQ ends the session over a request that the user has no right to, and does not
name the request (4.3.6: a declaration by a user without the right to configure). Artemis refuses a link or the message.

Every method runs under the wire's lock.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import proton

from redelivery_amqp.receiver import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.errors import RedeliveryError
    from redelivery_amqp.proton_engine import Handle, ProtonEngine

__all__ = ["Management", "ManagementLink", "ManagementNode", "RabbitNode", "Reply", "Request"]

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

    rests: ClassVar[bool]
    """True if the links end when no request waits: each pair is a subscriber at the broker."""

    def describe(self, sender: Any, receiver: Any) -> None:
        """Fill in both links before they are attached."""

    def mark(self, number: int) -> str:
        """Return the correlation id of the reply to a request with this number."""
        ...

    def encode(self, mark: str, request: Request) -> bytes:
        """Return the message of a request."""
        ...

    def read(self, message: proton.Message) -> Reply:
        """Return the reply in a message."""
        ...


class RabbitNode:
    """RabbitMQ's `/management`: requests as of HTTP, over a pair of links that belong together."""

    rests: ClassVar[bool] = False

    def describe(self, sender: Any, receiver: Any) -> None:
        """See ManagementNode."""
        for link, ours, theirs in (
            (sender, sender.source, sender.target),
            (receiver, receiver.target, receiver.source),
        ):
            link.properties = {proton.symbol("paired"): True}
            link.snd_settle_mode = proton.Link.SND_SETTLED
            ours.address, theirs.address = "redelivery", "/management"

    def mark(self, number: int) -> str:
        """See ManagementNode."""
        return str(number)

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
        self._numbers = itertools.count(1)
        self._waiting: deque[Request] = deque()
        # The request that was sent, and its mark.
        self._asked: tuple[str, Request] | None = None
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
        """Send the next request, if none awaits its reply and the link has credit."""
        if self._asked is not None or not self._waiting or self._attached < 2:
            return
        if self._sender.credit <= 0:
            return
        request, mark = self._waiting.popleft(), self._node.mark(next(self._numbers))
        self._asked = mark, request
        self._wire.flow(self.handle, 1)
        delivery = self._sender.delivery(mark)
        self._sender.stream(self._node.encode(mark, request))
        self._sender.advance()
        if self._sender.snd_settle_mode == proton.Link.SND_SETTLED:
            delivery.settle()

    def arrived(self, found: Sequence[tuple[bytes, Handle]]) -> None:
        """Handle replies."""
        for data, handle in found:
            self._wire.forget(handle)
            message = proton.Message()
            message.decode(data)
            if self._asked is not None and str(message.correlation_id) == self._asked[0]:
                self._answer(self._node.read(message))

    def on_outcome(self, delivery: proton.Delivery, masked: Callable[[str], str]) -> None:
        """Handle the outcome of a request that was not sent settled: a rejected one gets no reply."""
        refused = delivery.remote_state == proton.Delivery.REJECTED
        if refused and self._asked is not None and str(delivery.tag) == self._asked[0]:
            error = refusal(
                "the broker rejected a request to its management", delivery.remote.condition, masked
            )
            self._answer(Reply(0, error=error))
        delivery.settle()

    @property
    def over(self) -> bool:
        """True if the links are to end: no request waits."""
        return self._node.rests and self._asked is None and not self._waiting

    def _answer(self, reply: Reply) -> None:
        assert self._asked is not None, "a request was sent"
        (_, request), self._asked = self._asked, None
        request.answer(reply)
        self.pump()

    def on_ended(self, error: RedeliveryError) -> list[Request]:
        """Answer the request that has ended the pair with the error; return the others.

        If the attach was refused, the first request gets the error.
        """
        if self._asked is not None:
            (_, request), self._asked = self._asked, None
        elif self._waiting:
            request = self._waiting.popleft()
        else:
            return []
        left = list(self._waiting)
        self._waiting.clear()
        request.answer(Reply(0, error=error))
        return left

    def fail(self, error: RedeliveryError) -> None:
        """Answer all requests with the error: the connection was lost."""
        requests = [] if self._asked is None else [self._asked[1]]
        requests += self._waiting
        self._asked = None
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
    """Management links of one connection, one pair at a time.

    `make` creates a pair for the first request; `part` ends one that is over.
    """

    def __init__(
        self,
        wire: ProtonEngine,
        make: Callable[[], ManagementLink],
        part: Callable[[ManagementLink], None],
    ) -> None:
        self._wire = wire
        self._make = make
        self._part = part
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
            self._rest()

    def on_outcome(self, link: ManagementLink, delivery: proton.Delivery) -> None:
        """Handle the outcome of a request."""
        link.on_outcome(delivery, self._wire.masked)
        self._rest()

    def _rest(self) -> None:
        link = self._link
        if link is not None and link.over:
            self._link = None
            self._part(link)

    def ended(self, link: ManagementLink, error: RedeliveryError) -> None:
        """Handle a pair that the broker has ended: requests without a reply are sent over another pair."""
        if link is self._link:
            self._link = None
        for request in link.on_ended(error):
            self._ask(request)
