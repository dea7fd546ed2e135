"""What a consumer has done so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Counters", "Held", "Report"]

Held = Literal["redelivered", "deferred", "spared"]
"""Why a message that was dispatched is redelivered later."""


class Counters:
    """Running totals of one engine."""

    __slots__ = (
        "accepted", "deduplicated", "deferred", "discarded", "poisoned", "redelivered", "released", "set_aside",
        "spared", "stale",
    )  # fmt: skip

    def __init__(self) -> None:
        self.accepted = self.redelivered = self.poisoned = self.discarded = 0
        self.released = self.stale = self.deduplicated = self.deferred = self.set_aside = self.spared = 0

    def held(self, why: Held) -> None:
        """Count a dispatch whose message is redelivered later."""
        setattr(self, why, getattr(self, why) + 1)

    def add(self, other: Counters) -> None:
        """Add the totals of another engine."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(frozen=True, slots=True)
class Report:
    """What became of all dispatches of a connection, and of what was never dispatched.

    Each dispatch counts once, by its result: `accepted`, `discarded`, `redelivered` (a failure with a try left, here
    or, while draining, elsewhere), `deferred` (put off, uncharged), `spared` (a failure that is not charged, for the
    breaker takes it for an outage), `released` (given back by the application),
    `poisoned`; as `stale`, whatever its result, if that came after the connection was lost, or the consumer
    closed; until then as `running`, while its consumer is open, or as `unconfirmed`, when it is poison and the broker
    has not confirmed its dead letter: the message is still at the broker, unacknowledged. Poison that cannot be
    dead-lettered counts once as `set_aside`, however often the broker sends it: it stays at the broker, too.

    Without a dispatch of their own count: as `released` what waited or came in when the consumer had begun to drain,
    and what it gave back because its breaker had opened or it was paused;
    as `poisoned` or `discarded` what expired, and what comes again after it was poisoned; as `set_aside` what expired
    and cannot be copied, and what the broker cannot settle; as `deduplicated` copies
    that were taken away without running, because their message was done with on a lost connection.

    `poisoned` counts dead letters that the broker has confirmed. Is the connection lost before the answer comes, then
    the message is poisoned and counted when it comes again. Where the broker had done it already (a NACK, or a
    COMMIT on ActiveMQ Classic) it never comes, and counts nowhere: `poisoned` may be too low by that, never too high.
    """

    accepted: int = 0
    redelivered: int = 0
    poisoned: int = 0
    discarded: int = 0
    released: int = 0
    stale: int = 0
    deduplicated: int = 0
    deferred: int = 0
    set_aside: int = 0
    spared: int = 0
    running: int = 0
    unconfirmed: int = 0

    @classmethod
    def of(cls, counts: list[Counters], running: int = 0, unconfirmed: int = 0) -> Report:
        """Sum up the totals of several engines."""
        sums = {name: sum(getattr(c, name) for c in counts) for name in Counters.__slots__}
        return cls(running=running, unconfirmed=unconfirmed, **sums)
