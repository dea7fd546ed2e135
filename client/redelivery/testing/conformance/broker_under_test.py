"""Description of a pair of adapter and broker: abilities, another client, and a way to cut."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import urlencode

from redelivery.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redelivery.clock import Clock
    from redelivery.core.capabilities import Capabilities

__all__ = ["FEATURES", "KINDS", "Arrival", "BrokerUnderTest", "Direction", "Feature", "Found", "Kind"]

Feature = Literal["topics", "durable", "selectors", "wildcards", "delay", "marks"]
"""Ability of a pair beyond queues.

`durable`: durable topic subscriptions. `delay`: the broker delays a send. `marks`: after a lost connection,
the broker marks messages that were delivered before.
"""
FEATURES: frozenset[Feature] = frozenset(get_args(Feature))

Kind = Literal["text", "bytes", "map", "object", "stream"]
"""Bodies, in the terms of JMS."""
KINDS: tuple[Kind, ...] = get_args(Kind)

Arrival = Literal["whole", "partial", "never"]
"""How a body arrives.

`partial`: without its content, and so it cannot be copied. `never`: not delivered.
"""

Direction = Literal["to_broker", "to_client"]
"""Direction of frames. `to_client` is from the broker to the library."""


@dataclass(frozen=True, slots=True)
class Found:
    """Message that the other client found on a queue."""

    body: bytes
    """Body; empty if `value` has the content."""
    kind: Kind
    headers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Application properties, with types or as text. Other properties may be among them."""
    value: Any = None
    """Content of a map (dict), stream (list) or object (text)."""
    persistent: bool = True
    priority: int = 4
    correlation_id: str | None = None
    expires_at: float | None = None
    """Seconds since the Unix epoch. None is never."""

    @property
    def text(self) -> str:
        """Body decoded as UTF-8."""
        return self.body.decode()


class BrokerUnderTest(ABC):
    """One adapter on one broker. A subclass describes the pair, and reaches the broker by other means.

    Times are in seconds of `clock`; queues have plain names.
    """

    capabilities: Capabilities
    """Capabilities that the adapter must report; `version` is not compared.

    Write them out: do not take them from the adapter.
    """
    features: frozenset[Feature] = FEATURES
    """Abilities of the pair; it must refuse the others."""
    kinds: Mapping[Kind, Arrival] = {"text": "whole", "bytes": "whole"}
    """Kinds of bodies that `send` can produce, and how each of them arrives."""
    persistence: bool = True
    """True if a non-persistent message arrives as non-persistent.

    RabbitMQ 4.0 makes it persistent over AMQP.
    """
    typed_headers: bool = False
    """True if `Message.headers` has numbers and booleans with their types, not as text."""
    prefix: str = ""
    """Prefix of the suite's queue names that makes the broker keep poison by itself."""
    beyond_credit: int = 0
    """Messages that the broker may send, or keep for this connection, beyond its credit."""
    clock: Clock = SystemClock()
    """Clock of the suite and its connections."""
    late: float = 0.5
    """Most seconds by which a redelivery may be late; it is never early."""
    options: Mapping[str, str] = {}
    """Options of every URI, such as a login."""
    holds_back: bool = True
    """True if the broker can delay messages of these queues; for brokers that can in some queues."""
    refuses: str | None = None
    """Queue to which this login may not send, or None."""

    @property
    @abstractmethod
    def address(self) -> str:
        """Address for the library, as in ``stomp://host:port``, on a path that `cut` can cut."""

    @abstractmethod
    def send(
        self,
        queue: str,
        body: object,
        *,
        kind: Kind = "text",
        headers: Mapping[str, Any] | None = None,
        persistent: bool = True,
    ) -> None:
        """Send a message to a queue, by another client; return when the broker has it.

        Args:
            queue: Name of the queue.
            body: str (text, object), bytes, a dict (map) or a list (stream).
            kind: Kind of the body.
            headers: Application properties. None: none.
            persistent: True if the broker is to keep it over a restart.

        Raises:
            ValueError: `kind` is not in `kinds`.
        """

    @abstractmethod
    def take(self, queue: str) -> Sequence[Found]:
        """Take all messages that no consumer has off a queue, by another client.

        Args:
            queue: Name of the queue.

        Returns:
            The messages, oldest first.
        """

    @abstractmethod
    def cut(self) -> int:
        """Break all connections of the library as a network would, without a log-out.

        New connections work.

        Returns:
            The number of connections.
        """

    @abstractmethod
    def stall(self, direction: Direction) -> None:
        """Stop all bytes in one direction.

        The next `cut` loses these bytes, and ends the stall.

        Args:
            direction: The direction.
        """

    def uri(self, **options: object) -> str:
        """Return the connection URI with these options. `__` stands for a dot: `redelivery__credit=5`."""
        # Without this maximum, reconnect delays grow to seconds when connections are cut often.
        query = {**self.options, "maxReconnectDelay": "50"}
        for name, value in options.items():
            query[name.replace("__", ".")] = str(value).lower() if isinstance(value, bool) else str(value)
        return f"failover:({self.address})?{urlencode(query)}"
