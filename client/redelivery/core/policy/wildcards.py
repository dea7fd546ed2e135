"""Wildcards of ActiveMQ Classic and of Artemis' address settings, and the choice between several matching patterns."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from redelivery.core.destination import LONGEST_KEPT
from redelivery.core.option_values import shown
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.destination import Destination

__all__ = [
    "ARTEMIS",
    "AddressMatch",
    "AddressMatches",
    "ArtemisWildcards",
    "ClassicPatterns",
    "Wildcards",
    "check_wildcards",
    "covers",
    "includes",
    "is_pattern",
    "names_queues",
    "overlap",
    "refuse_wildcard",
]


# ---- Classic wildcards -----------------------------------------------------------------------------------
# Wildcards of ActiveMQ Classic (`*`, `>`), and the choice between several matching patterns.
#
# Classic's order is used wherever it gives one answer. It gives none if two patterns match each other's text (`A.>`
# and `A.*`). Then the winner has more literal tokens, then `*` before `>`, then the longer text, then it was
# registered last.

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


# ---- Artemis wildcards -----------------------------------------------------------------------------------
# Address-setting matches of Artemis: `*` is one word, `#` at the end any number of words, including none.
#
# The most specific match wins: first one without wildcards, then one without `#` (of several, the one whose first
# differing word is literal), then one with `#` (of several, the longest text, then the one with more literal words),
# and last the one registered last. Artemis merges less specific settings into it. A policy is one unit and is used
# alone here; `redelivery.importers` merges the settings before.


class ArtemisWildcards(NamedTuple):
    """Characters of `wildcard-addresses` in `broker.xml`; the defaults are those of Artemis."""

    delimiter: str = "."
    single_word: str = "*"
    any_words: str = "#"

    def check(self) -> None:
        """Raise ConfigurationError unless these are three different characters."""
        if len(set(self)) < 3 or any(len(c) != 1 or not c.isprintable() or c.isspace() for c in self):
            raise ConfigurationError(
                f"an address' delimiter and wildcards must be three different characters, not {shown(tuple(self))}"
            )


ARTEMIS = ArtemisWildcards()
"""Characters of a broker that is not configured otherwise."""


def _words(match: object, wildcards: ArtemisWildcards) -> list[str]:
    if not isinstance(match, str) or not match:
        raise ConfigurationError(f"an address match must be text, not {shown(match)}")
    if not match.isprintable() or "://" in match:
        raise ConfigurationError(
            f"the address match {shown(match)} must be a plain address: no prefix, one line"
        )
    delimiter, one, many = wildcards
    words = match.split(delimiter)
    if any(many in word for word in words[:-1]) or (many in words[-1] and words[-1] != many):
        raise ConfigurationError(f"the address match {shown(match)} can have {many} as its last word only")
    if any(one in word and word != one for word in words):
        raise ConfigurationError(f"the address match {shown(match)} can have {one} only as a whole word")
    return words


class AddressMatch:
    """One match: the addresses that it covers, and its rank among the matches that cover one address."""

    __slots__ = ("_literal", "index", "rank", "tail", "text", "wildcards", "words")

    def __init__(self, match: str, index: int = 0, wildcards: ArtemisWildcards = ARTEMIS) -> None:
        """Read `match`, registered as number `index`. Raises ConfigurationError if it cannot be read."""
        words = _words(match, wildcards)
        self.text = match
        self.index = index
        self.wildcards = wildcards
        self.tail = words[-1] == wildcards.any_words
        self.words = words[:-1] if self.tail else words
        self._literal = tuple(word != wildcards.single_word for word in self.words)
        key = (len(match), sum(self._literal)) if self.tail else self._literal
        self.rank: tuple[bool, tuple[int, ...], int] = (not self.tail, key, index)

    @property
    def wildcard(self) -> bool:
        """True if this can cover more than one address."""
        return self.tail or not all(self._literal)

    def covers(self, words: list[str]) -> bool:
        """Return True if the address with these words is covered."""
        if len(words) < len(self.words) or (len(words) > len(self.words) and not self.tail):
            return False
        return all(
            mine == theirs or (not literal and theirs)
            for mine, literal, theirs in zip(self.words, self._literal, words, strict=False)
        )

    def includes(self, other: AddressMatch) -> bool:
        """Return True if this match covers every address that `other` covers."""
        return (self.tail or not other.tail) and self.covers(other.words)

    def overlap(self, other: AddressMatch) -> AddressMatch | None:
        """Return the match of the addresses that both cover; None if there are none."""
        longer, shorter = (self, other) if len(self.words) >= len(other.words) else (other, self)
        if len(longer.words) > len(shorter.words) and not shorter.tail:
            return None
        one = self.wildcards.single_word
        if longer.words and shorter.words and one != longer.words[0] != shorter.words[0] != one:
            # Most pairs do not overlap, and most of them differ in the first word.
            return None
        both: list[str] = []
        for mine, theirs in zip(longer.words, shorter.words, strict=False):
            if one not in (mine, theirs) and mine != theirs:
                return None
            both.append(theirs if mine == one else mine)
        both += longer.words[len(both) :]
        if self.tail and other.tail:
            both.append(self.wildcards.any_words)
        return AddressMatch(self.wildcards.delimiter.join(both), wildcards=self.wildcards)


class AddressMatches:
    """Finds the address setting of a destination, of any kind, by Artemis' rules."""

    __slots__ = ("_exact", "_patterns", "wildcards")

    def __init__(self, matches: Sequence[str], wildcards: ArtemisWildcards = ARTEMIS) -> None:
        """Register `matches` in order. Raises ConfigurationError for one that Artemis refuses or never matches."""
        wildcards.check()
        self.wildcards = wildcards
        self._exact: dict[str, int] = {}
        self._patterns: list[AddressMatch] = []
        for index, text in enumerate(matches):
            match = AddressMatch(text, index, wildcards)
            if match.wildcard:
                self._patterns.append(match)
            else:
                self._exact[text] = index

    def find(self, destination: Destination) -> int | None:
        """Return the index of the match that serves `destination`; None if there is none."""
        exact = self._exact.get(destination.name)
        if exact is not None:
            return exact
        words = destination.name.split(self.wildcards.delimiter)
        covering = [match for match in self._patterns if match.covers(words)]
        return max(covering, key=lambda match: match.rank).index if covering else None


