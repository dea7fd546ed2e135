"""Grouping of log lines about failures: in a storm a few are written, and then one every ten seconds.

Lines of results form a group if consumer, type of the cause and next step are the same. Of a group the first 10 lines
in 10 s are written; the rest is counted, and one line has their number. For dead letters it is the first 100 lines in
10 s, and the last line names three messages. A broker takes messages back one by one; only the first line about that is
written. This module uses no clock and no log: times are arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from redelivery.core.printable import NO_ID, printable
from redelivery.events import Finished, TakenBack

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LogGroup", "LogGroups"]

# Seconds that a group lasts, and lines of it that are written.
WINDOW = 10.0
LINES = 10
# Lines of a group of dead letters: up to 10 dead letters a second have a line each.
DEAD_LETTERS = 100
# Message ids in the last line of a group of dead letters.
NAMED = 3
# Groups at a time. Past them each line is written: so many groups are not a storm.
MOST = 1000


# Next steps by which a message is lost to its consumer: they have more lines.
DEAD = ("dead-letter copy", "poison acknowledgement", "set aside", "drop", "stop")
WHAT = {
    "failed": "delivery failed",
    "poison": "delivery poisoned",
    "defer": "deferred",
    "discard": "discarded",
}
THEN = {
    "redelivery": "redelivery",
    "delayed copy": "redelivery; until then the broker holds copies",
    "delayed by the broker": "redelivery; until then the broker holds them",
    "dead-letter copy": "poison",
    "poison acknowledgement": "poison",
    "set aside": "poison, and set aside",
    "drop": "accepted and dropped",
    "stop": "its consumer stops",
    "none": "released to the broker",
    "delivered again": "redelivered",
}


class GroupKey(NamedTuple):
    """Values that are the same for all lines of one group."""

    destination: str
    what: str
    """Text of the line for what happened."""
    cause_type: str | None
    next_step: str
    level: int

    @classmethod
    def of(cls, event: Finished | TakenBack, level: int) -> GroupKey:
        """Return the group of a result, or of messages that the broker has taken back."""
        if isinstance(event, TakenBack):
            what = "taken back by the broker after its consumer timeout"
            return cls(event.destination, what, None, "delivered again", level)
        what = "failed, not charged" if event.outcome == "spared" else WHAT.get(event.verdict, event.verdict)
        return cls(event.destination, what, event.cause_type, event.next_step, level)


@dataclass(slots=True)
class LogGroup:
    """Lines of one group, in one window."""

    key: GroupKey
    began: float
    left: int
    """Lines that may still be written."""
    more: int = 0
    """Lines that were not written."""
    last: float = 0.0
    """Time of the last of them."""
    ids: list[str] = field(default_factory=list[str])

    @classmethod
    def of(cls, event: Finished | TakenBack, level: int, now: float) -> LogGroup:
        """Begin the group of an event."""
        key = GroupKey.of(event, level)
        if isinstance(event, TakenBack):
            return cls(key, now, 1)
        return cls(key, now, DEAD_LETTERS if event.next_step in DEAD else LINES)

    def count(self, event: Finished | TakenBack, now: float) -> None:
        """Count a line that is not written."""
        self.more += event.messages if isinstance(event, TakenBack) else 1
        self.last = now
        if isinstance(event, Finished) and self.dead_letters and len(self.ids) < NAMED:
            self.ids.append(event.message_id or NO_ID)

    @property
    def dead_letters(self) -> bool:
        """True if the messages are dead-lettered, dropped or set aside."""
        return self.key.next_step in DEAD

    def text(self, now: float) -> str:
        """Return the line about those that were not written, at the time `now`."""
        key = self.key
        cause = "" if key.cause_type is None else f" ({key.cause_type})"
        ids = f": {printable(', '.join(self.ids))}, …" if self.ids else ""
        seconds = max(1.0, now - self.began)
        what = f"{key.what}{cause}, {THEN[key.next_step]}{ids}"
        # Without it, a group whose failures ended early would read as if they went on.
        ago = f", the last one {now - self.last:.0f} s ago" if now - self.last >= 1 else ""
        return f"{key.destination}: {self.more:,} more in {seconds:.0f} s{ago}: {what}"

    def fields(self, now: float) -> dict[str, Any]:
        """Return the same as fields of the log."""
        key = self.key
        return {
            "event": "grouped", "destination": key.destination, "count": self.more, "seconds": now - self.began,
            "what": key.what, "cause_type": key.cause_type, "next_step": key.next_step, "message_ids": self.ids,
        }  # fmt: skip


class LogGroups:
    """Groups of one connection. Not thread-safe: the caller has a lock."""

    def __init__(self) -> None:
        self._groups: dict[GroupKey, LogGroup] = {}
        self._next = inf

    def admits(self, event: Finished | TakenBack, level: int, now: float) -> bool:
        """Return True if the line of an event is to be written; else count it."""
        key = GroupKey.of(event, level)
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= MOST:
                return True
            group = self._groups[key] = LogGroup.of(event, level, now)
            self._next = min(self._next, now + WINDOW)
        if group.left > 0:
            group.left -= 1
            return True
        group.count(event, now)
        return False

    def due(self, now: float) -> bool:
        """True if the window of a group is over."""
        return now >= self._next

    def ended(self, now: float, *, last: bool = False) -> Iterator[LogGroup]:
        """Yield the groups with unwritten lines whose window is over; `last`: all groups with unwritten lines.

        Their next window begins at once. While the storm goes on, only the line at its end is written, except for dead
        letters.
        """
        for key, group in list(self._groups.items()):
            if now - group.began < WINDOW and not last:
                continue
            if group.more:
                self._groups[key] = LogGroup(key, now, DEAD_LETTERS if group.dead_letters else 0)
                yield group
            else:
                del self._groups[key]
        self._next = min((group.began + WINDOW for group in self._groups.values()), default=inf)
