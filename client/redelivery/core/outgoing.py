"""Outgoing messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from redelivery.core.destination import KINDS, no_such_kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.core.delivery import BodyKind

__all__ = ["Outgoing"]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to be sent: a producer's, or a copy of a poison message.

    Args:
        destination: Destination, qualified (`queue://orders`).
        body: Body as bytes.
        body_kind: Type of the body for a JMS consumer.
        headers: Application properties.
        content_type: MIME type; None: not set.
        correlation_id: Correlation id; None: not set.
        reply_to: Destination for an answer; None: not set.
        message_type: JMSType (AMQP subject); None: not set.
        priority: 0 to 9. Default 4 (JMS).
        group: Message group; None: no group.
        expires_at: Seconds since the Unix epoch; None: never.
        delay: Seconds for which the broker delays the message; None: no delay.
        persistent: True if the broker keeps the message over a restart.
        private: As `Subscribe.private`.

    Raises:
        ConfigurationError: The destination has no kind that can be addressed.
    """

    destination: str
    body: bytes
    body_kind: BodyKind = "bytes"
    headers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    content_type: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    message_type: str | None = None
    priority: int = 4
    group: str | None = None
    expires_at: float | None = None
    delay: float | None = None
    persistent: bool = True
    private: bool = False

    def __post_init__(self) -> None:
        """Check the kind of the destination: each protocol addresses a message by it."""
        if self.destination.partition("://")[0] not in KINDS:
            raise no_such_kind(self.destination)
