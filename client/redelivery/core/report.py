"""Counters of a consumer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Counters", "Held", "Report"]

Held = Literal["redelivered", "deferred", "spared"]
"""Reasons for which a dispatched message is redelivered later."""


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
        """Count a dispatch after which the message is redelivered later."""
        setattr(self, why, getattr(self, why) + 1)

    def add(self, other: Counters) -> None:
        """Add the totals of another engine."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(frozen=True, slots=True)
class Report:
    """Totals of a connection: the outcomes of all dispatches, and of messages that were not dispatched.

    Each dispatch counts once, by its outcome:

    - `accepted`, `discarded`.
    - `redelivered`: it failed and has redeliveries left, here or, while draining, elsewhere.
    - `deferred`: put off by the application, uncharged.
    - `spared`: it failed, and is not charged because the breaker takes the failure for an outage.
    - `released`: given back by the application.
    - `poisoned`: its dead letter is confirmed.
    - `stale`: its result, whatever it is, came after the connection was lost or the consumer closed. Until then it
      counts as `running`, while its consumer is open.
    - `unconfirmed`: it is poison, and the broker has not confirmed its dead letter. The message is still at the
      broker, unacknowledged.
    - `set_aside`: it is poison that cannot be dead-lettered. It stays at the broker, and counts once, however often
      the broker redelivers it.

    Messages that are not dispatched count as follows:

    - `released`: they were here, or arrived, when the consumer had begun to drain; or the consumer released them
      because its breaker had opened or it was paused.
    - `poisoned` or `discarded`: they expired, or were redelivered after they were poisoned.
    - `set_aside`: they expired and cannot be copied, or the broker cannot settle them.
    - `deduplicated`: duplicates, accepted without a dispatch, of messages settled on a lost connection.

    `poisoned` counts dead letters that the broker has confirmed. If the connection is lost before the answer, the
    message is poisoned and counted when it is redelivered. If the broker had already dead-lettered it (a NACK, or a
    COMMIT on ActiveMQ Classic), it is never redelivered and not counted: `poisoned` may be too low, never too high.
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
        """Return the sum of the totals of several engines."""
        sums = {name: sum(getattr(c, name) for c in counts) for name in Counters.__slots__}
        return cls(running=running, unconfirmed=unconfirmed, **sums)
