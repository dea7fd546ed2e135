"""Patterns of a map, and the one that serves a destination: found once, then remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from redelivery.core.destination import LONGEST_KEPT, Destination
from redelivery.core.policy.artemis_wildcards import AddressMatches, ArtemisWildcards
from redelivery.core.policy.classic_wildcards import ClassicPatterns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["DestinationPatterns"]

_CACHED = 8192


class _Finder(Protocol):
    def find(self, destination: Destination) -> int | None: ...


class DestinationPatterns:
    """Index of the pattern that serves a destination; constant time for one seen before (bounded cache)."""

    __slots__ = ("_cache", "_finder", "texts")

    def __init__(self, texts: Sequence[str], finder: _Finder) -> None:
        self.texts = tuple(texts)
        """The patterns, qualified, in order of registration."""
        self._finder = finder
        self._cache: dict[str, int | None] = {}

    @classmethod
    def classic(cls, keys: Iterable[str | Destination]) -> DestinationPatterns:
        """Return patterns with ActiveMQ Classic's wildcards. Raises ConfigurationError for a key that names nothing."""
        parsed = [Destination.parse(key) for key in keys]
        return cls([str(key) for key in parsed], ClassicPatterns(parsed))

    @classmethod
    def artemis(cls, matches: Sequence[str], wildcards: ArtemisWildcards) -> DestinationPatterns:
        """Return Artemis' address-setting matches. Raises ConfigurationError for a text that is no match."""
        return cls(matches, AddressMatches(tuple(matches), wildcards))

    @property
    def wildcards(self) -> ArtemisWildcards | None:
        """Artemis' wildcards, if the patterns are its address-setting matches; None: they are Classic's."""
        return self._finder.wildcards if isinstance(self._finder, AddressMatches) else None

    def index(self, destination: str | Destination) -> int | None:
        """Return the index of the pattern that serves `destination`; None: none does.

        Raises ConfigurationError if the text names no destination.
        """
        key = destination if isinstance(destination, str) else str(destination)
        try:
            return self._cache[key]
        except KeyError:
            index = self._finder.find(Destination.parse(destination))
        if len(self._cache) >= _CACHED:
            # Each temporary queue has a new name: empty the cache rather than let it grow.
            self._cache.clear()
        if len(key) <= LONGEST_KEPT:
            self._cache[key] = index
        return index
