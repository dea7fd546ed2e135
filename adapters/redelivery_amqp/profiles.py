"""What each broker does with AMQP 1.0: one profile per broker, measured (docs/measured-amqp.md)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from redelivery.core.capabilities import CONSUMER_TIMEOUT, Capabilities
from redelivery.core.dead_lettering.origin import ORIGIN, moved_by_classic
from redelivery.core.destination import no_such_kind
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from redelivery.core.commands import Forward
    from redelivery.settings import BrokerName

__all__ = [
    "AmqpArtemis",
    "AmqpBrokerJ",
    "AmqpClassic",
    "AmqpProfile",
    "AmqpRabbitMQ",
    "profile_for",
]

KINDS = ("queue", "topic", "temp-queue", "temp-topic")


class AmqpProfile(ABC):
    """One broker over AMQP 1.0."""

    capabilities: ClassVar[Capabilities]
    capability: ClassVar[bool] = False
    """Whether a terminus needs the capability `queue` or `topic`."""
    rest: ClassVar[str] = "#"
    """The wildcard for all that follows, Classic's `>`."""
    durable_terminus: ClassVar[bool] = False
    """Whether a queue is only declared durable if the terminus says so."""
    tells_count: ClassVar[bool] = True
    """Whether the header's `delivery-count` means anything."""
    accepts_shown: ClassVar[bool] = False
    """Whether what a browse shows is accepted: it stays on the queue, and released it would be shown again."""
    sessions_in_turn: ClassVar[bool] = False
    """Whether a session must be over before another begins: the broker still answers on its channel."""
    delay: ClassVar[str | None] = None
    """The annotation that delays a message, in milliseconds."""
    delay_is_time: ClassVar[bool] = False
    """True if its value is a time of day; else it counts from now."""

    delay_prolongs: ClassVar[bool] = False
    """Whether the broker adds the delay of a message to its life."""

    @abstractmethod
    def address(self, destination: str) -> str:
        """Return the terminus address for a qualified destination."""

    def pattern(self, destination: str) -> str:
        """Return the address to receive from, where `*` and `>` are Classic's wildcards."""
        address = self.address(destination)
        many = not destination.startswith("native://") and (address == ">" or address.endswith((".>", "/>")))
        return f"{address[:-1]}{self.rest}" if many else address

    def standing(self, destination: str) -> str:
        """Return the address of a queue that is not to be made, where there is such an address."""
        return self.pattern(destination)

    def qualified(self, address: str, kind: str) -> str:
        """Return a qualified destination for an address; `kind` is that of its subscription, or `queue`."""
        for known in KINDS:
            if address.startswith(f"{known}://"):
                return address
        return f"{kind}://{address}"

    def redelivered(self, first_acquirer: bool | None) -> bool:  # noqa: ARG002 - only one broker tells by it
        """Whether the header's `first-acquirer` says that the message was delivered before."""
        return False

    def origin(self, annotations: Mapping[str, Any], headers: Mapping[str, Any]) -> str | None:  # noqa: ARG002
        """Return the qualified origin of a dead letter, if this broker has written it; empty if that is in doubt."""
        return None

    def moved(self, headers: Mapping[str, Any]) -> bool:  # noqa: ARG002 - only one broker tells
        """Return whether this broker's marks say that it dead-lettered a message itself."""
        return False

    def problem(self, destination: str) -> str | None:  # noqa: ARG002 - most have all kinds
        """Return why a destination can be neither sent to nor consumed from on this broker, or None."""
        return None

    def copy_properties(self, command: Forward) -> Iterator[tuple[str, str]]:  # noqa: ARG002 - some have none
        """Yield the application properties that this broker's own tools expect on a dead letter."""
        yield from ()

    def copy_annotations(self, command: Forward) -> Iterator[tuple[str, str]]:  # noqa: ARG002 - some have none
        """Yield the message annotations that this broker's own tools expect on a dead letter."""
        yield from ()


