"""Scripted broker: the broker's end of AMQP connections on this machine."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import proton as annotated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

__all__ = ["PATIENCE", "Conversation", "FrozenPeer", "ScriptedPeer", "Settlement", "proton"]

# Its annotations lack many names and arguments.
proton: Any = annotated

PATIENCE = 10.0  # seconds
DECLARE, DECLARED = 0x31, 0x33
MANAGEMENT, ANSWERS = "activemq.management", "redelivery.management"
E: Any = proton.Event


class Settlement(NamedTuple):
    """Settlement of a message by the library: delivery tag, outcome, and the fields of `modified`."""

    tag: str
    state: int
    failed: bool
    undeliverable: bool
    annotations: dict[str, Any]

    @classmethod
    def of(cls, delivery: Any) -> Settlement:
        """Return the settlement of a delivery as the broker reads it."""
        said = delivery.remote
        annotations = {str(name): value for name, value in (said.annotations or {}).items()}
        return cls(delivery.tag, int(delivery.remote_state), said.failed, said.undeliverable, annotations)


class Conversation:
    """One connection, from the broker's side."""

    def __init__(self, peer: ScriptedPeer, sock: socket.socket) -> None:
        self._peer = peer
        self._socket = sock
        self._kept: list[bytes] | None = None
        self._number = peer.connections
        self._collector = proton.Collector()
        self.connection = proton.Connection()
        self.connection.collect(self._collector)
        self.connection.container = "scripted"
        self.connection.properties = {
            proton.symbol("product"): peer.product,
            proton.symbol("version"): peer.version,
        }
        self._transport = proton.Transport(proton.Transport.SERVER)
        self._transport.channel_max = peer.sessions - 1
        sasl = self._transport.sasl()
        sasl.allowed_mechs("ANONYMOUS")
        sasl.done(proton.SASL.OK)
        self._transport.bind(self.connection)
        self._served: set[str] = set()
        self._attached = 0
        # Sessions whose end the broker has not answered.
        self._unended: list[Any] = []

    def run(self) -> None:
        """Serve the connection until either end closes it."""
        while True:
            self._events()
            self.flush()
            if self._transport.closed:
                return
            if self._attached == self._peer.freezes_after:
                self._peer.closing.wait()
                return
            data = self._socket.recv(4096)
            if not data:
                return
            self._transport.push(data)

    def flush(self) -> None:
        """Write the pending output."""
        while (size := self._transport.pending()) > 0:
            self.raw(bytes(self._transport.peek(size)))
            self._transport.pop(size)

    def raw(self, data: bytes) -> None:
        """Write bytes outside of the protocol."""
        if self._kept is None:
            self._socket.sendall(data)
        else:
            self._kept.append(data)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Write everything at the end of the block, in one call."""
        self._kept = kept = list[bytes]()
        yield
        self._kept = None
        self.raw(b"".join(kept))

    def send(self, link: Any, message: bytes) -> None:
        """Send a message and flush it."""
        link.delivery(str(self._peer.next()))
        link.stream(message)
        link.advance()
        self.flush()

    def refuse(self, condition: str, text: str = "says the broker") -> None:
        """Close the connection with an error."""
        self.connection.condition = proton.Condition(condition, text)
        self.connection.close()

    def cut(self) -> None:
        """End the connection without a close frame."""
        self._socket.shutdown(socket.SHUT_RDWR)

    def _events(self) -> None:
        while (event := self._collector.peek()) is not None:
            self._hear(event)
            if event.type == E.CONNECTION_REMOTE_OPEN:
                self.connection.open()
            elif event.type == E.SESSION_REMOTE_OPEN:
                self._begin(event.session)
            elif event.type == E.SESSION_REMOTE_CLOSE:
                self._ended(event.session)
            elif event.type == E.LINK_REMOTE_OPEN:
                self._attach(event.link)
            elif event.type == E.LINK_FLOW and event.link.is_sender and event.link.credit > 0:
                if event.link.name not in self._served:
                    self._served.add(event.link.name)
                    self._peer.script(self, event.link)
            elif event.type == E.DELIVERY and event.link.is_receiver:
                self._taken(event.link, event.delivery)
            elif event.type == E.DELIVERY:
                self._told(event.delivery)
            elif event.type in (E.LINK_REMOTE_CLOSE, E.LINK_REMOTE_DETACH):
                self._peer.link_ends(self, event.link)
            elif event.type == E.CONNECTION_REMOTE_CLOSE:
                self.connection.close()
            self._collector.pop()

    def _hear(self, event: Any) -> None:
        if event.type == E.DELIVERY and event.link.is_sender:
            self._peer.credit_left.append(event.link.credit)

    def _told(self, delivery: Any) -> None:
        """Record the outcome of a message."""
        if not delivery.settled:
            self._peer.outcomes.append(delivery.remote_state)
            return
        self._peer.settlements.append(Settlement.of(delivery))
        self._peer.settled(self)

    def _ended(self, session: Any) -> None:
        if self._peer.ends_at_once:
            session.close()
        else:
            self._unended.append(session)

    def _begin(self, session: Any) -> None:
        if self._peer.ends_late:
            for ended in self._unended:
                ended.close()
            self._unended.clear()
            self.flush()
        session.open()

    def _taken(self, link: Any, delivery: Any) -> None:
        """Take a message, or begin or end a transaction as the test says."""
        if link.remote_target.address == MANAGEMENT:
            self._asked(link, delivery)
        elif link.remote_target.type == proton.Terminus.COORDINATOR:
            said = proton.Message()
            said.decode(link.recv(delivery.pending))
            link.advance()
            if int(said.body.descriptor) == DECLARE:
                delivery.local.data = [b"txn-%d" % self._peer.next()]
                delivery.update(DECLARED)
                self._peer.declared(link)
            elif self._peer.discharges(self, link, delivery):
                delivery.update(proton.Delivery.ACCEPTED)
            else:
                return
        else:
            self._peer.taken(self, link)
            delivery.update(self._peer.outcome)
        delivery.settle()

    def _attach(self, link: Any) -> None:
        if not self._peer.attaches(link):
            return
        if MANAGEMENT in str(link.remote_target.address) or str(link.remote_source.address) == ANSWERS:
            self._manage(link)
            return
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        link.max_message_size = self._peer.largest
        link.open()
        self._attached += 1
        if link.is_receiver:
            link.flow(100)
        else:
            self._peer.consumers.append((self._number, str(link.source.address)))

    def _manage(self, link: Any) -> None:
        """Attach one of the links to Artemis' management, or refuse it."""
        link.open()
        if self._peer.manages is None:
            link.condition = proton.Condition("amqp:unauthorized-access", "no right to manage")
            link.close()
            return
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        if link.is_receiver:
            link.flow(100)
        else:
            self._served.add(link.name)
            self._answering = link

    def _asked(self, link: Any, delivery: Any) -> None:
        """Answer a question to the management."""
        said = proton.Message()
        said.decode(link.recv(delivery.pending))
        link.advance()
        operation = said.properties["_AMQ_OperationName"]
        assert self._peer.manages is not None, "the link is attached"
        told = self._peer.manages(operation, json.loads(said.body))
        if told is None:
            delivery.update(proton.Delivery.REJECTED)
            return
        if self._peer.ends_answers:
            self._peer.ends_answers -= 1
            self._answering.condition = proton.Condition("amqp:resource-deleted", "the queue is gone")
            self._answering.close()
            return
        delivery.update(proton.Delivery.ACCEPTED)
        if told is not ...:
            done = {"_AMQ_OperationSucceeded": not isinstance(told, Exception)}
            value = str(told) if isinstance(told, Exception) else told
            reply = proton.Message(
                body=json.dumps([value]), correlation_id=said.correlation_id, properties=done
            )
            self.send(self._answering, reply.encode())


