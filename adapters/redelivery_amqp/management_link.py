"""Pair of links to RabbitMQ's management node: looks up and declares queues and bindings.

One request is sent at a time. The broker ends the session over a request that the user has no right to, and does not
name the request (4.3.6: a declaration by a user without the right to configure).

Every method runs under the wire's lock.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import proton

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.errors import RedeliveryError
    from redelivery_amqp.proton_engine import Handle, ProtonEngine

__all__ = ["Management", "ManagementLink", "Reply"]

NODE = "/management"
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


class ManagementLink:
    """One pair in its own session. It ends with the connection, or when the broker ends it."""

    def __init__(self, wire: ProtonEngine, name: str) -> None:
        self._wire = wire
        self._name = name
        self._numbers = itertools.count(1)
        self._waiting: deque[Request] = deque()
        # The request that was sent, and its number.
        self._asked: tuple[str, Request] | None = None
        self._attached = 0
        self._sender: Any = None
        self._receiver: Any = None
        self.session: Any = None
        self.handle: Handle | None = None

    def attach(self, connection: proton.Connection) -> None:
        """Attach both links."""
        self.session = connection.session()
        self.session.open()
        self._sender, self._receiver = self.session.sender(self._name), self.session.receiver(self._name)
        for link, ours, theirs in (
            (self._sender, self._sender.source, self._sender.target),
            (self._receiver, self._receiver.target, self._receiver.source),
        ):
            link.properties = {proton.symbol("paired"): True}
            link.snd_settle_mode = proton.Link.SND_SETTLED
            ours.address, theirs.address = "redelivery", NODE
            link.open()
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
        request, number = self._waiting.popleft(), str(next(self._numbers))
        self._asked = number, request
        message = proton.Message(
            id=number, subject=request.method, address=request.path, reply_to="$me", body=request.body
        )
        self._wire.flow(self.handle, 1)
        delivery = self._sender.delivery(number)
        self._sender.stream(message.encode() + (_NO_BODY if request.body is None else b""))
        self._sender.advance()
        delivery.settle()

    def arrived(self, found: Sequence[tuple[bytes, Handle]]) -> None:
        """Handle replies."""
        for data, handle in found:
            self._wire.forget(handle)
            message = proton.Message()
            message.decode(data)
            if self._asked is None or str(message.correlation_id) != self._asked[0]:
                continue
            (_, request), self._asked = self._asked, None
            subject = str(message.subject)
            request.answer(
                Reply(int(subject) if subject.isascii() and subject.isdigit() else 0, message.body)
            )
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
            self._link.arrived(self._wire.take(self._link.handle))

    def ended(self, link: ManagementLink, error: RedeliveryError) -> None:
        """Handle a pair that the broker has ended: requests without a reply are sent over another pair."""
        if link is self._link:
            self._link = None
        for request in link.on_ended(error):
            self._ask(request)