class AmqpClassic(AmqpProfile):
    """ActiveMQ Classic: rejected dead-letters a durable message at once, and drops another."""

    capabilities = Capabilities(
        broker="activemq",
        poison_persistent=True,
        forward="atomic",
        transactions=True,
        flow=True,
        release=True,
        counts=True,
        # MaxPageSize: the queue stalls at so many unacknowledged messages.
        max_unacknowledged=200,
        dead_letter_destination="queue://ActiveMQ.DLQ",
        browse=True,
        browse_limit=400,  # maxBrowsePageSize
        individual_prefixes=("ActiveMQ.DLQ.Queue.", "ActiveMQ.DLQ.Topic."),
        # Not in the transaction: it hands a delayed message to its scheduler after the commit has been written.
        reschedule="confirmed",
        reschedule_needs="schedulerSupport=true in its configuration",
    )
    delay_prolongs = True
    delay = "x-opt-delivery-delay"
    accepts_shown = True
    rest = ">"

    def address(self, destination: str) -> str:
        return destination.removeprefix("native://")

    def moved(self, headers: Mapping[str, Any]) -> bool:
        # It shows no `original-destination` over AMQP, and a copy has none: this one is a producer's.
        return "original-destination" in headers or moved_by_classic(headers.get)

    def copy_properties(self, command: Forward) -> Iterator[tuple[str, str]]:
        yield "dlqDeliveryFailureCause", command.cause.text


class AmqpArtemis(AmqpProfile):
    """ActiveMQ Artemis: without a capability an address becomes a topic."""

    capabilities = Capabilities(
        broker="artemis",
        duplicate_property="_AMQ_DUPL_ID",
        # Rejected goes to the dead-letter address, if there is one.
        poison_on_request=True,
        forward="atomic",
        transactions=True,
        flow=True,
        release=True,
        counts=True,
        # Of a link that ended by FIN, not by RST: none of 20.
        marks=False,
        dead_letter_destination="queue://DLQ",
        browse=True,
        reschedule="atomic",
    )
    capability = True
    delay = "x-opt-delivery-delay"

    def address(self, destination: str) -> str:
        return destination.partition("://")[2]

    def origin(self, annotations: Mapping[str, Any], headers: Mapping[str, Any]) -> str | None:
        # It records in annotations what came over AMQP, else in properties (2.40.0). The other of the two can be a
        # producer's: an annotation of a STOMP or Core client is a property named `JMS_AMQP_MA_…`.
        records = [
            found
            for marks, prefix in ((annotations, "x-opt-ORIG-"), (headers, "_AMQ_ORIG_"))
            if isinstance(address := marks.get(f"{prefix}ADDRESS"), str)
            and address
            and (found := self._recorded(address, marks, prefix))
        ]
        if not records:
            return None
        itself = "x-opt-ORIG-MESSAGE-ID" in annotations or "_AMQ_ORIG_MESSAGE_ID" in headers
        if not itself and ORIGIN in headers:
            # A copy, which says itself what it was sent to, a topic too.
            return None
        return records[0] if len(set(records)) == 1 else ""

    def _recorded(self, address: str, marks: Mapping[str, Any], prefix: str) -> str:
        queue, routing = marks.get(f"{prefix}QUEUE"), marks.get(f"{prefix}ROUTING_TYPE")
        multicast = routing in (0, "0") or (routing is None and queue not in (None, address))
        return self.qualified(address, "topic" if multicast else "queue")

    def copy_properties(self, command: Forward) -> Iterator[tuple[str, str]]:
        address = self.address(command.delivery.destination)
        yield "_AMQ_ORIG_ADDRESS", address
        yield "_AMQ_ORIG_QUEUE", address

    def copy_annotations(self, command: Forward) -> Iterator[tuple[str, str]]:
        # Of a message that came over AMQP `retryMessages` reads these alone, and counts it as put back without them.
        address = self.address(command.delivery.destination)
        yield "x-opt-ORIG-ADDRESS", address
        yield "x-opt-ORIG-QUEUE", address


