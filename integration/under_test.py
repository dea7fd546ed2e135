"""Real brokers for the conformance suite: a Java client that sends and receives, and connections through a proxy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from integration.eventually import SLACK
from integration.letters import Letters
from integration.proxy import LinkProxy
from redelivery.testing.conformance import FEATURES, BrokerUnderTest, Found
from redelivery.testing.conformance.bodies import BODIES_BY_KIND

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from integration.brokers import Broker
    from integration.conftest import Client
    from integration.java_client import JmsMessage
    from redelivery.core.capabilities import Capabilities
    from redelivery.testing.conformance import Arrival, Direction, Feature, Kind


@dataclass(frozen=True, slots=True)
class Pair:
    """Facts of one adapter on one broker. `scheme` is also the name of the broker's port."""

    broker: str
    scheme: str
    capabilities: Capabilities
    kinds: Mapping[Kind, Arrival]
    features: frozenset[Feature] = FEATURES
    typed_headers: bool = False
    prefix: str = ""
    beyond_credit: int = 0
    options: Mapping[str, str] = field(default_factory=dict)
    holds_back: bool = True
    persistence: bool = True
    virtual_host: str = ""
    """RabbitMQ's, for the dead letters of this protocol: with the other one's client they would have no headers."""
    patience: float = 0.0
    """Seconds without a message, after all that were there, for those of consumers that have just left."""


class JmsUnderTest(BrokerUnderTest):
    """A running broker with a JMS client, or its substitute, for any protocol of the library."""

    def __init__(self, pair: Pair, broker: Broker, java: Client) -> None:
        """Set broker and client; nothing is connected. Use it in a `with`."""
        self.capabilities = pair.capabilities
        self.kinds = pair.kinds
        self.features = pair.features
        self.typed_headers = pair.typed_headers
        login = {"jms.userName": broker.user, "jms.password": broker.password}
        self.options = {**login, "startupMaxReconnectAttempts": "3", **pair.options}
        if pair.virtual_host:
            self.options["redelivery.virtualHost"] = f"vhost:{pair.virtual_host}"
        self.holds_back = pair.holds_back
        self.persistence = pair.persistence
        self.prefix = pair.prefix
        self.refuses = "denied.conformance"
        self.beyond_credit = pair.beyond_credit
        self.late = SLACK
        self._scheme = pair.scheme
        self._patience = pair.patience
        self._java = java
        self._dead = broker.dead_letter_queue
        self._letters = Letters(broker)
        self._proxy = LinkProxy(broker.ports[pair.scheme], opaque=True)

    def __enter__(self) -> Self:
        """Start the proxy."""
        self._proxy.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the proxy."""
        self._proxy.close()

    @property
    def address(self) -> str:
        """Address of the proxy."""
        return f"{self._scheme}://{self._proxy.host}:{self._proxy.port}"

    def send(
        self,
        queue: str,
        body: object,
        *,
        kind: Kind = "text",
        headers: Mapping[str, Any] | None = None,
        persistent: bool = True,
    ) -> None:
        """Send with the JMS client."""
        if kind not in self.kinds:
            raise ValueError(f"this client sends no {kind}")
        if kind in ("map", "stream"):
            assert body == BODIES_BY_KIND[kind], "the Java client makes this one, and no other"
            body = BODIES_BY_KIND["text"]
        data = body.encode() if isinstance(body, str) else body
        assert isinstance(data, bytes)
        self._java.send(queue, data, kind=kind, properties=headers, persistent=persistent)

    def take(self, queue: str) -> Sequence[Found]:
        """Receive all messages on a queue."""
        return (
            self._letters.take(lambda: self._drained(queue)) if queue == self._dead else self._drained(queue)
        )

    def _drained(self, queue: str) -> list[Found]:
        # With a message behind all others: RabbitMQ does not say when a queue is empty.
        found = self._java.drain(queue, timeout=self._patience, to_the_end=bool(self._patience))
        return [_found(message) for message in found]

    def cut(self) -> int:
        """Cut at the proxy, by RST."""
        links = self._proxy.cut()
        self._proxy.resume()
        return links

    def stall(self, direction: Direction) -> None:
        """Stall at the proxy."""
        self._proxy.stall(direction)


def _found(message: JmsMessage) -> Found:
    kind: Any = "text" if message.kind == "empty" else message.kind
    return Found(
        body=message.body or b"",
        kind=kind,
        headers=message.properties,
        value=message.value,
        persistent=message.persistent,
        priority=message.priority,
        correlation_id=message.correlation_id,
        expires_at=message.expiration / 1000 if message.expiration else None,
    )
