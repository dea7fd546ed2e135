"""How a handler steers what becomes of its message: by the exception it raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.option_values import seconds
from redelivery.errors import RedeliveryError

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["Defer", "Discard", "Poison"]


class Poison(RedeliveryError):
    """Raise it in a handler: the message is dead-lettered now, whatever redeliveries its policy has left."""

    def __init__(self, reason: str = "poisoned by the handler") -> None:
        super().__init__(reason)


class Discard(RedeliveryError):
    """Raise it in a handler: the message is accepted and dropped, and counted as discarded."""

    def __init__(self, reason: str = "discarded by the handler") -> None:
        super().__init__(reason)


class Defer(RedeliveryError):
    """Raise it in a handler: the message comes again after `delay`, and is not charged a redelivery.

    After `redelivery.maximumDeferrals` deferrals (100 by default) each further one counts as a failure.

    A broker may bound how long a consumer holds a message (RabbitMQ: 30 minutes). There a longer delay is shortened to
    80 % of that: the message comes early. Several that together would be too long are not shortened, but in between the
    message goes back to the broker, and comes again: to another consumer perhaps, which may be another program.
    """

    def __init__(self, delay: float | timedelta, reason: str = "deferred by the handler") -> None:
        super().__init__(reason)
        self.delay = seconds(delay, "Defer: delay")
