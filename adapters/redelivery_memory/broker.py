"""`MemoryBroker`: interface of the broker behind `memory://name` for tests and demos, with its messages and faults."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any, Self

from redelivery.clock import SystemClock
from redelivery.core.destination import Destination
from redelivery.core.events import ConnectionLost
from redelivery.core.outgoing import Outgoing
from redelivery.errors import AdapterError, ConfigurationError, TransportError
from redelivery_memory.server import DEAD_LETTERS, MemoryServer

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping
    from types import TracebackType

    from redelivery.clock import Clock
    from redelivery.errors import RedeliveryError
    from redelivery_memory.messages import HeldMessage, Step
    from redelivery_memory.server import MemoryConnection

__all__ = ["MemoryBroker", "clock_of", "hub_named"]

_hubs: dict[str, MemoryServer] = {}
_hubs_lock = threading.Lock()
_numbers = itertools.count(1)


def hub_named(name: str, clock: Clock | None) -> MemoryServer:
    """Return the broker of that name; create it if there is none. It exists until `MemoryBroker.close`."""
    with _hubs_lock:
        server = _hubs.get(name)
        if server is None:
            server = _hubs[name] = MemoryServer(name, SystemClock() if clock is None else clock)
        return server


def clock_of(name: str) -> Clock | None:
    """Return the clock of the broker of that name if a test advances it; None: no such broker, or a real clock."""
    with _hubs_lock:
        server = _hubs.get(name)
        return None if server is None or not hasattr(server.clock, "advance") else server.clock


class MemoryBroker:
    """Broker that `memory://name` connects to; created if there is none of that name.

    It keeps its messages while no connection is open, until `close` or the end of the process.

    Args:
        name: Name in the URI; None: a new name.
        clock: Clock for delayed and expiring messages; None: the system's.

    Raises:
        ConfigurationError: The broker exists with another clock.
    """

    def __init__(self, name: str | None = None, *, clock: Clock | None = None) -> None:
        self.name = f"broker-{next(_numbers)}" if name is None else name
        self._server = hub_named(self.name, clock)
        if clock is not None and self._server.clock is not clock:
            raise ConfigurationError(
                f"memory://{self.name} exists already, with another clock; use that clock, or another name"
            )

    @property
    def uri(self) -> str:
        """URI of the broker: `memory://name`."""
        return f"memory://{self.name}"

    def close(self) -> None:
        """Cut all connections and drop all messages; the name can be used again."""
        with _hubs_lock:
            if _hubs.get(self.name) is self._server:
                del _hubs[self.name]
        self.cut(reason="the broker was closed")
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"MemoryBroker({self.name!r})"

    # Messages.

    def send(
        self, destination: str, body: bytes | str, *, headers: Mapping[str, Any] | None = None, **options: Any
    ) -> str:
        """Put a message on a queue or topic, as another program does.

        Args:
            destination: Queue name, or `queue://`, `topic://` …
            body: `bytes` are sent as they are, `str` as UTF-8.
            headers: Application properties; None: none.
            **options: Fields of `redelivery.core.outgoing.Outgoing`: `group`, `persistent`, `delay` (seconds),
                `expires_at` (seconds since the Unix epoch) and so on.

        Returns:
            The message id.

        Raises:
            AdapterError: The destination is a wildcard.
            ConfigurationError: The destination cannot be parsed.
        """
        data = body.encode() if isinstance(body, str) else body
        kind = "text" if isinstance(body, str) else "bytes"
        fields: dict[str, Any] = {"body_kind": kind, "headers": dict(headers or {}), **options}
        return self._server.send(Outgoing(str(Destination.parse(destination)), data, **fields))

    def messages(self, destination: str) -> list[HeldMessage]:
        """Return the messages of a destination, oldest first, with those that consumers have unsettled.

        For a topic: the messages of each of its subscriptions. Delayed messages are not included before their time.

        Args:
            destination: Queue name, or `queue://`, `topic://` …
        Raises:
            ConfigurationError: The destination cannot be parsed.
        """
        with self._server.lock:
            return list(self._server.held(str(Destination.parse(destination))))

    def depth(self, destination: str) -> int:
        """Return the number of messages of a destination, with those that consumers have unsettled."""
        return len(self.messages(destination))

    def dead_letters(self, destination: str = DEAD_LETTERS) -> list[HeldMessage]:
        """Return the dead letters, oldest first: each has its `cause`, `count` and `original_destination`."""
        return self.messages(destination)

    def history(self, message_id: str | None = None) -> list[Step]:
        """Return the steps of all messages, or of one, oldest first. The broker keeps the last 10,000 steps."""
        with self._server.lock:
            steps = self._server.history()
        return [step for step in steps if message_id is None or step.message_id == message_id]

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._server.links)

    # Faults.

    def cut(
        self,
        client_id: str | None = None,
        *,
        reason: str = "the connection was cut",
        suspect: Hashable | None = None,
    ) -> int:
        """Break all connections, or those of one client id.

        Their unsettled messages are on their queues again, with a delivery count that is higher by one.

        Args:
            client_id: `jms.clientID` of the connections; None: all connections.
            reason: Text of the error that the clients get.
            suspect: Id (as `send` returned it, or `message_id`) or key of the message over which the broker closes the
                connections; None: no message.

        Returns:
            The number of connections that were cut.
        """
        with self._server.lock:
            links = [link for link in self._server.links if client_id is None or link.client_id == client_id]
            key = self._server.key_of(suspect)
            suspects = {link: link.holder(suspect) or (key, None) for link in links}

        def lost(link: MemoryConnection) -> ConnectionLost:
            return ConnectionLost(link.epoch, TransportError(f"{self.uri}: {reason}"), *suspects[link])

        self._server.disconnect(links, lost)
        return len(links)

    def refuse_connections(self, error: Callable[[], RedeliveryError] | None = None) -> None:
        """Refuse all connections until `accept_connections`.

        `error`: Makes the error that each client gets; None: a TransportError.
        """
        with self._server.lock:
            self._server.faults.connections = error or (
                lambda: TransportError(f"{self.uri} refuses connections: MemoryBroker.refuse_connections()")
            )

    def accept_connections(self) -> None:
        """Accept connections again."""
        with self._server.lock:
            self._server.faults.connections = None

    def refuse_consumers(
        self, destination: str | None = None, error: Callable[[], RedeliveryError] | None = None
    ) -> None:
        """Refuse all new consumers, also after a reconnect, until `accept_consumers`, as a node that starts does.

        Args:
            destination: Destination of these consumers; None: any.
            error: Makes the error that each gets; None: an AdapterError of a state that passes.
        """
        name = None if destination is None else str(Destination.parse(destination))
        text = f"{self.uri} refuses consumers: MemoryBroker.refuse_consumers()"
        with self._server.lock:
            self._server.faults.consumers[name] = error or (lambda: AdapterError(text, passes=True))

    def accept_consumers(self) -> None:
        """Accept consumers again. Those that were refused ask again by themselves."""
        with self._server.lock:
            self._server.faults.consumers.clear()

    def refuse_settlements(self, rule: int | Callable[[HeldMessage], bool] = 1) -> None:
        """Refuse poison acknowledgements and forwards; the messages stay with their consumers, unsettled.

        `rule`: How many of the next ones, or a function that returns True for a message to refuse.
        """
        with self._server.lock:
            self._server.faults.settlements = rule

    def fail_forward(self, times: int = 1) -> None:
        """Refuse the next `times` forwards: the copy is not stored, and the original stays unsettled."""
        with self._server.lock:
            self._server.faults.forwards = times

    def refuse_sends(self, times: int = 1, error: Callable[[], RedeliveryError] | None = None) -> None:
        """Refuse the next `times` messages that connections send.

        `error`: Makes the error that each gets; None: an AdapterError.
        """
        with self._server.lock:
            self._server.faults.sends, self._server.faults.send_error = times, error

    def drop_accepts(self, times: int = 1) -> None:
        """Lose the next `times` accepts: after a `cut` their messages are redelivered, with the redelivered flag."""
        with self._server.lock:
            self._server.faults.accepts = times

    def stall_confirmations(self) -> None:
        """Carry out sends, forwards and poison acknowledgements, but confirm none until `resume_confirmations`."""
        with self._server.lock:
            self._server.faults.stalled = self._server.faults.stalled or []

    def resume_confirmations(self) -> None:
        """Confirm the stalled commands, and confirm later ones at once again."""
        self._server.resume()
