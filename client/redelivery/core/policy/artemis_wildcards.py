"""Address-setting matches of Artemis: `*` is one word, `#` at the end any number of words, including none.

The most specific match wins: first one without wildcards, then one without `#` (of several, the one whose first
differing word is literal), then one with `#` (of several, the longest text, then the one with more literal words), and
last the one registered last. Artemis merges less specific settings into it. A policy is one unit and is used alone
here; `redelivery.importers` merges the settings before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from redelivery.core.option_values import shown
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.destination import Destination

__all__ = ["ARTEMIS", "AddressMatch", "AddressMatches", "ArtemisWildcards"]


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
