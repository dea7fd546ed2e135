"""What a listener's `on_retry` and `on_dead_letter` are given beside the message."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Death", "Retry"]


@dataclass(frozen=True, slots=True)
class Retry:
    """A delivery failed, and its message is redelivered."""

    delay: float
    """Seconds until the redelivery, as the policy plans it; while a circuit breaker is open, it is later."""
    delivery_count: int
    """Number of the delivery that failed, from 1."""
    maximum: int | None
    """Deliveries that the policy allows; None: no limit."""
    cause: str
    """Type and text of the failure, or the reason that was given."""
    error: BaseException | None
    """What the handler raised; None: it called `fail`."""


@dataclass(frozen=True, slots=True)
class Death:
    """A message was dead-lettered, and the broker has confirmed that."""

    cause: str
    """Type and text of the last failure, or the reason that was given."""
    delivery_count: int
    """Deliveries that the message had; 0: it has expired before the first."""
    error: BaseException | None
    """What the handler raised in this process at last; None: nothing, or it was before a reconnect."""
