"""Grouping of log lines on failures: in a storm a few are written, and then one every ten seconds.

Lines on results are alike if consumer, type of the cause and what follows are. Of such lines the first 10 in 10 s are
written; the rest are counted, and one line says how many there were. Dead letters are 100 in 10 s, and their line
names three of them. A broker takes messages back one by one: the first line on that is written. No clock and no log
are used here: times are arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from redelivery.events import Finished, TakenBack

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LogGroup", "LogGroups"]

# Seconds that a group lasts, and lines that are written in it: operations, logging.
WINDOW = 10.0
LINES = 10
# Of dead letters: below 10 a second each is written.
DEAD_LETTERS = 100
# Message ids that the line on a group of dead letters names.
NAMED = 3
# Groups at a time; what is in no group is written. More have other reasons than a storm.
MOST = 1000


# What follows from a result of which every line counts.
DEAD = ("dead-letter copy", "poison acknowledgement", "set aside", "drop", "stop")
WHAT = {
    "failed": "delivery failed",
    "poison": "delivery poisoned",
    "defer": "deferred",
    "discard": "discarded",
}
THEN = {
    "redelivery": "redelivery",
    "delayed copy": "redelivery, for which the broker holds a copy",
    "delayed by the broker": "redelivery; until then the broker holds them",
    "dead-letter copy": "poison",
    "poison acknowledgement": "poison",
    "set aside": "poison, and set aside",
    "drop": "accepted and dropped",
    "stop": "its consumer stops",
    "none": "given back to the broker",
    "delivered again": "delivered again",
}


class GroupKey(NamedTuple):
    """What lines of one group have in common."""

    destination: str
    what: str
    """What happened, as the line says it."""
    cause_type: str | None
    next_step: str
    level: int

    @classmethod
    def of(cls, event: Finished | TakenBack, level: int) -> GroupKey:
        """Return the group of a result, or of what was taken back."""
        if isinstance(event, TakenBack):
            what = "taken back by the broker after its consumer timeout"
            return cls(event.destination, what, None, "delivered again", level)
        what = (
            "failed, and not charged" if event.outcome == "spared" else WHAT.get(event.verdict, event.verdict)
        )
        return cls(event.destination, what, event.cause_type, event.next_step, level)


@dataclass(slots=True)
class LogGroup:
    """Lines that are alike, in one window."""

    key: GroupKey
    began: float
    left: int
    """Lines that may still be written."""
    more: int = 0
    """Lines that were not written."""
    last: float = 0.0
    """When the last of them was."""
    ids: list[str] = field(default_factory=list[str])

    @classmethod
    def of(cls, event: Finished | TakenBack, level: int, now: float) -> LogGroup:
        """Begin the group of an event."""
        key = GroupKey.of(event, level)
        if isinstance(event, TakenBack):
            return cls(key, now, 1)
        return cls(key, now, DEAD_LETTERS if event.next_step in DEAD else LINES)

    def count(self, event: Finished | TakenBack, now: float) -> None:
        """Count what is not written."""
        self.more += event.messages if isinstance(event, TakenBack) else 1
        self.last = now
        if isinstance(event, Finished) and self.dead_letters and len(self.ids) < NAMED:
            self.ids.append(event.message_id or "None")

    @property
    def dead_letters(self) -> bool:
        """Whether the messages are dead-lettered."""
        return self.key.next_step in DEAD

    def text(self, now: float) -> str:
        """Return the line on what was not written, at the time `now`."""
        key = self.key
        cause = "" if key.cause_type is None else f" ({key.cause_type})"
        ids = f": {', '.join(self.ids)}, …" if self.ids else ""
        seconds = max(1.0, now - self.began)
        what = f"{key.what}{cause}, {THEN[key.next_step]}{ids}"
        # Else a group that ended early reads as if its failures went on.
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
    """The groups of one connection. Not safe for threads: its caller has a lock."""

    def __init__(self) -> None:
        self._groups: dict[GroupKey, LogGroup] = {}
        self._next = inf

    def admits(self, event: Finished | TakenBack, level: int, now: float) -> bool:
        """Return whether the line on an event is to be written; else it is counted."""
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
        """Whether the window of a group is over."""
        return now >= self._next

    def ended(self, now: float, *, last: bool = False) -> Iterator[LogGroup]:
        """Take the groups whose window is over (`last`: all), and of which lines were not written.

        In a storm that goes on, no other line is written in the next window.
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
