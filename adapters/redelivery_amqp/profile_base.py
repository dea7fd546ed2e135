"""Base class of the brokers' profiles: what the adapter needs to know of a broker over AMQP 1.0."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Forward, Subscribe
    from redelivery.settings import Settings
    from redelivery_amqp.queue_facts import QueueFacts

__all__ = ["AmqpProfile"]

KINDS = ("queue", "topic", "temp-queue", "temp-topic")


class AmqpProfile(ABC):
    """Profile of one broker over AMQP 1.0."""

    capabilities: Capabilities
    capability: ClassVar[bool] = False
    """True if a terminus needs the capability `queue` or `topic`."""
    rest: ClassVar[str] = "#"
    """Wildcard for any number of words at the end, Classic's `>`."""
    durable_terminus: ClassVar[bool] = False
    """True if the broker creates a durable queue only for a durable terminus."""
    tells_count: ClassVar[bool] = True
    """True if the broker maintains the header's `delivery-count`."""
    accepts_shown: ClassVar[bool] = False
    """True if browsed messages are accepted: they stay on the queue, and a released one would be shown again."""
    undelivered: ClassVar[str | None] = None
    """Condition with which the broker ends a connection or session over a message that it cannot deliver; None: a
    condition is about what it delivered, or what was settled."""
    deliver_elsewhere: ClassVar[str] = ""
    """The cure for such a message, as the end of a sentence."""
    sessions_in_turn: ClassVar[bool] = False
    """True if a session must have ended before another one begins: the broker still answers on its channel."""
    delay: ClassVar[str | None] = None
    """Annotation that delays a message, in milliseconds; None: the broker has no delay."""
    delay_is_time: ClassVar[bool] = False
    """True if the value of `delay` is a time since the Unix epoch; else it counts from the send."""

    delay_prolongs: ClassVar[bool] = False
    """True if the broker adds the delay of a message to its time to live."""

    queue_arguments: Mapping[str, object] = MappingProxyType({})
    dead_letter_arguments: Mapping[str, object] = MappingProxyType({})
    """Arguments of queue declarations."""
    holds_back: bool = False
    """True if the broker holds parked messages back itself, and keeps notes in their annotations."""
    checks_user: ClassVar[bool] = False
    """True if the broker refuses a message whose `user-id` is not the user of the connection."""
    declares: ClassVar[bool] = False
    """True if a queue must be declared over the management node: an attach does not create it."""
    reports_queues: ClassVar[bool] = False
    """True if an attach makes a queue, and a management node reports the attributes of one that is there."""

    def __init__(self, settings: Settings | None = None) -> None:
        name = None if settings is None else settings.user_name
        self.user = None if name is None else name.encode()
        given = (
            []
            if settings is None
            else [
                ("redelivery.queueArguments", settings.queue_arguments),
                ("redelivery.deadLetterArguments", settings.dead_letter_arguments),
            ]
        )
        for option, arguments in given:
            if arguments and not self.declares:
                raise ConfigurationError(
                    f"{option}: over AMQP only RabbitMQ 4.0 and later takes queue arguments; remove the option for "
                    f"this broker ({self.capabilities.broker})",
                    option=option,
                )

    def lasting(self, arguments: dict[str, Any]) -> Mapping[str, object]:
        """Return the arguments of a dead-letter queue, in which no look may count against a limit."""
        return arguments

    def created(self, at: int | None) -> int | None:
        """Return the time of a message's creation in milliseconds, from the value of its `creation-time`."""
        return at

    @abstractmethod
    def address(self, destination: str) -> str:
        """Return the terminus address for a qualified destination."""

    def pattern(self, destination: str) -> str:
        """Return the address to receive from, where `*` and `>` are Classic's wildcards."""
        address = self.address(destination)
        many = not destination.startswith("native://") and (address == ">" or address.endswith((".>", "/>")))
        return f"{address[:-1]}{self.rest}" if many else address

    def standing(self, destination: str) -> str:
        """Return the address of a queue that must exist: one that does not create it, if the broker has such a form."""
        return self.pattern(destination)

    def qualified(self, address: str, kind: str) -> str:
        """Return a qualified destination for an address; `kind` is that of its subscription, or `queue`."""
        for known in KINDS:
            if address.startswith(f"{known}://"):
                return address
        return f"{kind}://{address}"

    def consumer_timeout(self, hold: float | None) -> float | None:  # noqa: ARG002 - only one broker can be asked
        """Return the consumer timeout to ask for, in seconds; None: none.

        `hold`: longest time in seconds that the consumer's policy keeps a message unsettled; None: no limit.
        """
        return None

    def for_queue(self, facts: QueueFacts, command: Subscribe) -> Capabilities | None:  # noqa: ARG002 - as above
        """Return the capabilities of a queue; None: those of the broker."""
        return None

    def for_delivered(self, annotations: Mapping[str, Any]) -> Capabilities | None:  # noqa: ARG002 - as above
        """Return what the broker can do with a queue that has delivered a message with these; None: as usual."""
        return None

    def sent_to(self, annotations: Mapping[str, Any]) -> str | None:  # noqa: ARG002 - only one broker reports it
        """Return the address that the broker has routed a message by, from its annotations; None: not known."""
        return None

    def redelivered(self, first_acquirer: bool | None) -> bool:  # noqa: ARG002 - only one broker sets it
        """True if the header's `first-acquirer` means that the message was delivered before."""
        return False

    def origin(self, annotations: Mapping[str, Any], headers: Mapping[str, Any]) -> str | None:  # noqa: ARG002
        """Return the qualified origin that this broker has written on a dead letter; None: none, empty: ambiguous."""
        return None

    def died_of(self, annotations: Mapping[str, Any], headers: Mapping[str, Any]) -> str | None:
        """Return the cause that a broker has written on a dead letter, or None."""
        if "x-opt-ACTUAL-EXPIRY" in annotations:  # of Artemis
            return "expired"
        cause = headers.get("dlqDeliveryFailureCause")  # of ActiveMQ Classic
        return ("expired" if "Message Expired" in cause else cause) if isinstance(cause, str) else None

    def fans_out(self, destination: str) -> bool:  # noqa: ARG002 - only one broker loses dead letters so
        """True if this broker keeps fewer dead letters than consumers of a destination that reject one message."""
        return False

    def moved(self, headers: Mapping[str, Any]) -> bool:  # noqa: ARG002 - only one broker marks it
        """True if this broker's marks say that it dead-lettered the message itself."""
        return False

    def problem(self, destination: str) -> str | None:  # noqa: ARG002 - most have all kinds
        """Return why this broker does not have such a destination, or None."""
        return None

    def takes_annotation(self, name: str, encoded: bytes) -> bool:  # noqa: ARG002 - most take all
        """True if a message with this annotation, whose encoded value is given, can be sent, and be received again."""
        return True

    def copy_properties(self, command: Forward) -> Iterator[tuple[str, str]]:  # noqa: ARG002 - some have none
        """Yield the application properties that this broker's own tools expect on a dead letter."""
        yield from ()

    def copy_annotations(self, command: Forward) -> Iterator[tuple[str, str]]:  # noqa: ARG002 - some have none
        """Yield the message annotations that this broker's own tools expect on a dead letter."""
        yield from ()
