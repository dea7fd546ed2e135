"""Wildcards of ActiveMQ Classic (`*`, `>`), and the choice between several matching patterns.

Classic's order is used wherever it gives one answer. It gives none if two patterns match each other's text (`A.>` and
`A.*`). Then the winner has more literal tokens, then `*` before `>`, then the longer text, then it was registered last.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from redelivery.core.destination import LONGEST_KEPT
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.destination import Destination

__all__ = ["ClassicPatterns", "check_wildcards", "covers", "includes", "is_pattern", "overlap"]

Tokens = tuple[str, ...]


# One look-up splits the same name once for each pattern.
@lru_cache(maxsize=256)
def _tokens(name: str) -> Tokens:
    return tuple(name.split("."))


def _path(name: str) -> Tokens:
    """Return the words of a name. Those of a long one, which may be thousands, are not cached."""
    return _tokens(name) if len(name) <= LONGEST_KEPT else tuple(name.split("."))


def check_wildcards(pattern: Destination) -> None:
    """Refuse a wildcard in a place where it would match nothing. Raises ConfigurationError."""
    for member in pattern.members:
        path = () if member.kind == "native" else member.name.split(".")
        for place, part in enumerate(path, 1):
            within = len(part) > 1 and ("*" in part or ">" in part)
            if within or (part == ">" and place < len(path)):
                raise ConfigurationError(
                    f"the pattern {pattern}: * stands for one whole part, > only at the end"
                )


class _Text:
    """Name or pattern as a filter of names; one without wildcards covers itself alone."""

    __slots__ = ("name", "path", "tail", "wildcard")

    def __init__(self, name: str, *, literal: bool = False) -> None:
        self.name = name
        path = _path(name)
        # `>` is a wildcard as the last token only; several of them at the end count as one.
        self.tail = path[-1] == ">" and not literal
        while self.tail and len(path) > 1 and path[-2] == ">":
            path = path[:-1]
        self.path = path
        self.wildcard = self.tail or ("*" in path and not literal)

    def covers(self, name: str) -> bool:
        """Return True if `name` is covered; as in Classic, a name that is itself a pattern is compared as text."""
        if not self.wildcard:
            return name == self.name
        path = _path(name)
        if not self.tail:
            return len(path) == len(self.path) and all(
                mine in ("*", theirs) for mine, theirs in zip(self.path, path, strict=True)
            )
        # `A.>` covers `A` too. Only here does Classic let a `*` in the name match any token.
        head = self.path[:-1]
        if len(path) < len(head):
            return False
        return all(mine in ("*", theirs) or theirs == "*" for mine, theirs in zip(head, path, strict=False))


def is_pattern(destination: Destination) -> bool:
    """Return True if a consumer of it gets messages of more than one destination."""
    return destination.kind != "native" and not {"*", ">"}.isdisjoint(destination.name.split("."))


def covers(pattern: Destination, destination: Destination) -> bool:
    """Return True if a consumer of `pattern` gets the messages sent to `destination`."""
    literal = pattern.kind == "native"
    return pattern.kind == destination.kind and _Text(pattern.name, literal=literal).covers(destination.name)


def includes(wide: Destination, pattern: Destination) -> bool:
    """Return True if each name that `pattern` covers is covered by `wide`, for certain."""
    if wide.kind != pattern.kind:
        return False
    mine, theirs = _Text(wide.name), _path(pattern.name)
    head = mine.path[:-1]
    return wide.name == pattern.name or (
        mine.tail
        and len(theirs) >= len(head)
        and all(one == "*" != other != ">" or one == other for one, other in zip(head, theirs, strict=False))
    )


def overlap(one: Destination, other: Destination) -> bool:
    """Return True if a name is covered by both patterns; each is one member, without a comma."""
    if one.kind != other.kind:
        return False
    if one.kind == "native":
        return one.name == other.name
    mine, theirs = _Text(one.name), _Text(other.name)
    for left, right in zip(mine.path, theirs.path, strict=False):
        # `A.>` covers `A` too: behind the common words nothing is asked for.
        if ">" in (left, right):
            return True
        if left != right and "*" not in (left, right):
            return False
    longer = max(mine.path, theirs.path, key=len)[min(len(mine.path), len(theirs.path)) :]
    return longer in ((), (">",))


class _Pattern:
    """One member of a registered entry: the names that it covers, and its rank."""

    __slots__ = ("entry", "index", "member", "order")

    def __init__(self, member: Destination, entry: Destination, index: int) -> None:
        literal = member.kind == "native"
        self.member = _Text(member.name, literal=literal)
        self.entry = self.member if entry.name == member.name else _Text(entry.name, literal=literal)
        self.index = index
        path = self.member.path
        literals = len([token for token in path if token not in ("*", ">")])
        self.order = (literals == len(path), literals, not self.member.tail, len(member.name), index)

    def beats(self, other: _Pattern) -> bool:
        """Return True if this pattern wins over `other` where both match and neither is the exact name.

        Classic compares whole entries: a composite one (`A.>,C.>`) by its text.
        """
        mine, theirs = self.entry, other.entry
        covers, covered = mine.covers(theirs.name), theirs.covers(mine.name)
        if covers != covered:
            return covered
        if not covers and mine.name != theirs.name:
            return mine.name < theirs.name
        return self.order > other.order


class ClassicPatterns:
    """Finds the entry of a policy map for a destination, by Classic's rules."""

    __slots__ = ("_exact", "_shared", "_wildcards")

    def __init__(self, entries: Sequence[Destination]) -> None:
        """Register `entries` in order; a composite entry counts under each of its members."""
        self._exact: dict[tuple[str, str], int] = {}
        self._shared: dict[tuple[str, str], _Pattern] = {}
        self._wildcards: dict[str, list[_Pattern]] = {}
        for index, entry in enumerate(entries):
            self._exact[entry.kind, entry.name] = index
            for member in entry.members:
                pattern = _Pattern(member, entry, index)
                if pattern.member.wildcard:
                    self._wildcards.setdefault(member.kind, []).append(pattern)
                else:
                    self._shared[member.kind, member.name] = pattern

    def find(self, destination: Destination) -> int | None:
        """Return the index of the entry that serves `destination`; None if there is none."""
        exact = self._exact.get((destination.kind, destination.name))
        return self._best(destination) if exact is None else exact

    def _best(self, destination: Destination) -> int | None:
        matching = self._matching(destination)
        for pattern in matching:
            if all(pattern is other or pattern.beats(other) for other in matching):
                return pattern.index
        # Classic's order has cycles; inside one it gives no single answer.
        return max(matching, key=lambda pattern: pattern.order).index if matching else None

    def _matching(self, destination: Destination) -> list[_Pattern]:
        members = destination.members
        shared = self._shared.get((destination.kind, destination.name))
        found = [] if shared is None else [shared]
        for pattern in self._wildcards.get(destination.kind, ()):
            covers = pattern.member.covers
            # A composite name must also match as a text: Classic does it that way, hardly on purpose.
            if covers(destination.name) and (len(members) == 1 or any(covers(m.name) for m in members)):
                found.append(pattern)
        return found
