"""Consumers that the broker refuses for now, after it had confirmed them: when each of them is subscribed again.

A node that stops or starts, and a cluster without a majority, refuse consumers for seconds or minutes
(docs/clusters.md). One consumer whose queue is down must not cut the connection of the others again and again: it waits
alone. A connection that serves none of its consumers is given up for the next address.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redelivery.errors import AdapterError
    from redelivery.settings import FailoverSettings

__all__ = ["RefusedConsumers"]

# Seconds before a refused consumer is subscribed again; doubled by each refusal, up to `maxReconnectDelay`.
FIRST = 1.0
# The same where the refusal has cost the connection, as over STOMP: the others lose their messages with it, and
# RabbitMQ 4 drops a message of a quorum queue after twenty times.
FIRST_CUT, LONGEST_CUT = 30.0, 300.0
# Seconds after a refusal in which the end of the connection counts as its consequence.
AT_ONCE = 2.0


@dataclass(slots=True)
class _Refused:
    error: AdapterError
    at: float = 0.0
    times: int = 0
    rounds: int = 0
    """Rounds over all addresses in which it was refused."""
    fresh: bool = False
    """True if its last refusal is counted, and may yet be one within a round."""
    cuts: int = 0
    due: float | None = None
    """None: with the next connection."""


class RefusedConsumers:
    """The consumers of one connection, over all its reconnects, that the broker has refused since their last success.

    Any thread may read; the caller's lock guards the changes.
    """

    def __init__(self, failover: FailoverSettings) -> None:
        self.unserved = False
        """True if the last connection served none of its consumers."""
        # Addresses of this round that served none; True: the next one is to be tried.
        self._tried, self._leaving = 0, False
        self._failover = failover
        self._refused: dict[int, _Refused] = {}
        # Consumers that the broker has confirmed once.
        self._known: set[int] = set()

    @property
    def start_waits(self) -> bool:
        """True if a first subscription waits without limit for a broker that refuses it for now."""
        return self._failover.startup_max_reconnect_attempts == -1

    def refused(
        self, consumer: int, error: AdapterError, now: float, beside: Iterable[int], addresses: int = 1
    ) -> int:
        """Note a refusal; return how many there were in a row, or 0 for one that stays: the consumer ends with it.

        `beside`: all consumers of the connection; `addresses`: number of its addresses.
        At the start only what is known to pass does, if the start may wait; later all that is not known to stay.
        `maxReconnectAttempts` rounds over all addresses end the tries.
        """
        if error.passes is False or not (consumer in self._known or (self.start_waits and error.passes)):
            return 0
        known = self._refused.setdefault(consumer, _Refused(error))
        known.error, known.at, known.times, known.rounds = error, now, known.times + 1, known.rounds + 1
        known.fresh = True
        known.due = now + min(FIRST * 2.0 ** min(known.rounds - 1, 16), self._failover.max_reconnect_delay)
        self.unserved = self.all_of(beside)
        if self.unserved:
            self._serves_none(addresses)
        if not self._leaving and 0 <= self._failover.max_reconnect_attempts < known.rounds:
            self.forget(consumer)
            return 0
        return known.times

    def _serves_none(self, addresses: int) -> None:
        """Decide, once for each address, whether the next one is tried now: not before each was tried in a round.

        Between two rounds the connection stays: it serves the producers.
        """
        self._tried += 1
        self._leaving = self._tried < addresses
        if not self._leaving:
            self._tried = 0
        for known in self._refused.values():
            if self._leaving and known.fresh:
                known.rounds -= 1
            known.fresh = False

    def confirmed(self, consumer: int) -> int:
        """Note that a consumer is confirmed; return how often it was refused in a row before."""
        self._known.add(consumer)
        self.unserved, self._tried, self._leaving = False, 0, False
        known = self._refused.pop(consumer, None)
        return 0 if known is None else known.times

    def forget(self, consumer: int) -> None:
        """Forget a consumer that has ended, or was refused for good."""
        self._known.discard(consumer)
        self._refused.pop(consumer, None)
        self.unserved = self.unserved and bool(self._refused)

    def reason(self, consumer: int) -> AdapterError | None:
        """Return the last refusal of a consumer since its last success; None: it was not refused."""
        known = self._refused.get(consumer)
        return None if known is None else known.error

    def waits(self, consumer: int) -> bool:
        """Return True if a consumer is subscribed later than the others."""
        known = self._refused.get(consumer)
        return known is not None and known.due is not None

    def all_of(self, consumers: Iterable[int]) -> bool:
        """Return True if all these consumers, one at least, are refused, and so the connection serves no consumer."""
        found = list(consumers)
        return bool(found) and all(map(self.waits, found))

    def next_due(self) -> float | None:
        """Return when the next consumer is due; None: no consumer waits."""
        return min(
            (known.due for known in tuple(self._refused.values()) if known.due is not None), default=None
        )

    def due(self, now: float) -> list[int]:
        """Take the consumers that are due: they are about to be subscribed."""
        found = [
            number for number, known in self._refused.items() if known.due is not None and known.due <= now
        ]
        for number in found:
            self._refused[number].due = None
        return found

    def lost(self, now: float, *, alone: bool) -> None:
        """Note that the connection is lost. `alone`: no other consumer has lost anything by it."""
        for known in self._refused.values():
            if known.due is not None and not alone and now - known.at <= AT_ONCE:
                known.cuts += 1
                known.due = now + min(FIRST_CUT * 2.0 ** min(known.cuts - 1, 16), LONGEST_CUT)

    def leaves(self) -> bool:
        """Return True, once, if the next address is to be tried as this one serves no consumer; then all are due."""
        leaving, self._leaving = self._leaving, False
        if leaving:
            for known in self._refused.values():
                known.due = None
        return leaving
