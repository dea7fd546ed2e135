"""Books of a run: what the producer's sends and the handler's calls must add up to, and where they do not."""

from __future__ import annotations

import itertools
import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from integration.soak import failures

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["DELAYS", "LONGEST", "Books", "Call", "Mark", "Verdict"]

DELAYS = (0.5, 2.0, 5.0)
"""Seconds of the policy: the delay after each failure; after one more it is a dead letter."""
LONGEST = len(DELAYS) + 1
"""Deliveries of a message that always fails."""
EARLY, LATE = 0.05, 1.0
"""Seconds by which a redelivery may be before and behind its time, on a busy machine."""

NOTICED, NOTICED_LATE = 0.2, 2.0
"""Seconds within which the library notices the end of a connection; and on a busy machine, where it reports a stale
result that these books have not found by the first."""


class Call(NamedTuple):
    """One call of the handler; times of the monotonic clock."""

    number: int
    """The delivery count that the library gave."""
    began: float
    ended: float
    failed: bool


class Mark(NamedTuple):
    """A moment of the run: what was done to the cluster."""

    at: float
    what: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of the books, as numbers; `wrong` names those that must be 0 and are not."""

    confirmed: int
    handled: int
    lost: list[int]
    """Confirmed, and neither handled nor dead nor on the broker."""
    left: list[int]
    """Not handled, and still on the broker at the end."""
    twice: list[int]
    """Messages with more than one success, but for those of `stale`."""
    stale: list[int]
    """Those whose handler ran when the connection was lost: its result could not be sent (docs/guarantees.md)."""
    extra_calls: int
    """Calls above those of the policy."""
    dead: int
    dead_missing: list[int]
    dead_wrong: list[int]
    dead_double: int
    """Dead letters of a message that has one already."""
    early: int
    late: int
    latest: float
    """Seconds of the worst delay above its own."""
    breaks: int
    """Redeliveries whose count does not follow the one before."""
    send_errors: int
    longest_gap: float
    """Seconds without a call."""
    back: dict[str, float | None]
    """Seconds from each mark to the next call."""

    def wrong(self, allowed: Iterable[str] = ()) -> list[str]:
        """Return what must not be, each with its number; of what is `allowed`, more than outages explain.

        That is what is in flight when a connection is lost: 20, or one for each 100 messages. A fault that multiplies
        copies makes hundreds (before back-off: 349 calls and 84 dead letters of 2,000 messages).
        """
        found = {
            "lost": len(self.lost),
            "left": len(self.left),
            "twice": len(self.twice),
            "extra calls": self.extra_calls,
            "dead missing": len(self.dead_missing),
            "dead wrong": len(self.dead_wrong),
            "dead double": self.dead_double,
            "early": self.early,
            "breaks": self.breaks,
        }
        accepted = set(allowed)
        assert accepted <= set(found), "each is one that can be wrong"
        few = max(20, self.confirmed // 100)
        return [
            f"{name}: {count}" for name, count in found.items() if count > (few if name in accepted else 0)
        ]


@dataclass
class Books:
    """Notes of one run. Any thread may write."""

    marks: list[Mark] = field(default_factory=list)
    confirmed: set[int] = field(default_factory=set)
    unconfirmed: dict[int, str] = field(default_factory=dict)
    """Error of each send that failed: the message may have arrived."""
    calls: defaultdict[int, list[Call]] = field(default_factory=lambda: defaultdict(list))
    losses: list[float] = field(default_factory=list)
    """When the consumer's connection was lost."""
    stale_results: int = 0
    """Results that the library could not send, by its report."""
    letters: Counter[int] = field(default_factory=Counter)
    found: Counter[int] = field(default_factory=Counter)
    """Messages that are on the queue at the end."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def called(self, number: int, call: Call) -> None:
        """Note a call."""
        with self._lock:
            self.calls[number].append(call)

    def open(self) -> list[int]:
        """Return the confirmed messages that are neither handled nor at the end of their deliveries."""
        with self._lock:
            return [number for number in self.confirmed if not _over(number, self.calls.get(number, ()))]

    def last(self) -> float:
        """Return when the last call began; 0 before the first one."""
        with self._lock:
            return max((calls[-1].began for calls in self.calls.values()), default=0.0)

    def _at_a_loss(self, number: int, within: float) -> bool:
        """Return True if the connection was lost during the first successful call of a message, or so near to it."""
        return self._near_a_loss(next(call for call in self.calls[number] if not call.failed), within)

    def _near_a_loss(self, call: Call, within: float) -> bool:
        return any(call.began - within <= loss <= call.ended + within for loss in self.losses)

    def _uncharged(self, number: int) -> int:
        """Return the number of calls of a message, before its last one, whose results a loss kept from being sent."""
        return sum(self._near_a_loss(call, NOTICED) for call in self.calls[number][:-1])

    def verdict(self) -> Verdict:
        """Compare."""
        succeeded = {number: sum(not call.failed for call in calls) for number, calls in self.calls.items()}
        handled = {number for number, count in succeeded.items() if count}
        again = sorted(number for number, count in succeeded.items() if count > 1)
        stale = [number for number in again if self._at_a_loss(number, NOTICED)]
        late = [each for each in again if each not in stale and self._at_a_loss(each, NOTICED_LATE)]
        stale = sorted(stale + late[: max(0, self.stale_results - len(stale))])
        missing = sorted(self.confirmed - handled - set(self.letters))
        bad = {number for number in self.confirmed if failures(number) >= LONGEST}
        steps = [step for number in sorted(self.calls) for step in _steps(self.calls[number])]
        began = sorted(call.began for calls in self.calls.values() for call in calls)
        gaps = [after - before for before, after in itertools.pairwise(began)]
        return Verdict(
            confirmed=len(self.confirmed),
            handled=len(handled),
            lost=[number for number in missing if number not in self.found],
            left=[number for number in missing if number in self.found],
            twice=[number for number in again if number not in stale],
            stale=stale,
            extra_calls=sum(
                max(0, len(calls) - _expected(number) - max(stale.count(number), self._uncharged(number)))
                for number, calls in self.calls.items()
            ),
            dead=sum(self.letters.values()),
            dead_missing=sorted(bad - set(self.letters) - set(self.found)),
            dead_wrong=sorted(number for number in self.letters if failures(number) < LONGEST),
            dead_double=sum(count - 1 for count in self.letters.values()),
            early=sum(step.late < -EARLY for step in steps),
            late=sum(step.late > LATE for step in steps),
            latest=round(max((step.late for step in steps), default=0.0), 1),
            breaks=sum(not step.follows for step in steps),
            send_errors=len(self.unconfirmed),
            longest_gap=round(max(gaps, default=0.0), 1),
            back={mark.what: _next(began, mark.at) for mark in self.marks},
        )


class Step(NamedTuple):
    """From a failure to the next call of the same message."""

    late: float
    follows: bool


def _expected(number: int) -> int:
    """Return the calls of a message by its policy."""
    return min(failures(number) + 1, LONGEST)


def _over(number: int, calls: Iterable[Call]) -> bool:
    """Return True if nothing more must come of a message."""
    return any(not call.failed or call.number >= LONGEST for call in calls)


def _steps(calls: Iterable[Call]) -> list[Step]:
    ordered = sorted(calls, key=lambda call: call.began)
    return [
        Step(after.began - before.ended - _delay(before.number), after.number == before.number + 1)
        for before, after in itertools.pairwise(ordered)
        if before.failed
    ]


def _delay(count: int) -> float:
    return DELAYS[count - 1] if count <= len(DELAYS) else 0.0


def _next(began: Iterable[float], at: float) -> float | None:
    return next((round(each - at, 1) for each in began if each > at), None)
