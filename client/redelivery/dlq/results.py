"""What the tools report."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from redelivery.dlq.dead_letter import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from redelivery.dlq.dead_letter import DeadLetter

__all__ = ["CauseGroup", "CountedLetters", "Purged", "Redriven", "contents_of", "summarise"]

# Different causes, or origins, that are counted apart: anybody can write more of them than fit into memory.
KINDS = 1000
OTHERS = "others"


@dataclass(frozen=True, slots=True)
class CauseGroup:
    """So many dead letters of one destination, one kind of cause and one day (UTC)."""

    original_destination: str
    cause: str
    day: str
    count: int


@dataclass(frozen=True, slots=True)
class Redriven:
    """What a redrive has done, or, as a dry run, would do. What was left is still on the dead-letter queue."""

    redriven: int = 0
    """Dead letters that went back: their copies are confirmed."""
    destinations: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many went where; the quarantine among them."""
    quarantined: int = 0
    """Of them, those that went to the quarantine."""
    skipped: int = 0
    """Left: no filter meant them. What the broker kept back by a selector is not counted."""
    again: int = 0
    """Left: redriven by this run, and dead again already."""
    without_origin: int = 0
    """Left: nobody knows where they came from, or only a message that no one can believe."""
    overruled: int = 0
    """Of those that went back, those whose property named another origin than the broker's record, which decides."""
    partial: int = 0
    """Left: their bodies do not arrive whole over this protocol, or are all the bytes of what could not be read."""
    topics: int = 0
    """Left: they came from a topic, where every subscriber would get them."""
    incomplete: str | None = None
    """Why there may be more that are meant, or None."""
    dry_run: bool = False

    @property
    def matched(self) -> int:
        """How many the filters meant of those that were there."""
        return self.redriven + self.again + self.without_origin + self.partial + self.topics

    @property
    def complete(self) -> bool:
        """Whether everything that was meant went back."""
        return not (self.without_origin or self.partial or self.topics or self.incomplete)


@dataclass(frozen=True, slots=True)
class Purged:
    """What a purge has dropped, or, as a dry run, would drop."""

    purged: int = 0
    skipped: int = 0
    """Left: no filter meant them."""
    incomplete: str | None = None
    """Why there may be more that are meant, or None."""
    dry_run: bool = False

    @property
    def complete(self) -> bool:
        """Whether everything that was meant is gone."""
        return self.incomplete is None


@dataclass(frozen=True, slots=True)
class CountedLetters:
    """What is on a dead-letter queue: by kind of cause, and by origin; the most first, 1,000 different ones at most."""

    count: int = 0
    causes: Mapping[str, int] = field(default_factory=dict[str, int])
    origins: Mapping[str, int] = field(default_factory=dict[str, int])


def contents_of(letters: Iterable[DeadLetter]) -> CountedLetters:
    """Count dead letters by kind of cause, and by origin; past 1,000 different ones as `others`."""
    causes, origins, count = Counter[str](), Counter[str](), 0
    for count, one in enumerate(letters, 1):  # noqa: B007 - the last one counts
        for found, name in ((causes, one.cause_kind), (origins, one.original_destination or UNKNOWN)):
            found[name if name in found or len(found) < KINDS else OTHERS] += 1
    return CountedLetters(count, dict(causes.most_common()), dict(origins.most_common()))


def summarise(letters: Iterable[DeadLetter]) -> list[CauseGroup]:
    """Count dead letters by original destination, kind of cause and day; the most first."""
    counts = Counter((one.original_destination or UNKNOWN, one.cause_kind, one.day) for one in letters)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [CauseGroup(*names, count) for names, count in ordered]
