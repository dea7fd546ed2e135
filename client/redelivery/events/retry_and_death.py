"""Second arguments of a listener's hooks `on_retry` and `on_dead_letter`."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Death", "Retry"]


@dataclass(frozen=True, slots=True)
class Retry:
    """Failed delivery whose message is redelivered."""

    delay: float
    """Seconds until the redelivery by the policy; an open circuit breaker makes it later."""
    delivery_count: int
    """Delivery count of the failed delivery, from 1."""
    maximum: int | None
    """Deliveries that the policy allows; None: no limit."""
    cause: str
    """Type and text of the failure, or the reason that was given."""
    error: BaseException | None
    """Exception of the handler; None: the handler called `fail`."""


@dataclass(frozen=True, slots=True)
class Death:
    """Dead letter that the broker has confirmed."""

    cause: str
    """Type and text of the last failure, or the reason that was given."""
    delivery_count: int
    """Number of deliveries of the message; 0: it expired before the first one."""
    error: BaseException | None
    """Last exception of a handler in this process; None: there was none, or it was before a reconnect."""
