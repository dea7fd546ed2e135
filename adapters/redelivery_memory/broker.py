"""The broker behind `memory://name` as tests and demos see it: what it holds, and what it should do wrong."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any, Self

from redelivery.clock import SystemClock
from redelivery.core.destination import Destination
from redelivery.core.events import ConnectionLost
from redelivery.core.outgoing import Outgoing
from redelivery.errors import ConfigurationError, TransportError
from redelivery_memory.server import DEAD_LETTERS, MemoryServer

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping
    from types import TracebackType

    from redelivery.clock import Clock
    from redelivery.errors import RedeliveryError
    from redelivery_memory.connection import MemoryConnection
    from redelivery_memory.messages import HeldMessage, Step

__all__ = ["MemoryBroker", "clock_of", "hub_named"]

_hubs: dict[str, MemoryServer] = {}
_hubs_lock = threading.Lock()
_numbers = itertools.count(1)


def hub_named(name: str, clock: Clock | None) -> MemoryServer:
    """Return the broker of that name, made if there is none; it lives until `MemoryBroker.close`."""
    with _hubs_lock:
        server = _hubs.get(name)
        if server is None:
            server = _hubs[name] = MemoryServer(name, SystemClock() if clock is None else clock)
        return server


def clock_of(name: str) -> Clock | None:
    """Return the clock of the broker of that name, if there is one and a test moves its clock."""
    with _hubs_lock:
        server = _hubs.get(name)
        return None if server is None or not hasattr(server.clock, "advance") else server.clock


class MemoryBroker:
    """The broker that `memory://name` connects to, made now if there is none of that name.

    It keeps its messages when no connection is open, until `close` or the end of the process. `name=None`
    finds a new name. `clock` drives delayed and expiring messages (None: the system's). Raises
    ConfigurationError where the broker exists with another clock.
    """

    def __init__(self, name: str | None = None, *, clock: Clock | None = None) -> None:
        self.name = f"broker-{next(_numbers)}" if name is None else name
        self._server = hub_named(self.name, clock)
        if clock is not None and self._server.clock is not clock:
            raise ConfigurationError(f"memory://{self.name} exists already, with another clock")

    @property
    def uri(self) -> str:
        """What to connect to: `memory://name`."""
        return f"memory://{self.name}"

    def close(self) -> None:
        """Cut all connections and forget everything; the name is free again."""
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

    # What it holds.

    def send(
        self, destination: str, body: bytes | str, *, headers: Mapping[str, Any] | None = None, **options: Any
    ) -> str:
        """Put a message on a queue or topic, as some other program would; return its id.

        `options` are the fields of `redelivery.core.outgoing.Outgoing`: `group`, `delay`, `expires_at`,
        `persistent` and so on. Raises AdapterError for a wildcard, ConfigurationError for no destination.
        """
        data = body.encode() if isinstance(body, str) else body
        kind = "text" if isinstance(body, str) else "bytes"
        fields: dict[str, Any] = {"body_kind": kind, "headers": dict(headers or {}), **options}
        return self._server.send(Outgoing(str(Destination.parse(destination)), data, **fields))

    def messages(self, destination: str) -> list[HeldMessage]:
        """Return what is held for a destination, oldest first, also what consumers have unsettled.

        For a topic that is what its subscriptions hold, each on its own. Delayed messages are not there yet.
        """
        with self._server.lock:
            return list(self._server.held(str(Destination.parse(destination))))

    def depth(self, destination: str) -> int:
        """Return how many messages are held for a destination, with those that consumers have unsettled."""
        return len(self.messages(destination))

    def dead_letters(self, destination: str = DEAD_LETTERS) -> list[HeldMessage]:
        """Return the dead letters: each knows its `cause`, `count` and `original_destination`."""
        return self.messages(destination)

    def history(self, message_id: str | None = None) -> list[Step]:
        """Return what happened at the broker, or to one message there: at most the last 10,000 steps."""
        with self._server.lock:
            steps = self._server.history()
        return [step for step in steps if message_id is None or step.message_id == message_id]

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._server.links)

    # What it should do wrong.

    def cut(
        self,
        client_id: str | None = None,
        *,
        reason: str = "the connection was cut",
        suspect: Hashable | None = None,
    ) -> int:
        """Break all connections, or those of one client id; return how many.

        What they have unsettled goes back, counted as one delivery more. `suspect` is the id of the message (what
        `send` returned, or its `message_id`), or its key, over which the broker is to have closed the connection.
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
        """Let nobody connect from now on. `error` makes what they get: a TransportError, if None."""
        with self._server.lock:
            self._server.faults.connections = error or (
                lambda: TransportError(f"{self.uri} refuses connections, as the test told it to")
            )

    def accept_connections(self) -> None:
        """Let everybody connect again."""
        with self._server.lock:
            self._server.faults.connections = None

    def refuse_settlements(self, rule: int | Callable[[HeldMessage], bool] = 1) -> None:
        """Refuse so many poison acknowledgements and forwards, or those of messages that `rule` picks."""
        with self._server.lock:
            self._server.faults.settlements = rule

    def fail_forward(self, times: int = 1) -> None:
        """Refuse the next so many forwards: the copy is not kept, the original stays."""
        with self._server.lock:
            self._server.faults.forwards = times

    def refuse_sends(self, times: int = 1) -> None:
        """Refuse the next so many messages that connections send."""
        with self._server.lock:
            self._server.faults.sends = times

    def drop_accepts(self, times: int = 1) -> None:
        """Lose the next so many accepts on the wire: after a `cut` their messages come again, marked."""
        with self._server.lock:
            self._server.faults.accepts = times

    def stall_confirmations(self) -> None:
        """Do what is asked, but confirm no send, forward or poison until `resume_confirmations`."""
        with self._server.lock:
            self._server.faults.stalled = self._server.faults.stalled or []

    def resume_confirmations(self) -> None:
        """Answer what was held back, and answer at once again."""
        self._server.resume()