class ScriptedPeer:
    """Broker on a free port; `script` runs once for each consumer's link, when it has credit."""

    outcome: int = proton.Delivery.ACCEPTED  # of messages that are sent to it
    product = "apache-activemq-artemis"
    version = "2.40.0"
    freezes_after: int | None = None  # number of links; after them it reads no more
    ends_late = False  # True: answers the end of a session when the next one begins; False: never
    ends_at_once = False  # True: answers the end of a session at once
    sessions = 1024  # most sessions on a connection
    ends_answers = 0  # number of times that it ends the link of the management's answers

    def __init__(
        self, script: Callable[[Conversation, Any], None] = lambda *_: None, *, largest: int = 0
    ) -> None:
        self.script = script
        self.discharges: Callable[[Conversation, Any, Any], bool] = lambda *_: True
        """Handles a discharge. True: carry it out. False: the test has answered it, or it stays without an answer."""
        self.declared: Callable[[Any], None] = lambda _: None  # called with the link to the coordinator
        self.attaches: Callable[[Any], bool] = lambda _: True
        """True if an attach of the client is answered."""
        self.link_ends: Callable[[Conversation, Any], None] = lambda _, link: link.close()
        """Answers the end of a link."""
        self.manages: Callable[[str, list[Any]], object] | None = None
        """Answers a question to Artemis' management: a value, an error, None (refused), or ... (no answer).

        None: the user has no right to ask.
        """
        self.taken: Callable[[Conversation, Any], None] = lambda *_: None  # before a message is accepted
        self.outcomes: list[int] = []  # of the messages that it has sent
        self.credit_left: list[int] = []  # credit of the consumer at each of its outcomes
        self.settlements: list[Settlement] = []
        self.settled: Callable[[Conversation], None] = lambda _: None  # called after each settlement
        self.closing = threading.Event()
        self.largest = largest  # bytes that a message to it may have; 0: no limit
        self.connections = 0
        self.consumers: list[
            tuple[int, str]
        ] = []  # (number of the connection, address) of each attached link
        self._number = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        if self.freezes_after is not None:
            # Connections inherit it: a small window, so that a write soon blocks.
            self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self.port: int = self._listening.getsockname()[1]
        self._threads[0].start()

    def next(self) -> int:
        """Return a number that was not returned before."""
        self._number += 1
        return self._number

    def cut(self) -> None:
        """End all connections without a close frame."""
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    @property
    def uri(self) -> str:
        """URI of the broker; the client reconnects at once."""
        return f"failover:(amqp://127.0.0.1:{self.port})?initialReconnectDelay=1&maxReconnectDelay=5"

    def _serve(self) -> None:
        while True:
            try:
                accepted, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            self._sockets.append(accepted)
            thread = threading.Thread(target=self._converse, args=(accepted,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _converse(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError, proton.ProtonException), sock:
            # By default a frame behind another one waits 40 ms for its acknowledgement.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            Conversation(self, sock).run()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.closing.set()
        self._listening.shutdown(socket.SHUT_RDWR)  # wakes `accept`, which `close` does not
        self._listening.close()
        self.cut()
        for thread in list(self._threads):
            thread.join(PATIENCE)


class FrozenPeer(ScriptedPeer):
    """Broker that gives each link credit, and reads nothing more after `links` attached links."""

    product = "ActiveMQ"
    version = "6.1.7"

    def __init__(self, links: int) -> None:
        self.freezes_after = links
        super().__init__()

    @property
    def uri(self) -> str:
        """URI of the broker."""
        return f"amqp://127.0.0.1:{self.port}"
