"""What the adapter needs to know of a broker over AMQP 1.0: a profile, of which each broker has its own."""

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
    """One broker over AMQP 1.0."""

    capabilities: Capabilities
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

    queue_arguments: Mapping[str, object] = MappingProxyType({})
    dead_letter_arguments: Mapping[str, object] = MappingProxyType({})
    """What a queue is declared with."""
    holds_back: bool = False
    """Whether the broker holds messages back itself, and keeps notes in their annotations."""
    declares: ClassVar[bool] = False
    """Whether a queue must be declared over the management node: attaching to it does not create it."""

    def __init__(self, settings: Settings | None = None) -> None:
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
                    f"{option}: over AMQP only RabbitMQ from 4.0 on takes arguments of queues; leave it out for this "
                    f"broker ({self.capabilities.broker})",
                    option=option,
                )

    def created(self, at: int | None) -> int | None:
        """Return when a message was made, in milliseconds, of what its `creation-time` has."""
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
        """Return the address of a queue that is not to be made, where there is such an address."""
        return self.pattern(destination)

    def qualified(self, address: str, kind: str) -> str:
        """Return a qualified destination for an address; `kind` is that of its subscription, or `queue`."""
        for known in KINDS:
            if address.startswith(f"{known}://"):
                return address
        return f"{kind}://{address}"

    def consumer_timeout(self, hold: float | None) -> float | None:  # noqa: ARG002 - only one broker can be asked
        """Return the seconds that a consumer asks to be let hold a message; `hold`: as long as its policy needs."""
        return None

    def for_queue(self, facts: QueueFacts, command: Subscribe) -> Capabilities | None:  # noqa: ARG002 - as above
        """Return what the broker can do with a queue, or None: the same as with all others."""
        return None

    def sent_to(self, annotations: Mapping[str, Any]) -> str | None:  # noqa: ARG002 - only one broker tells
        """Return the address that the broker has routed a message by, where it says so in annotations."""
        return None

    def redelivered(self, first_acquirer: bool | None) -> bool:  # noqa: ARG002 - only one broker tells by it
        """Whether the header's `first-acquirer` says that the message was delivered before."""
        return False

    def origin(self, annotations: Mapping[str, Any], headers: Mapping[str, Any]) -> str | None:  # noqa: ARG002
        """Return the qualified origin of a dead letter, if this broker has written it; empty if that is in doubt."""
        return None

    def died_of(self, annotations: Mapping[str, Any], headers: Mapping[str, Any]) -> str | None:
        """Return why a message is a dead letter, if a broker has written that."""
        if "x-opt-ACTUAL-EXPIRY" in annotations:  # of Artemis
            return "expired"
        cause = headers.get("dlqDeliveryFailureCause")  # of ActiveMQ Classic
        return ("expired" if "Message Expired" in cause else cause) if isinstance(cause, str) else None

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
