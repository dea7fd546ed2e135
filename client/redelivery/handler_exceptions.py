"""Exceptions that a handler raises to decide what becomes of its message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.option_values import seconds
from redelivery.errors import RedeliveryError

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["Defer", "Discard", "Poison"]


class Poison(RedeliveryError):
    """Raise it in a handler to dead-letter the message now, even if its policy has redeliveries left.

    Args:
        reason: Cause, which the dead letter carries.
    """

    def __init__(self, reason: str = "poisoned by the handler") -> None:
        super().__init__(reason)


class Discard(RedeliveryError):
    """Raise it in a handler to acknowledge the message and drop it. It counts as discarded.

    Args:
        reason: Cause, which the log and the events carry.
    """

    def __init__(self, reason: str = "discarded by the handler") -> None:
        super().__init__(reason)


class Defer(RedeliveryError):
    """Raise it in a handler to redeliver the message after `delay`, without charging a redelivery.

    After `redelivery.maximumDeferrals` deferrals (default 100) each further one counts as a failure.

    A broker may limit how long a consumer keeps a message (RabbitMQ: 30 minutes). There a longer delay is
    shortened to 80 % of that limit: the message is redelivered early. Several deferrals that exceed the limit
    together are not shortened. Instead, the message is released in between, and the broker redelivers it,
    perhaps to a consumer of another program.

    Args:
        delay: Seconds, or a timedelta, until the redelivery.
        reason: Cause, which the log and the events carry.

    Raises:
        ConfigurationError: `delay` is not a duration.
    """

    def __init__(self, delay: float | timedelta, reason: str = "deferred by the handler") -> None:
        super().__init__(reason)
        self.delay = seconds(delay, "Defer: delay")
