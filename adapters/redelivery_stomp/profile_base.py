"""Interface of the profiles, one for each broker (`profiles`, `rabbitmq_profile`), and the protocol's own headers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from redelivery.errors import ConfigurationError
from redelivery_stomp.receipts import REQUEST
from redelivery_stomp.windows import SlotWindow

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator, Sequence

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Forward, Subscribe
    from redelivery.core.delivery import BodyKind
    from redelivery.core.outgoing import Outgoing
    from redelivery.settings import QueueArguments, Settings
    from redelivery_stomp.delivery import StompDelivery
    from redelivery_stomp.frames import RawHeaders
    from redelivery_stomp.windows import Window

__all__ = ["PROTOCOL", "FrameLimit", "StompProfile"]

# Headers that a broker sets on a MESSAGE, or a producer sets for the broker only: none is an application property.
PROTOCOL = frozenset({
    "ack", "content-length", "content-type", "correlation-id", "destination", "destination-type", "expires",
    "id", "message-id", "persistent", "priority", "receipt", "redelivered", "reply-to", "selector", "subscription",
    "timestamp", "transaction", "transformation", "type", "amq-msg-type",
})  # fmt: skip


class FrameLimit(NamedTuple):
    """A broker's limit of a SEND. `kind`: headers, bytes in one header, or bytes; `cure`: how to get below it."""

    kind: str
    most: int
    cure: str