class AmqpBrokerJ(AmqpProfile):
    """Qpid Broker-J: rejected only counts, so a poison message goes in a transaction."""

    capabilities = Capabilities(
        broker="qpid-broker-j",
        forward="atomic",
        transactions=True,
        flow=True,
        release=True,
        counts=True,
        queue_wildcards=False,
        dead_letter_destination="queue://DLQ",
        browse=True,
        reschedule="atomic",
        # Until its housekeeping looks: every 30 s, if nothing else was set.
        reschedule_proof="held",
        reschedule_needs="holdOnPublishEnabled on its queues, and a clock that agrees with this machine's",
    )
    delay = "x-opt-delivery-time"
    delay_is_time = True

    def address(self, destination: str) -> str:
        kind, _, name = destination.partition("://")
        return f"amq.topic/{name}" if kind == "topic" else name

    def qualified(self, address: str, kind: str) -> str:
        if address.startswith("amq.topic/"):
            return f"topic://{address[10:]}"
        return super().qualified(address, kind)


class AmqpRabbitMQ(AmqpProfile):
    """RabbitMQ 3 with its AMQP 1.0 plugin: no transactions, and `modified` ends the session."""

    capabilities = Capabilities(
        broker="rabbitmq",
        forward="confirmed",
        flow=True,
        release=True,
        # Quorum queues do, up to their delivery limit, and nothing says which kind of queue it is.
        release_counts=True,
        counts=False,
        # It even echoes the filter, and sends everything.
        selectors=False,
        # The link opens, and gets nothing.
        subscriptions=False,
        queue_wildcards=False,
        # Rejected goes to the dead-letter exchange; without one it is dropped.
        poison_on_request=True,
        # consumer_timeout: then the session ends, and the messages go back.
        max_hold=CONSUMER_TIMEOUT,
        dead_letter_destination="queue://DLQ",
        reschedule_needs="it takes a queue with arguments for each delay, which are declared over STOMP only",
    )
    durable_terminus = True
    sessions_in_turn = True
    tells_count = False  # always 0, of quorum queues too
    _prefixes: ClassVar = {"queue": "/queue/", "topic": "/topic/", "native": ""}

    def problem(self, destination: str) -> str | None:
        if destination.startswith("temp-"):
            return f"{destination}: RabbitMQ has no temporary queues or topics over AMQP 1.0"
        return None

    def address(self, destination: str) -> str:
        kind, _, name = destination.partition("://")
        if kind not in self._prefixes:
            raise no_such_kind(destination)
        return self._prefixes[kind] + name

    def standing(self, destination: str) -> str:
        kind, _, name = destination.partition("://")
        return f"/amq/queue/{name}" if kind == "queue" else self.address(destination)

    def qualified(self, address: str, kind: str) -> str:
        for prefix, read in (("/queue/", "queue"), ("/amq/queue/", "queue"), ("/topic/", "topic")):
            if address.startswith(prefix):
                return f"{read}://{address[len(prefix) :]}"
        return super().qualified(address, kind)

    def redelivered(self, first_acquirer: bool | None) -> bool:
        # Its only mark; the others never set the field.
        return first_acquirer is False


_PRODUCTS: dict[str, type[AmqpProfile]] = {
    "ActiveMQ": AmqpClassic,
    "apache-activemq-artemis": AmqpArtemis,
    "Apache Qpid Broker-J Core": AmqpBrokerJ,
    "RabbitMQ": AmqpRabbitMQ,
}
_NAMED = {profile.capabilities.broker: profile for profile in _PRODUCTS.values()}


def profile_for(properties: Mapping[str, object], broker: BrokerName) -> AmqpProfile:
    """Return the profile for the properties of the broker's open frame, or for the `broker` that the user names.

    Raises ConfigurationError for other brokers.
    """
    product = str(properties.get("product", ""))
    profile = _PRODUCTS.get(product) if broker == "auto" else _NAMED[broker]
    if profile is None:
        name = product or "a broker that does not say its name (redelivery.broker can tell it)"
        raise ConfigurationError(
            f"{name} over AMQP is not supported yet; ActiveMQ Classic, ActiveMQ Artemis, Qpid Broker-J and RabbitMQ are"
        )
    return profile()
