"""What each broker does with STOMP: one profile per broker, measured (docs/measured-stomp.md)."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, ClassVar

from redelivery.core.capabilities import Capabilities
from redelivery.errors import ConfigurationError
from redelivery_stomp.profile_base import StompProfile
from redelivery_stomp.rabbitmq_profile import StompRabbitMQ

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redelivery.core.commands import Forward, Subscribe
    from redelivery.core.delivery import BodyKind, Delivery
    from redelivery.core.outgoing import Outgoing
    from redelivery.settings import BrokerName, Settings
    from redelivery_stomp.delivery import Subscription
    from redelivery_stomp.frames import RawHeaders

__all__ = ["StompArtemis", "StompClassic", "StompRabbitMQ", "profile_for"]

# Of one subscription that takes dead letters. At each COMMIT Classic compares all that a subscription was given and
# has not acknowledged with all that it ever acknowledged in a transaction (`StompSubscription.onStompCommit`):
# beside 43,000 held in one, 14 a second were redriven, and fewer each second.
SHARE = 500
PROCESS = uuid.uuid4().hex  # tells this process's plain topic subscribers from others'


class StompClassic(StompProfile):
    """ActiveMQ Classic: NACK dead-letters a persistent message at once, and drops a non-persistent one."""

    capabilities = Capabilities(
        broker="activemq",
        groups=False,  # JMSXGroupID is never shown to a STOMP consumer
        poison_persistent=True,
        forward="atomic",
        transactions=True,
        max_unacknowledged=200,  # maxPageSize: the queue stalls at so many unacknowledged messages
        dead_letter_destination="queue://ActiveMQ.DLQ",
        browse=True,
        browse_limit=400,  # maxBrowsePageSize
        individual_prefixes=("ActiveMQ.DLQ.Queue.", "ActiveMQ.DLQ.Topic."),
        # Not in the transaction: it hands a delayed message to its scheduler after the commit has been written.
        reschedule="confirmed",
        reschedule_needs="schedulerSupport=true in its configuration",
    )
    # ActiveMQ Classic 6.1.7: a message that it does not have, or no longer (docs/measured-stomp.md).
    no_refusal = re.compile("Unexpected N?ACK")
    delay_prolongs = True
    in_turn = False
    share = SHARE
    handle = b"\nack:"
    group_header = "JMSXGroupID"
    _prefixes: ClassVar = {
        "queue": "/queue/", "topic": "/topic/", "temp-queue": "/temp-queue/", "temp-topic": "/temp-topic/",
        "native": "",
    }  # fmt: skip
    _read: ClassVar = (
        ("/queue/", "queue"), ("/topic/", "topic"), ("/temp-queue/", "temp-queue"), ("/temp-topic/", "temp-topic"),
        ("/remote-temp-queue/", "temp-queue"), ("/remote-temp-topic/", "temp-topic"),
    )  # fmt: skip

    def address(self, destination: str) -> str:
        kind, _, name = destination.partition("://")
        if kind.startswith("temp-") and name.startswith("ID:"):
            return f"/remote-{kind}/{name}"  # another connection's: `/temp-queue/` would make one of our own
        return self._prefixes[kind] + name

    def qualified(self, address: str, kind: str) -> str:
        for prefix, read in self._read:
            if address.startswith(prefix):
                return f"{read}://{address[len(prefix) :]}"
        return f"{kind}://{address}"

    def identity(self, message_id: str) -> str:
        return message_id

    def body_kind(self, head: bytes, body: bytes, headers: RawHeaders) -> BodyKind:
        declared = headers.get("amq-msg-type")
        if declared == "text":
            return "text"
        if declared == "bytes" or b"\ncontent-length:" in head:
            return "bytes"
        # Empty and no content-length: an empty text, no body at all, or a Map, Object or Stream that did not come.
        return "text" if body or headers.get("redeliveryId") else "unknown"

    def subscribe_headers(self, command: Subscribe) -> Iterator[tuple[str, object]]:
        yield "activemq.prefetchSize", min(command.window, SHARE if command.existing else 32766)
        if command.subscription is not None:
            yield "activemq.subscriptionName", command.subscription

    def send_headers(self, message: Outgoing) -> Iterator[tuple[str, object]]:
        # Without content-length a body ends at its first NUL; with it, it is a BytesMessage unless it says otherwise.
        if message.body_kind != "text":
            yield "content-length", len(message.body)
        elif b"\0" in message.body:
            yield "amq-msg-type", "text"
            yield "content-length", len(message.body)

    def copy_headers(self, command: Forward) -> Iterator[tuple[str, object]]:
        yield "dlqDeliveryFailureCause", command.cause.text

    def origin(self, headers: RawHeaders) -> str | None:
        address = headers.get("original-destination")
        if not address:
            return None
        return address if "://" in address else self.qualified(address, "queue")

    def died_of(self, headers: RawHeaders) -> str | None:
        cause = headers.get("dlqDeliveryFailureCause")
        return "expired" if cause and "Message Expired" in cause else cause


class StompArtemis(StompProfile):
    """ActiveMQ Artemis: NACK discards, and an ACK inside a transaction takes effect at once, so a copy goes first."""

    capabilities = Capabilities(
        broker="artemis",
        forward="confirmed",
        drops_second_copy=True,
        duplicate_property="_AMQ_DUPL_ID",
        marks=False,  # of a link that ended by FIN, not by RST: 1 of 20
        window_in_bytes=True,
        dead_letter_destination="queue://DLQ",
        reschedule="confirmed",
    )
    # Artemis 2.40.0: it missed our heart-beats (AMQ229014); an acknowledged message that it does not have (AMQ339018),
    # or no longer (AMQ339025) (docs/measured-stomp.md).
    no_refusal = re.compile("AMQ229014|Did not receive data|AMQ339018|AMQ339025")
    # Its `ack` is the same, unless the producer has set a header of that name.
    handle = b"\nmessage-id:"
    group_header = "_AMQ_GROUP_ID"
    closes = True
    _types: ClassVar = {
        "queue": "ANYCAST",
        "topic": "MULTICAST",
        "temp-queue": "ANYCAST",
        "temp-topic": "MULTICAST",
    }
    _bytes_per_message: ClassVar = 1024

    def address(self, destination: str) -> str:
        return destination.partition("://")[2]

    def pattern(self, destination: str) -> str:
        kind, _, name = destination.partition("://")
        many = kind != "native" and (name == ">" or name.endswith(".>"))
        return f"{name[:-1]}#" if many else name

    def reply_address(self, destination: str) -> str:
        # A bare name would be a destination of no kind to a JMS client, which then cannot be answered.
        return self.address(destination) if destination.startswith("native://") else destination

    def qualified(self, address: str, kind: str) -> str:
        for prefix in ("queue://", "topic://", "temp-queue://", "temp-topic://"):
            if address.startswith(prefix):
                return address
        return f"{kind}://{address}"

    def identity(self, message_id: str) -> str:
        return message_id.rpartition(",")[2]  # `<consumer>,<message>`: only the message's number is stable

    def body_kind(self, head: bytes, body: bytes, headers: RawHeaders) -> BodyKind:
        length, identity = head.find(b"\ncontent-length:"), head.find(b"\nmessage-id:")
        if not body:
            if length >= 0:
                return "bytes"
            # Every JMS client's message has __AMQ_CID; its Object or Map arrives as nothing, just as an empty text.
            return "unknown" if headers.get("__AMQ_CID") else "text"
        if 0 <= length < identity:
            return "bytes"
        # A Map arrives in the broker's own encoding: behind the other headers, as a text, but with a leading NUL.
        return "partial" if body.startswith(b"\0") else "text"

    def window_bytes(self, command: Subscribe) -> int | None:
        return command.window * self._bytes_per_message

    def subscribe_headers(self, command: Subscribe) -> Iterator[tuple[str, object]]:
        yield "subscription-type", self._types.get(command.destination.partition("://")[0])
        yield "consumer-window-size", self.window_bytes(command)
        yield "durable-subscription-name", command.subscription

    def send_headers(self, message: Outgoing) -> Iterator[tuple[str, object]]:
        yield "destination-type", self._types.get(message.destination.partition("://")[0])
        if message.body_kind != "text" or b"\0" in message.body:
            yield "content-length", len(message.body)

    def copy_headers(self, command: Forward) -> Iterator[tuple[str, object]]:
        address = self.address(command.delivery.destination)
        yield "_AMQ_ORIG_ADDRESS", address
        yield "_AMQ_ORIG_QUEUE", address
        yield from self.redrive_headers(command)

    def redrive_headers(self, command: Forward) -> Iterator[tuple[str, object]]:
        key = command.delivery.key
        if isinstance(key, tuple):
            # A try that was confirmed but not acknowledged must not leave a second copy. Never an application's id:
            # Artemis confirms the second message with an id that it knows, and drops it.
            # A topic's message is poison for each of its subscribers by itself.
            yield "_AMQ_DUPL_ID", f"redelivery:{key[0]}:{key[1]}{_subscriber(command.delivery)}"

    def origin(self, headers: RawHeaders) -> str | None:
        address, queue = headers.get("_AMQ_ORIG_ADDRESS"), headers.get("_AMQ_ORIG_QUEUE")
        routing = headers.get("_AMQ_ORIG_ROUTING_TYPE")
        if not address:
            return None
        multicast = routing == "0" or (routing is None and queue not in (None, address))
        return self.qualified(address, "topic" if multicast else "queue")

    def died_of(self, headers: RawHeaders) -> str | None:
        return "expired" if headers.get("_AMQ_ACTUAL_EXPIRY") else None


def _subscriber(delivery: Delivery) -> str:
    """Return what tells the subscribers of a topic apart; nothing for a queue, whose message has one consumer."""
    source: Subscription | None = getattr(delivery, "source", None)
    if source is None or source.kind == "queue":
        return ""
    return f":{source.command.subscription or f'{PROCESS}-{source.consumer}'}"


def profile_for(server: str, broker: BrokerName = "auto", settings: Settings | None = None) -> StompProfile:
    """Return the profile for the `server` header of CONNECTED, or for the `broker` that the user names.

    Raises ConfigurationError for other brokers, and for settings that mean nothing to this one.
    """
    for begins, profile in _SERVERS:
        if server.startswith(begins) if broker == "auto" else profile.capabilities.broker == broker:
            return profile(settings)
    name = server.partition("/")[0] or "a broker that does not say its name (redelivery.broker can tell it)"
    raise ConfigurationError(
        f"{name if broker == 'auto' else broker} over STOMP is not supported yet; ActiveMQ Classic, "
        "ActiveMQ Artemis and RabbitMQ are"
    )


_SERVERS: tuple[tuple[str, type[StompProfile]], ...] = (
    ("ActiveMQ-Artemis/", StompArtemis), ("ActiveMQ/", StompClassic), ("RabbitMQ/", StompRabbitMQ),
)  # fmt: skip
