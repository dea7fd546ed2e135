"""What the suite must be told of a pair, and what it needs besides the library: another client, and a way to cut."""

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
"""What a pair can do beyond queues. `durable`: durable topic subscriptions; `delay`: the broker delays a send; `marks`:
it tells, after a lost connection, that a message was delivered before."""
FEATURES: frozenset[Feature] = frozenset(get_args(Feature))

Kind = Literal["text", "bytes", "map", "object", "stream"]
"""Bodies, in the terms of JMS."""
KINDS: tuple[Kind, ...] = get_args(Kind)

Arrival = Literal["whole", "partial", "never"]
"""How a body comes to the library: `partial`: without its content, so it cannot be copied; `never`: not at all."""

Direction = Literal["to_broker", "to_client"]
"""Of what goes over a link: `to_client` is what the broker says to the library."""


@dataclass(frozen=True, slots=True)
class Found:
    """A message as the other client found it on a queue."""

    body: bytes
    """Empty where `value` has the content."""
    kind: Kind
    headers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Application properties, with types or as text; others may be among them."""
    value: Any = None
    """The content of a map (dict), stream (list) or object (text)."""
    persistent: bool = True
    priority: int = 4
    correlation_id: str | None = None
    expires_at: float | None = None
    """Seconds since the Unix epoch, or None for never."""

    @property
    def text(self) -> str:
        """The body decoded as UTF-8."""
        return self.body.decode()


class BrokerUnderTest(ABC):
    """One adapter on one broker. A subclass says what the pair can do, and reaches the broker by other means.

    Times are in seconds of `clock`; queues have plain names.
    """

    capabilities: Capabilities
    """What the adapter must report; its `version` is not compared. Write it out: do not take it from the adapter."""
    features: frozenset[Feature] = FEATURES
    """What the pair can do; it must refuse the rest."""
    kinds: Mapping[Kind, Arrival] = {"text": "whole", "bytes": "whole"}
    """The bodies that `send` can produce, and how each of them arrives."""
    persistence: bool = True
    """Whether a message that was sent non-persistent arrives so. RabbitMQ 4.0 makes it persistent over AMQP."""
    typed_headers: bool = False
    """Whether numbers and booleans arrive as such in `Message.headers`, not as text."""
    prefix: str = ""
    """What the names of the suite's queues must begin with, for the broker to keep poison by itself."""
    beyond_credit: int = 0
    """How many messages the broker may send, or keep for this link alone, beyond the credit that it was given."""
    clock: Clock = SystemClock()
    """What the suite and the connections wait by."""
    late: float = 0.5
    """By how many seconds a redelivery may come after it is due; never before."""
    options: Mapping[str, str] = {}
    """Options of every URI: a login."""
    holds_back: bool = True
    """Whether the broker can hold messages of these queues back; asked where it can do so in some queues."""
    refuses: str | None = None
    """A queue to which this login may not send."""

    @property
    @abstractmethod
    def address(self) -> str:
        """Where the library connects: `stomp://host:port`, by a way that `cut` can cut."""

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
        """Put a message on a queue, by another client; return when the broker has it.

        `body` is str (text, object), bytes, a dict (map) or a list (stream). Raises ValueError for a kind that
        is not in `kinds`.
        """

    @abstractmethod
    def take(self, queue: str) -> Sequence[Found]:
        """Take all messages off a queue that no consumer has, by another client; return them, oldest first."""

    @abstractmethod
    def cut(self) -> int:
        """Break all links of the library as a network would, without a goodbye; return how many. New ones work."""

    @abstractmethod
    def stall(self, direction: Direction) -> None:
        """Let nothing through in one direction from now on: the next `cut` loses it, and ends the stalling."""

    def uri(self, **options: object) -> str:
        """Return the connection URI with these options; `__` stands for a dot: `redelivery__credit=5`."""
        # Without a maximum, pauses grow to seconds when connections are cut often.
        query = {**self.options, "maxReconnectDelay": "50"}
        for name, value in options.items():
            query[name.replace("__", ".")] = str(value).lower() if isinstance(value, bool) else str(value)
        return f"failover:({self.address})?{urlencode(query)}"
