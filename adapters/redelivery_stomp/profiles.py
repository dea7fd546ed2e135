"""Profiles of ActiveMQ Classic and Artemis over STOMP, and the choice of one; measured (docs/measured/index.md)."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, cast

from redelivery.brokers.artemis import ARTEMIS
from redelivery.brokers.classic import CLASSIC
from redelivery.core.dead_lettering.dead_letter_headers import COPY_ID, DUPLICATE_ID, ORIGIN, moved_by_classic
from redelivery.core.destination import Destination, no_such_kind
from redelivery.core.policy.wildcards import is_pattern, names_queues
from redelivery.errors import ConfigurationError
from redelivery_stomp.byte_windows import UNIT, CountedWindow, GrowingWindow, MessageWindow, SampledWindow
from redelivery_stomp.delivery import ArtemisDelivery, ClassicDelivery, kind_on_artemis
from redelivery_stomp.frame_limits import CLASSIC_LIMITS, CLASSIC_SAYS
from redelivery_stomp.frames import is_text
from redelivery_stomp.profile_base import StompProfile
from redelivery_stomp.rabbitmq_profile import StompRabbitMQ
from redelivery_stomp.receipts import REQUEST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redelivery.core.commands import Forward, Subscribe
    from redelivery.core.delivery import BodyKind
    from redelivery.core.outgoing import Outgoing
    from redelivery.settings import BrokerName, Settings
    from redelivery_stomp.delivery import StompDelivery, Subscription
    from redelivery_stomp.frames import RawHeaders
    from redelivery_stomp.windows import Window

__all__ = ["StompArtemis", "StompClassic", "StompRabbitMQ", "profile_for"]

# Messages: window of one subscription to dead letters. When a redrive still used transactions, Classic compared at each
# COMMIT the unacknowledged messages of a subscription with all that were ever acknowledged in a transaction of it
# (`StompSubscription.onStompCommit`): with 43,000 in one, 14 a second were redriven, and fewer each second.
SHARE = 500
# Classic: an id that the broker made. A session or a producer of the broker itself has a number below 0.
OWN_ID = re.compile(r"ID:.+-\d+-\d+-\d+:\d+:-?\d+:-?\d+:\d+")
# Artemis: first bytes of the header line that only a message with a group has.
GROUP = b"\n_AMQ_GROUP_ID:"
# Artemis: largest credit for which every message is counted, and bytes of such a window for each message. A message
# that this library sends has 340 bytes and its body.
SMALL, SMALLEST = 32, 320


class StompClassic(StompProfile):
    """ActiveMQ Classic: NACK dead-letters a persistent message at once, and drops a non-persistent one."""

    capabilities = replace(
        CLASSIC.always,
        # A STOMP consumer never gets JMSXGroupID.
        groups=False,
        # A copy has the cause. The NACK also keeps what does not arrive whole: a Map, an Object, an empty body. A
        # producer that gives its own non-persistent message a property `persistent` has it dropped.
        own_poison="last",
        # Not in a transaction: 6.1.7 keeps each message that was acknowledged in one, and goes through all of them at
        # each COMMIT (`StompSubscription.transactedMessages`). A second copy after a crash does less harm.
        forward="confirmed",
        unsettleable=True,
        grows=True,
    )
    # ActiveMQ Classic 6.1.7: ACK of an unknown message (docs/measured/activemq-stomp.md, "ERROR frames").
    no_refusal = re.compile("Unexpected N?ACK")
    names_requests = True
    frame_limits = CLASSIC_LIMITS
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
            # A temporary queue of another connection: `/temp-queue/` would create one of this connection.
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
            # A declared text may be wrong: an answer may have copied the property, and its body need not be a text.
            kind = "bytes"
        if body:
            return kind
        # An empty body, no body, or a Map, Object or Stream that did not arrive. No header proves which: it may be a
        # property, as when an application copies all properties of a message to its answer (6.1.7, measured).
        return "unknown" if kind == "text" else "unknown-bytes"

    def grows(self, command: Subscribe) -> bool:
        # Only the first of several exclusive subscriptions receives anything.
        return super().grows(command) and "consumer.exclusive=true" not in command.destination

    def window(self, command: Subscribe) -> Window | None:
        grows = self.grows(command) and command.most
        return MessageWindow(command, command.window, 1) if grows else super().window(command)

    def sleeps(self, command: Subscribe) -> bool:
        # Asked for a receipt, 6.1.7 subscribes with a window of 0, widens it later, and wakes the queue of exactly that
        # name. A wildcard has none (docs/measured/activemq-stomp.md, "SUBSCRIBE to a wildcard").
        own = Destination.parse(command.destination)
        return own.kind == "queue" and not command.browse and (is_pattern(own) or len(own.members) > 1)

    def subscribe_headers(self, command: Subscribe) -> Iterator[tuple[str, object]]:
        yield "activemq.prefetchSize", min(self.first_window(command), SHARE if command.existing else 32766)
        if command.subscription is not None:
            yield "activemq.subscriptionName", command.subscription

    def send_headers(self, message: Outgoing) -> Iterator[tuple[str, object]]:
        # Without content-length a body ends at its first NUL. With it, `amq-msg-type` is the type, by default bytes.
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
    """ActiveMQ Artemis: NACK discards; an ACK in a transaction takes effect at once. A copy is confirmed first."""

    capabilities = replace(
        ARTEMIS.always,
        forward="confirmed",
        drops_second_copy=True,
        grows=True,
        window_in_bytes=True,
        browse_over="AMQP",
        reschedule="confirmed",
    )
    # Artemis 2.40.0: missing heart-beats (AMQ229014); the acknowledgement of a message that it does not have
    # (AMQ339018), or no longer has (AMQ339025) (docs/measured/artemis-stomp.md, "ERROR frames").
    no_refusal = re.compile("AMQ229014|Did not receive data|AMQ339018|AMQ339025|disconnected by server$")
    # Artemis 2.40.0, over a body that it cannot convert for STOMP (docs/measured/artemis-stomp.md, "A message that it
    # cannot convert"). Messages behind it are delivered before that, and acknowledged after it (AMQ339018).
    ended_consumer = re.compile(
        r"\[address=(?P<address>.*?), queue=QueueImpl\[name=(?P<queue>.*?), .* disconnected by server$"
    )
    takes_back = True
    # Artemis sends the same value as `ack`, unless the producer has set a header of that name.
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
        # With a bare name a JMS client would have a destination without a kind, to which it cannot send an answer.
        return self.address(destination) if destination.startswith("native://") else destination

    def names(self, text: str, address: str, request: str = REQUEST) -> bool:  # noqa: ARG002 - as in the base
        # AMQ339016. The id is secret, and no destination has such a name.
        return text.endswith(f" subscription {address}")

    def qualified(self, address: str, kind: str) -> str:
        for prefix in ("queue://", "topic://", "temp-queue://", "temp-topic://"):
            if address.startswith(prefix):
                return address
        return f"{kind}://{address}"

    def names_one_queue(self, destination: str) -> bool:
        # The header has the address, from which a message would go to other queues, too.
        parsed = Destination.parse(destination)
        one = len(parsed.members) == 1 and not names_queues(parsed, self.capabilities)
        return one and (parsed.kind == "queue" or "::" in parsed.name)

    def identity(self, message_id: str) -> str:
        # `<consumer>,<message>`: only the number of the message is the same in all deliveries.
        return message_id.rpartition(",")[2]

    def body_kind(self, head: bytes, body: bytes, headers: RawHeaders) -> BodyKind:
        return kind_on_artemis(head, body, headers)

    def grows(self, command: Subscribe) -> bool:
        # A group is bound to the subscription that got its first message. While that subscription has no room, the
        # group's next message blocks all messages behind it, for every consumer
        # (docs/measured/artemis-stomp-windows.md, "Several subscriptions").
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
        kind, _, name = command.destination.partition("://")
        if command.selector is not None and "::" in name:
            # It takes others for a subscriber of that queue, and ignores their selector
            # (docs/measured/artemis-dead-letter-address.md).
            kind = "queue"
        yield "subscription-type", self._types.get(kind)
        yield "consumer-window-size", self._size(command)
        yield "durable-subscription-name", command.subscription

    def send_headers(self, message: Outgoing) -> Iterator[tuple[str, object]]:
        yield "destination-type", self._types.get(message.destination.partition("://")[0])
        if message.body_kind != "text" or b"\0" in message.body:
            yield "content-length", len(message.body)

    def copy_headers(self, command: Forward) -> Iterator[tuple[str, object]]:
        own = self.address(command.delivery.destination)
        delivery = cast("StompDelivery", command.delivery)
        told = self.qualified(delivery.raw.get("destination") or own, delivery.source.kind)
        yield "_AMQ_ORIG_ADDRESS", told.partition("://")[2].partition("::")[0]
        yield "_AMQ_ORIG_QUEUE", own.rpartition("::")[2]
        # Without these the queue of the place may drop the copy.
        yield from command.marks
        yield from self.redrive_headers(command)

    def redrive_headers(self, command: Forward) -> Iterator[tuple[str, object]]:
        delivery = cast("StompDelivery", command.delivery)
        key = cast("tuple[str, str, str | None] | None", delivery.key)
        if key is not None:
            # If a copy was confirmed, but its message not acknowledged, no second copy may be made: Artemis confirms
            # and drops a second message with the same id. That is why the id is never an application's, and names the
            # queue: one message lies in several, with one number, and can be poison in each.
            _, number, timestamp = key
            queue = self._queue(delivery.source)
            yield DUPLICATE_ID, f"{COPY_ID}{number}:{timestamp or 0}:{queue}"

    def _queue(self, source: Subscription) -> str:
        """Return the name that Artemis gives a subscription's queue, or one that only this subscription has.

        A plain subscriber of a topic has a queue with a random name, which ends with its connection. An address without
        a kind may be one.
        """
        command = source.command
        if command.subscription is not None:
            return f"{self.client_id}.{command.subscription}"
        if source.kind in ("queue", "temp-queue") or "::" in command.destination:
            return self.pattern(command.destination)
        return f"{source.owner}-{source.consumer}"

    def origin(self, headers: RawHeaders) -> str | None:
        address, queue = headers.get("_AMQ_ORIG_ADDRESS"), headers.get("_AMQ_ORIG_QUEUE")
        routing = headers.get("_AMQ_ORIG_ROUTING_TYPE")
        # Without the message's number it is a copy of this library, whose own header has the origin, also a topic.
        if not address or (headers.get("_AMQ_ORIG_MESSAGE_ID") is None and headers.get(ORIGIN) is not None):
            return None
        multicast = routing == "0" or (routing is None and queue not in (None, address))
        return self.qualified(address, "topic" if multicast else "queue")

    def died_of(self, headers: RawHeaders) -> str | None:
        return "expired" if headers.get("_AMQ_ACTUAL_EXPIRY") else None


def _small(command: Subscribe) -> bool:
    """True if every message of a consumer is counted.

    A consumer that promises an order has one subscription: messages that several release may be redelivered unordered.
    """
    queue = command.destination.startswith("queue://") and not (command.browse or command.existing)
    return queue and command.window <= SMALL and command.ordering == "non_blocking"


def profile_for(server: str, broker: BrokerName = "auto", settings: Settings | None = None) -> StompProfile:
    """Return the profile for the `server` header of CONNECTED, or for the `broker` that the user names.

    Raises ConfigurationError for other brokers, and for settings that this one does not have.
    """
    for begins, profile in _SERVERS:
        if server.startswith(begins) if broker == "auto" else profile.capabilities.broker == broker:
            return profile(settings)
    name = server.partition("/")[0] or "a broker that does not send its name (set redelivery.broker)"
    raise ConfigurationError(
        f"{name if broker == 'auto' else broker} over STOMP is not supported yet; ActiveMQ Classic, "
        "ActiveMQ Artemis and RabbitMQ are"
    )


_SERVERS: tuple[tuple[str, type[StompProfile]], ...] = (
    ("ActiveMQ-Artemis/", StompArtemis), ("ActiveMQ/", StompClassic), ("RabbitMQ/", StompRabbitMQ),
)  # fmt: skip