class StompProfile(ABC):
    """One broker over STOMP."""

    capabilities: ClassVar[Capabilities]
    handle: ClassVar[bytes]
    """The MESSAGE header that ACK and NACK of STOMP 1.2 name."""
    group_header: ClassVar[str]
    no_refusal: ClassVar[re.Pattern[str]]
    """Texts of this broker's ERRORs without a `receipt-id` that refuse no request. Such an ERROR is about the message
    that it names, or about none. The broker sends only the text."""
    takes_back: ClassVar[bool] = False
    """True if an ERROR about an acknowledgement means that the broker has ended the consumer, and so has the message no
    longer: the message is not the cause. Its text may come before the one of `ended_consumer`, or instead of it."""
    ended_consumer: ClassVar[re.Pattern[str] | None] = None
    """Text of the ERROR with which the broker ends a consumer, as it does over a message that it cannot deliver; the
    groups `address` and `queue` name its queue. None: the broker ends the connection only over what it delivered."""
    closes: ClassVar[bool] = False
    """True if the broker closes the connection after every ERROR."""
    names_subscriptions: ClassVar[bool] = False
    """True if an ERROR about a SUBSCRIBE has no `receipt-id`, and names the subscription in its text."""
    names_requests: ClassVar[bool] = False
    """True if every ERROR about a request has its `receipt-id`. An ERROR without one may be forged; it refuses none."""
    forgeable: ClassVar[bool] = False
    """True if a producer can write a header line with a name of its choice."""
    vague: ClassVar[str] = ""
    """Text of an ERROR that gives no reason; another ERROR with the reason follows."""
    protocol_headers: ClassVar[frozenset[str]] = PROTOCOL
    """Headers that are not application properties: they are hidden, never copied, and `send` raises for them."""
    makes: ClassVar[type[StompDelivery] | None] = None
    """Class of the broker's deliveries; None: `StompDelivery`."""
    non_persistent: ClassVar[bool | None] = False
    """The `persistent` header of a non-persistent message; None: it must have none."""
    poison: ClassVar[bytes] = b""
    """Header lines that make a NACK the broker's poison acknowledgement."""
    release: ClassVar[bytes] = b""
    """Header lines that make a NACK release the message."""
    in_turn: ClassVar[bool] = True
    """True if a SUBSCRIBE waits for the answer to the one before. Artemis strands messages of a SUBSCRIBE that follows
    a refused one. RabbitMQ does not report which of several it refuses."""
    share: ClassVar[int | None] = None
    """Widest window of one subscription to dead letters; a wider one is divided among several."""
    gives_back: ClassVar[bool] = True
    """True if the end of a subscription releases its unsettled messages; False if only the end of the connection
    does."""

    frame_limits: ClassVar[Sequence[FrameLimit]] = ()
    """Default limits of a SEND on this kind of broker, which closes the connection on a larger one."""
    frame_error: ClassVar[re.Pattern[str] | None] = None
    """Text of the ERROR before the broker closes the connection on a SEND that is too large; it may be lost. None: the
    broker sends none."""
    delay_prolongs: ClassVar[bool] = False
    """True if the broker adds the delay of a message to its time to live."""
    declares: ClassVar[bool] = False
    """True if SUBSCRIBE and SEND declare their queue, with `redelivery.queueArguments`."""
    queue_mark: ClassVar[bytes] = b""
    """Beginning of a header line that only the deliveries of some queues have; empty: there is none."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.client_id = None if settings is None else settings.client_id
        self.queue_arguments: QueueArguments = () if settings is None else settings.queue_arguments
        self.dead_letter_arguments: QueueArguments = (
            () if settings is None else settings.dead_letter_arguments
        )
        for option, given in (
            ("redelivery.queueArguments", self.queue_arguments),
            ("redelivery.deadLetterArguments", self.dead_letter_arguments),
        ):
            if given and not self.declares:
                raise ConfigurationError(
                    f"{option} is for RabbitMQ only: {self.capabilities.broker} has no queue arguments over STOMP; "
                    "remove it",
                    option=option,
                )

    def able(self, version: str) -> Capabilities:
        """Return the capabilities of a broker of this version; empty: unknown."""
        return replace(self.capabilities, version=version)

    def for_consumer(self, command: Subscribe, able: Capabilities) -> Capabilities | None:
        """Return what the broker can do with the queue of a consumer, if that is not what it is `able` to; or None."""
        del command, able
        return None

    def for_marked(self, command: Subscribe, able: Capabilities) -> Capabilities | None:
        """Return what the broker can do with a queue whose deliveries have the line `queue_mark`; None: as usual."""
        del command, able
        return None

    def problem(self, destination: str) -> str | None:
        """Return why a destination can be neither sent to nor consumed from on this broker, or None."""
        del destination
        return None

    def cannot_keep(self, destination: str) -> str | None:
        """Return why a confirmed dead letter may be lost on its way to a destination, or None."""
        return self.problem(destination)

    def cannot_send(self, message: Outgoing) -> str | None:
        """Return why a message cannot be sent, or None."""
        return self.problem(message.destination)

    def names(self, text: str, address: str, request: str = REQUEST) -> bool:
        """True if the text of an ERROR without a `receipt-id` names this `destination` header, or this subscription.

        `request`: kind of the receipt of the frame with that header (`receipts`).
        """
        del text, address, request
        return False

    @abstractmethod
    def address(self, destination: str) -> str:
        """Return the `destination` header for a qualified destination."""

    def target(self, message: Outgoing) -> str:
        """Return the `destination` header of a SEND."""
        return self.address(message.destination)

    def delay_headers(self, message: Outgoing) -> Iterator[tuple[str, object]]:
        """Yield the headers that delay a message at the broker."""
        yield "AMQ_SCHEDULED_DELAY", None if message.delay is None else ceil(message.delay * 1000)

    def pattern(self, destination: str) -> str:
        """Return the `destination` header of SUBSCRIBE. `*` and `>` in the destination are Classic's wildcards."""
        return self.address(destination)

    def standing(self, destination: str) -> str:
        """Return the `destination` header of SUBSCRIBE for a queue that the broker must not create, if it has one."""
        return self.pattern(destination)

    def reply_address(self, destination: str) -> str:
        """Return the `reply-to` header for a qualified destination, from which a JMS client reads its kind."""
        return self.address(destination)

    @abstractmethod
    def qualified(self, address: str, kind: str) -> str:
        """Return the qualified form of a `destination` header; `kind`: used if the address has none."""

    def names_one_queue(self, destination: str) -> bool:
        """Return True if all messages of a subscription are that queue's, whatever their `destination` header says."""
        del destination
        return False

    @abstractmethod
    def identity(self, message_id: str) -> str:
        """Return the part of `message-id` that is the same in all deliveries; empty if there is none."""

    def settles(self, message_id: str) -> bool:
        """True if the broker can acknowledge a message with this id, which came to it over AMQP."""
        del message_id
        return True

    @abstractmethod
    def body_kind(self, head: bytes, body: bytes, headers: RawHeaders) -> BodyKind:
        """Return the body's type for a JMS client, or that it did not arrive whole."""

    def grows(self, command: Subscribe) -> bool:
        """True if further subscriptions can widen a consumer's window while messages are parked.

        On a topic each would receive every message once more. There a wide window takes no message from any other
        consumer.
        """
        queue = command.destination.startswith("queue://")
        return command.room > 0 and queue and not (command.browse or command.existing)

    def sleeps(self, command: Subscribe) -> bool:
        """True if a new subscription may get none of the stored messages until the broker looks at its queues again."""
        del command
        return False

    def first_window(self, command: Subscribe) -> int:
        """Return the number of messages that a consumer's first subscription may leave unsettled."""
        return command.window if self.grows(command) else command.window + command.room

    def subscriptions(self, command: Subscribe) -> int:
        """Return the number of subscriptions that a consumer starts with."""
        if self.share is None or not command.existing or command.browse:
            return 1
        return max(1, ceil(command.window / self.share))

    def window(self, command: Subscribe) -> Window | None:
        """Return the window that begins further subscriptions of a consumer; None if it never needs any."""
        return SlotWindow(command, self.subscriptions(command)) if self.grows(command) else None

    @abstractmethod
    def subscribe_headers(self, command: Subscribe) -> Iterator[tuple[str, object]]:
        """Yield the headers of SUBSCRIBE that are this broker's own."""

    @abstractmethod
    def send_headers(self, message: Outgoing) -> Iterator[tuple[str, object]]:
        """Yield the headers of SEND that are this broker's own, also those of the body's type."""

    @abstractmethod
    def copy_headers(self, command: Forward) -> Iterator[tuple[str, object]]:
        """Yield the headers that this broker's own tools expect on a dead letter."""

    def redrive_headers(self, command: Forward) -> Iterator[tuple[str, object]]:
        """Yield the headers that are this broker's own on a dead letter that is redriven."""
        del command
        yield from ()

    def origin(self, headers: RawHeaders) -> str | None:
        """Return the qualified origin of a dead letter, if this broker has written it."""
        del headers
        return None

    def moved(self, headers: RawHeaders) -> bool:
        """True if this broker's headers show that it dead-lettered a message itself."""
        del headers
        return False

    def died_of(self, headers: RawHeaders) -> str | None:
        """Return the cause of a dead letter, if this broker has written it."""
        del headers
        return None
