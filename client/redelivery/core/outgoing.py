"""A message on its way to a broker."""

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
    """A message to be sent: a producer's, or the dead-letter copy of a poisoned one.

    `destination` is qualified (`queue://orders`); `expires_at` is in seconds since the Unix epoch; `delay` in
    seconds. `private`: as `Subscribe.private`. `body_kind` says how a JMS consumer should see the body.
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
        """Check the kind: each protocol addresses a message by it. Raises ConfigurationError."""
        if self.destination.partition("://")[0] not in KINDS:
            raise no_such_kind(self.destination)
