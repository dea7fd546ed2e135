"""Profiles of ActiveMQ Classic and Artemis over STOMP, and the choice of one; measured (docs/measured/stomp.md)."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, ClassVar

from redelivery.core.capabilities import Capabilities
from redelivery.core.dead_lettering.origin import ORIGIN, moved_by_classic
from redelivery.core.destination import Destination, no_such_kind
from redelivery.core.policy.classic_wildcards import is_pattern
from redelivery.errors import ConfigurationError
from redelivery_stomp.artemis_bodies import kind_on_artemis
from redelivery_stomp.artemis_delivery import ArtemisDelivery
from redelivery_stomp.byte_windows import UNIT, CountedWindow
from redelivery_stomp.classic_delivery import ClassicDelivery
from redelivery_stomp.frame_limits import CLASSIC, CLASSIC_SAYS
from redelivery_stomp.frames import is_text
from redelivery_stomp.growing_window import GrowingWindow, MessageWindow
from redelivery_stomp.profile_base import StompProfile
from redelivery_stomp.rabbitmq_profile import StompRabbitMQ
from redelivery_stomp.sampled_window import SampledWindow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redelivery.core.commands import Forward, Subscribe
    from redelivery.core.delivery import BodyKind, Delivery
    from redelivery.core.outgoing import Outgoing
    from redelivery.settings import BrokerName, Settings
    from redelivery_stomp.delivery import StompDelivery, Subscription
    from redelivery_stomp.frames import RawHeaders
    from redelivery_stomp.windows import Window

__all__ = ["StompArtemis", "StompClassic", "StompRabbitMQ", "profile_for"]

# Messages: window of one subscription to dead letters. When these still went back in transactions, Classic compared at
# each COMMIT the unacknowledged messages of a subscription with all that were ever acknowledged in a transaction of it
# (`StompSubscription.onStompCommit`): with 43,000 in one, 14 a second were redriven, and fewer each second.
SHARE = 500
# Classic: an id that it has made of its own. A session or a producer of the broker's has a number below 0.
OWN_ID = re.compile(r"ID:.+-\d+-\d+-\d+:\d+:-?\d+:-?\d+:\d+")
# Artemis: begin of the header line of a message that has a group.
GROUP = b"\n_AMQ_GROUP_ID:"
# Artemis: largest credit of which every message is counted, and the bytes of a window for each of its messages: one
# that this library sends has 340 and its body.
SMALL, SMALLEST = 32, 320
# Distinguishes this process's plain topic subscribers from those of other processes.
PROCESS = uuid.uuid4().hex


class StompClassic(StompProfile):
    """ActiveMQ Classic: NACK dead-letters a persistent message at once, and drops one that only says that it is."""

    capabilities = Capabilities(
        broker="activemq",
        # A STOMP consumer never gets JMSXGroupID.
        groups=False,
        poison_persistent=True,
        # A property `persistent` of a message that is not looks the same, and its NACK would drop it.
        proves_persistent=False,
        # 6.1.7 keeps each message that was acknowledged in a transaction, and goes through all of them at each COMMIT
        # of the subscription (`StompSubscription.transactedMessages`): a second copy after a crash is the lesser evil.
        forward="confirmed",
        transactions=True,
        unsettleable=True,
        grows=True,
        # maxPageSize: the queue stalls at so many unacknowledged messages.
        max_unacknowledged=200,
        dead_letter_destination="queue://ActiveMQ.DLQ",
        browse=True,
        # maxBrowsePageSize.
        browse_limit=400,
        individual_prefixes=("ActiveMQ.DLQ.Queue.", "ActiveMQ.DLQ.Topic."),
        # Not in the transaction: a delayed message goes to its scheduler after the commit has been written.
        reschedule="confirmed",
        reschedule_needs="schedulerSupport=true in its configuration",
    )
    # ActiveMQ Classic 6.1.7: a message that it does not have, or no longer (docs/measured/stomp.md).
    no_refusal = re.compile("Unexpected N?ACK")
    names_requests = True
    frame_limits = CLASSIC
    frame_error = CLASSIC_SAYS
    # 6.1.7: a property replaces the header of its name, and its name is not escaped.
    forgeable = True
    makes: ClassVar[type[StompDelivery] | None] = ClassicDelivery
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
            # Of another connection: `/temp-queue/` would make one of our own.
            return f"/remote-{kind}/{name}"
        if kind not in self._prefixes:
            raise no_such_kind(destination)
        return self._prefixes[kind] + name

    def qualified(self, address: str, kind: str) -> str:
        for prefix, read in self._read:
            if address.startswith(prefix):
                return f"{read}://{address[len(prefix) :]}"
        return f"{kind}://{address}"

    def identity(self, message_id: str) -> str:
        return message_id

    def settles(self, message_id: str) -> bool:
        # 6.1.7 answers the ACK of any other with NumberFormatException, and closes the connection (measured).
        return OWN_ID.fullmatch(message_id) is not None

    def body_kind(self, head: bytes, body: bytes, headers: RawHeaders) -> BodyKind:
        declared = headers.get("amq-msg-type")
        kind: BodyKind = "text"
        if declared == "bytes" or (
            b"\ncontent-length:" in head and not (declared == "text" and is_text(body))
        ):
            # What is declared may be the property of an answer, whose body is no text.
            kind = "bytes"
        if body:
            return kind
        # Empty, no body, or a Map, Object or Stream that did not arrive. No header proves anything: a property may have
        # its name, as where an application copies all properties of a message to its answer (6.1.7, measured).
        return "unknown" if kind == "text" else "unknown-bytes"

    def grows(self, command: Subscribe) -> bool:
        # Only the first of several exclusive subscriptions receives anything.
        return super().grows(command) and "consumer.exclusive=true" not in command.destination

    def window(self, command: Subscribe) -> Window | None:
        grows = self.grows(command) and command.most
        return MessageWindow(command, command.window, 1) if grows else super().window(command)

    def sleeps(self, command: Subscribe) -> bool:
        # With a receipt 6.1.7 subscribes with a window of nothing, and widens it behind the receipt: then it wakes the
        # queue of that very name, and for a wildcard there is none (measured: docs/measured/stomp.md).
        own = Destination.parse(command.destination)
        return own.kind == "queue" and not command.browse and (is_pattern(own) or len(own.members) > 1)

    def subscribe_headers(self, command: Subscribe) -> Iterator[tuple[str, object]]:
        yield "activemq.prefetchSize", min(self.first_window(command), SHARE if command.existing else 32766)
        if command.subscription is not None:
            yield "activemq.subscriptionName", command.subscription

    def send_headers(self, message: Outgoing) -> Iterator[tuple[str, object]]:
        # Without content-length a body ends at its first NUL. With it, it is a BytesMessage, or of `amq-msg-type`.
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

    def moved(self, headers: RawHeaders) -> bool:
        return moved_by_classic(headers.get)

    def died_of(self, headers: RawHeaders) -> str | None:
        cause = headers.get("dlqDeliveryFailureCause")
        # ActiveMQ Classic 6.1.7 has no other sign of an expired message.
        return "expired" if cause and "Message Expired" in cause else cause


class StompArtemis(StompProfile):
    """ActiveMQ Artemis: NACK discards, and an ACK in a transaction takes effect at once: a copy is confirmed first."""

    capabilities = Capabilities(
        broker="artemis",
        forward="confirmed",
        drops_second_copy=True,
        duplicate_property="_AMQ_DUPL_ID",
        # After an end by FIN, not by RST, it marks 1 of 20.
        marks=False,
        grows=True,
        window_in_bytes=True,
        dead_letter_destination="queue://DLQ",
        reschedule="confirmed",
    )
    # Artemis 2.40.0: it missed our heart-beats (AMQ229014); an acknowledged message that it does not have (AMQ339018),
    # or no longer (AMQ339025) (docs/measured/stomp.md).
    no_refusal = re.compile("AMQ229014|Did not receive data|AMQ339018|AMQ339025")
    # Its `ack` is the same, unless the producer has set a header of that name.
    handle = b"\nmessage-id:"
    makes: ClassVar[type[StompDelivery] | None] = ArtemisDelivery
    group_header = "_AMQ_GROUP_ID"
    closes = True
    names_subscriptions = True
    _types: ClassVar = {
        "queue": "ANYCAST",
        "topic": "MULTICAST",
        "temp-queue": "ANYCAST",
        "temp-topic": "MULTICAST",
    }

    def address(self, destination: str) -> str:
        return destination.partition("://")[2]

    def pattern(self, destination: str) -> str:
        kind, _, name = destination.partition("://")
        many = kind != "native" and (name == ">" or name.endswith(".>"))
        return f"{name[:-1]}#" if many else name

    def reply_address(self, destination: str) -> str:
        # A bare name would be a destination of no kind to a JMS client, which then cannot be answered.
        return self.address(destination) if destination.startswith("native://") else destination

    def names(self, text: str, address: str) -> bool:
        # AMQ339016: nobody else knows the id, and no destination has one.
        return text.endswith(f" subscription {address}")

    def qualified(self, address: str, kind: str) -> str:
        for prefix in ("queue://", "topic://", "temp-queue://", "temp-topic://"):
            if address.startswith(prefix):
                return address
        return f"{kind}://{address}"

    def identity(self, message_id: str) -> str:
        # `<consumer>,<message>`: only the message's number is the same in all deliveries.
        return message_id.rpartition(",")[2]

    def body_kind(self, head: bytes, body: bytes, headers: RawHeaders) -> BodyKind:
        return kind_on_artemis(head, body, headers)

    def grows(self, command: Subscribe) -> bool:
        # A group is bound to the subscription that got its first message. While that one has no room, its next message
        # keeps all that is behind it from every consumer (docs/measured/stomp.md).
        return super().grows(command) and command.ordering != "per_group"

    def window(self, command: Subscribe) -> Window | None:
        if command.most and self.grows(command):
            usual = SMALLEST if _small(command) else UNIT
            return GrowingWindow(command, self._size(command), usual, group=GROUP)
        if _small(command):
            return CountedWindow(command, self._size(command), SMALLEST, group=GROUP)
        if command.browse or not command.destination.startswith("queue://"):
            # A further subscription to a topic would receive each message a second time.
            return None
        return SampledWindow(command, self._size(command), UNIT)

    def _size(self, command: Subscribe) -> int:
        return command.window * SMALLEST if _small(command) else self.first_window(command) * UNIT

    def subscribe_headers(self, command: Subscribe) -> Iterator[tuple[str, object]]:
        yield "subscription-type", self._types.get(command.destination.partition("://")[0])
        yield "consumer-window-size", self._size(command)
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
            # A copy that was confirmed, and its message not acknowledged, must not be followed by a second one. It is
            # never an application's id: Artemis confirms and drops a second message of the same id. Each subscriber
            # of a topic has its own: a message is poison for each of them alone.
            yield "_AMQ_DUPL_ID", f"redelivery:{key[0]}:{key[1]}{_subscriber(command.delivery)}"

    def origin(self, headers: RawHeaders) -> str | None:
        address, queue = headers.get("_AMQ_ORIG_ADDRESS"), headers.get("_AMQ_ORIG_QUEUE")
        routing = headers.get("_AMQ_ORIG_ROUTING_TYPE")
        # Without the message's number a copy wrote it, which says itself what it was sent to, a topic too.
        if not address or (headers.get("_AMQ_ORIG_MESSAGE_ID") is None and headers.get(ORIGIN) is not None):
            return None
        multicast = routing == "0" or (routing is None and queue not in (None, address))
        return self.qualified(address, "topic" if multicast else "queue")

    def died_of(self, headers: RawHeaders) -> str | None:
        return "expired" if headers.get("_AMQ_ACTUAL_EXPIRY") else None


def _small(command: Subscribe) -> bool:
    """True if every message of a consumer is counted.

    One that promises an order has one subscription: what several give back need not come back in order.
    """
    queue = command.destination.startswith("queue://") and not (command.browse or command.existing)
    return queue and command.window <= SMALL and command.ordering == "non_blocking"


def _subscriber(delivery: Delivery) -> str:
    """Return the suffix of a topic's subscriber; empty for a queue, whose message has one consumer."""
    source: Subscription | None = getattr(delivery, "source", None)
    if source is None or source.kind == "queue":
        return ""
    return f":{source.command.subscription or f'{PROCESS}-{source.consumer}'}"


def profile_for(server: str, broker: BrokerName = "auto", settings: Settings | None = None) -> StompProfile:
    """Return the profile for the `server` header of CONNECTED, or for the `broker` that the user names.

    Raises ConfigurationError for other brokers, and for settings that this one does not have.
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
