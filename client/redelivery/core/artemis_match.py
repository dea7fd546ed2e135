"""Artemis' address-setting matches: `*` is one word, `#` at the end any number of words, none included.

The most specific match wins: one without wildcards, then one without `#`, of these the one whose first
differing word is literal, of those with `#` the longest text, and last the one registered last. (Artemis then
merges less specific settings in; a policy is whole, so here it is taken alone.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.convert import shown
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.destination import Destination

__all__ = ["AddressMatches"]


def _check(match: object) -> str:
    if not isinstance(match, str) or not match:
        raise ConfigurationError(f"an address match must be text, not {shown(match)}")
    if not match.isprintable() or "://" in match:
        raise ConfigurationError(
            f"the address match {shown(match)} must be a plain address: no prefix, one line"
        )
    words = match.split(".")
    if any("#" in word for word in words[:-1]) or ("#" in words[-1] and words[-1] != "#"):
        raise ConfigurationError(f"the address match {shown(match)} can have # as its last word only")
    if any("*" in word and word != "*" for word in words):
        raise ConfigurationError(f"the address match {shown(match)} can have * only as a whole word")
    return match


class _Match:
    __slots__ = ("index", "rank", "tail", "words")

    def __init__(self, match: str, index: int) -> None:
        words = match.split(".")
        self.tail = words[-1] == "#"
        self.words = words[:-1] if self.tail else words
        self.index = index
        literal = tuple(word != "*" for word in self.words)
        self.rank = (0, (len(match),), index) if self.tail else (1, literal, index)

    def covers(self, words: list[str]) -> bool:
        if len(words) < len(self.words) or (len(words) > len(self.words) and not self.tail):
            return False
        return all(
            mine == theirs or (mine == "*" and theirs)
            for mine, theirs in zip(self.words, words, strict=False)
        )


class AddressMatches:
    """Finds the address setting for a destination, whatever its kind, by Artemis' rules."""

    __slots__ = ("_exact", "_wildcards")

    def __init__(self, matches: Sequence[str]) -> None:
        """Register `matches` in order; ConfigurationError for one that Artemis refuses or never matches."""
        self._exact: dict[str, int] = {}
        self._wildcards: list[_Match] = []
        for index, match in enumerate(matches):
            words = _check(match).split(".")
            if "*" in words or "#" in words:
                self._wildcards.append(_Match(match, index))
            else:
                self._exact[match] = index

    def find(self, destination: Destination) -> int | None:
        """Return the place of the match that serves `destination`, or None."""
        exact = self._exact.get(destination.name)
        if exact is not None:
            return exact
        words = destination.name.split(".")
        covering = [match for match in self._wildcards if match.covers(words)]
        return max(covering, key=lambda match: match.rank).index if covering else None