# ---- Queue wildcards -------------------------------------------------------------------------------------
# Wildcards in the names of queues, and brokers to which they mean no queues.
#
# On Artemis a consumer with a wildcard has a queue of its own. The broker puts a copy of each later message into it,
# and the message itself stays in the queue that it was sent to (docs/measured/artemis-stomp.md, "Wildcards").

Wildcards = Literal["queues", "address"]
"""Meaning of a wildcard in a queue's name: the queues with such names, or what the broker itself makes of it."""

OPTION = "redelivery.wildcards"


def names_queues(destination: Destination, capabilities: Capabilities) -> bool:
    """Return True if the name of a queue has a wildcard.

    Raises:
        ConfigurationError: It is the broker's own, whose meaning no check here knows.
    """
    if destination.kind not in ("queue", "temp-queue"):
        return False
    if capabilities.copies_by_wildcard and ARTEMIS.any_words in destination.name.split("."):
        raise ConfigurationError(
            f"{destination}: {ARTEMIS.any_words} is a wildcard of {capabilities.broker}: write > at its end; the queue "
            f"that the broker makes for it is native://{destination.name}",
            option="destination",
        )
    return is_pattern(destination)


def refuse_wildcard(
    destination: Destination, capabilities: Capabilities, wildcards: Wildcards | None = None
) -> None:
    """Refuse a wildcard that this broker cannot honour.

    `wildcards`: the user's choice for a consumer; None: somebody looks at the queues, and takes nothing.

    Raises:
        ConfigurationError: The broker has no wildcards for queues, or gives them another meaning.
    """
    if not names_queues(destination, capabilities):
        return
    broker = capabilities.broker
    if not capabilities.queue_wildcards:
        raise ConfigurationError(
            f"{destination}: {broker} has no wildcards for queues; name each queue", option="destination"
        )
    if not capabilities.copies_by_wildcard:
        if wildcards == "address":
            raise ConfigurationError(
                f"{OPTION}=address: to {broker} the wildcard in {destination} means the queues themselves, and nothing "
                "else; remove the option",
                option=OPTION,
            )
        return
    if wildcards == "address":
        return
    cure = "" if wildcards is None else f", or add {OPTION}=address to get those copies"
    raise ConfigurationError(
        f"{destination}: {broker} would make a queue for this wildcard, with a copy of each later message and none of "
        f"the stored ones, and keep the messages in their own queues; name each queue{cure}",
        option="destination" if wildcards is None else OPTION,
    )
