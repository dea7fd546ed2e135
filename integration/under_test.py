"""Real brokers for the conformance suite: what a Java client sends and finds, links through a proxy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from integration.eventually import SLACK
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
    """What is known of one adapter on one broker. `scheme` is also the name of the broker's port."""

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
    patience: float = 0.0
    """How long, in seconds, the other client must wait to know that nothing is there."""


class JmsUnderTest(BrokerUnderTest):
    """A running broker that a JMS client, or what stands for one, can talk to, whatever protocol the library uses."""

    def __init__(self, pair: Pair, broker: Broker, java: Client) -> None:
        """Nothing is connected yet; use it in a `with`."""
        self.capabilities = pair.capabilities
        self.kinds = pair.kinds
        self.features = pair.features
        self.typed_headers = pair.typed_headers
        self.options = {"jms.userName": broker.user, "jms.password": broker.password, **pair.options}
        self.holds_back = pair.holds_back
        self.persistence = pair.persistence
        self.prefix = pair.prefix
        self.refuses = "denied.conformance"
        self.beyond_credit = pair.beyond_credit
        self.late = SLACK
        self._scheme = pair.scheme
        self._patience = pair.patience
        self._java = java
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
        """The proxy's."""
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
        """As a JMS client does."""
        if kind not in self.kinds:
            raise ValueError(f"this client sends no {kind}")
        if kind in ("map", "stream"):
            assert body == BODIES_BY_KIND[kind], "the Java client makes this one, and no other"
            body = BODIES_BY_KIND["text"]
        data = body.encode() if isinstance(body, str) else body
        assert isinstance(data, bytes)
        self._java.send(queue, data, kind=kind, properties=headers, persistent=persistent)

    def take(self, queue: str) -> Sequence[Found]:
        """All that there is now."""
        return [_found(message) for message in self._java.drain(queue, timeout=self._patience)]

    def cut(self) -> int:
        """At the proxy, by RST."""
        links = self._proxy.cut()
        self._proxy.resume()
        return links

    def stall(self, direction: Direction) -> None:
        """At the proxy."""
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
