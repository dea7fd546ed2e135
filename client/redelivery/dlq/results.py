"""Results of a summary, a redrive, a purge, and the resending of an export."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from redelivery.dlq.dead_letter import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from redelivery.dlq.dead_letter import DeadLetter

__all__ = [
    "CauseGroup",
    "CountedLetters",
    "LineProblem",
    "Purged",
    "Redriven",
    "Resent",
    "contents_of",
    "summarise",
    "together",
]

# Different causes, or origins, that are counted apart: producers can write more of them than fit into memory.
KINDS = 1000
OTHERS = "others"


@dataclass(frozen=True, slots=True)
class CauseGroup:
    """Number of dead letters of one destination, one kind of cause and one day (UTC), on one dead-letter queue."""

    original_destination: str
    cause: str
    day: str
    count: int
    queue: str = ""
    """Dead-letter queue, qualified."""


@dataclass(frozen=True, slots=True)
class Redriven:
    """Counts of a redrive, or of its dry run. Dead letters that stay are still on the dead-letter queue."""

    redriven: int = 0
    """Dead letters redriven: the broker has confirmed their copies."""
    destinations: Mapping[str, int] = field(default_factory=dict[str, int])
    """Numbers by destination, the quarantine included; the most first."""
    quarantined: int = 0
    """Those of `redriven` that went to the quarantine."""
    skipped: int = 0
    """Stay: they did not match the filters. Messages that a selector keeps at the broker are not counted."""
    again: int = 0
    """Stay: redriven by this run, and dead-lettered again already."""
    without_origin: int = 0
    """Stay: their origin is not known, or only their own property names it, which cannot be trusted."""
    overruled: int = 0
    """Those of `redriven` whose property named another origin than the broker's record, which decides."""
    partial: int = 0
    """Stay: their bodies do not arrive whole over this protocol, or the messages could not be decoded."""
    topics: int = 0
    """Stay: they came from a topic, where every subscriber would get them."""
    incomplete: str | None = None
    """Reason why more of them may match; None: all were read."""
    dry_run: bool = False

    @property
    def matched(self) -> int:
        """Number of dead letters read that match the filters."""
        return self.redriven + self.again + self.without_origin + self.partial + self.topics

    @property
    def complete(self) -> bool:
        """True if everything that matches was redriven."""
        return not (self.without_origin or self.partial or self.topics or self.incomplete)


@dataclass(frozen=True, slots=True)
class Purged:
    """Counts of a purge, or of its dry run."""

    purged: int = 0
    skipped: int = 0
    """Stay: they did not match the filters."""
    incomplete: str | None = None
    """Reason why more of them may match; None: all were read."""
    dry_run: bool = False

    @property
    def complete(self) -> bool:
        """True if everything that matches was deleted."""
        return self.incomplete is None


@dataclass(frozen=True, slots=True)
class LineProblem:
    """Reason why a line of an export was not sent."""

    line: int
    """Number of the line, from 1."""
    text: str


@dataclass(frozen=True, slots=True)
class Resent:
    """Counts of the lines of an export that were sent again, or of the dry run."""

    resent: int = 0
    """Lines sent: the broker has confirmed their messages."""
    destinations: Mapping[str, int] = field(default_factory=dict[str, int])
    """Numbers by destination; the most first."""
    before: int = 0
    """Lines that an earlier run had sent, which was interrupted, or left some."""
    skipped: int = 0
    """Lines that did not match the filters."""
    refused: int = 0
    """Lines that cannot be sent, or that the broker refused."""
    problems: Sequence[LineProblem] = ()
    """Reasons of the first 100 of them."""
    dry_run: bool = False

    @property
    def matched(self) -> int:
        """Number of lines that match the filters, and of those that cannot be read."""
        return self.resent + self.before + self.refused

    @property
    def complete(self) -> bool:
        """True if every line that matches was sent, by this run or an earlier one."""
        return not self.refused


@dataclass(frozen=True, slots=True)
class CountedLetters:
    """Numbers of dead letters by kind of cause, and by origin; the most first, 1,000 different ones at most."""

    count: int = 0
    causes: Mapping[str, int] = field(default_factory=dict[str, int])
    origins: Mapping[str, int] = field(default_factory=dict[str, int])


def together(*results: Redriven | Purged) -> Redriven | Purged:
    """Return the result of several queues: all of a redrive, or all of a purge."""
    counts: Counter[str] = Counter()
    places: Counter[str] = Counter()
    for one in results:
        numbers = {each.name: getattr(one, each.name) for each in fields(one)}
        counts.update({name: value for name, value in numbers.items() if type(value) is int})
        places.update(numbers.get("destinations", {}))
    reasons = [one.incomplete for one in results if one.incomplete is not None]
    own: dict[str, Any] = {**counts, "incomplete": "; ".join(dict.fromkeys(reasons)) or None}
    if isinstance(results[0], Redriven):
        own["destinations"] = dict(places.most_common())
    return replace(results[0], **own)


def contents_of(letters: Iterable[DeadLetter]) -> CountedLetters:
    """Count dead letters by kind of cause, and by origin; past 1,000 different ones as `others`."""
    causes, origins, count = Counter[str](), Counter[str](), 0
    for count, one in enumerate(letters, 1):  # noqa: B007 - the last one counts
        for found, name in ((causes, one.cause_kind), (origins, one.original_destination or UNKNOWN)):
            found[name if name in found or len(found) < KINDS else OTHERS] += 1
    return CountedLetters(count, dict(causes.most_common()), dict(origins.most_common()))


def summarise(letters: Iterable[DeadLetter]) -> list[CauseGroup]:
    """Count dead letters by original destination, kind of cause, day and dead-letter queue; the most first."""
    counts = Counter(
        (one.original_destination or UNKNOWN, one.cause_kind, one.day, one.queue) for one in letters
    )
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [CauseGroup(origin, cause, day, count, queue) for (origin, cause, day, queue), count in ordered]
