"""Map from destinations to dead-letter strategies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.dead_lettering.dead_letter_strategy import DeadLetterStrategy
from redelivery.core.destination import Destination
from redelivery.core.option_values import check_mapping, shown
from redelivery.core.policy.classic_wildcards import check_wildcards, includes, is_pattern, overlap
from redelivery.core.policy.destination_patterns import DestinationPatterns
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["DeadLetterMap"]


class DeadLetterMap:
    """Immutable map from destination patterns to dead-letter strategies; keys and precedence as in a policy map.

    A consumer's own queue or topic is looked up, as on Classic; behind a wildcard, the message's own destination. The
    default serves what no pattern matches; the values of the two are not mixed.
    """

    __slots__ = ("_default", "_entries", "_patterns", "has_default")

    has_default: bool
    """True if a default was given; otherwise `default` is a plain `DeadLetterStrategy`."""

    def __init__(
        self,
        mapping: Mapping[str, DeadLetterStrategy] | Mapping[Destination, DeadLetterStrategy] | None = None,
        default: DeadLetterStrategy | None = None,
    ) -> None:
        """Build a map.

        Args:
            mapping: Strategies by pattern (`queue://orders.>`; a bare name is a queue), in order of registration.
                None: no patterns.
            default: Strategy of destinations that no pattern matches; None: a plain `DeadLetterStrategy`.

        Raises:
            ConfigurationError: A key is no destination or has a wildcard in a wrong place, or a value is no strategy.
        """
        check_mapping(mapping, "DeadLetterMap({'orders.>': DeadLetterStrategy(…)})")
        given = mapping or {}
        self._patterns = DestinationPatterns.classic(given)
        self._entries = tuple(zip(self._patterns.texts, given.values(), strict=True))
        for pattern, strategy in self._entries:
            check_wildcards(Destination.parse(pattern))
            _check(strategy, f"the dead-letter strategy for {pattern}")
        self.has_default = default is not None
        self._default = DeadLetterStrategy() if default is None else default
        _check(self._default, "the default dead-letter strategy")

    @property
    def default(self) -> DeadLetterStrategy:
        """Strategy of destinations that no pattern matches."""
        return self._default

    @property
    def entries(self) -> tuple[tuple[str, DeadLetterStrategy], ...]:
        """Patterns, qualified (`queue://orders.>`), and their strategies, in the order of registration."""
        return self._entries

    def strategy_for(self, destination: str | Destination) -> DeadLetterStrategy:
        """Return the strategy that serves `destination`; a bare name is a queue.

        Raises:
            ConfigurationError: The text names no destination.
        """
        index = self._patterns.index(destination)
        return self._default if index is None else self._entries[index][1]

    def pattern_for(self, destination: str | Destination) -> str | None:
        """Return the pattern whose strategy serves `destination`; None: the default serves it.

        Raises:
            ConfigurationError: The text names no destination.
        """
        index = self._patterns.index(destination)
        return None if index is None else self._entries[index][0]

    def serving(self, source: Destination) -> Iterator[DeadLetterStrategy]:
        """Yield the strategies that can serve messages of a consumer.

        One for one queue or topic; for a wildcard all whose pattern has a name in common with it, and the default.
        """
        return (strategy for _, strategy in self.entries_serving(source))

    def entries_serving(self, source: Destination) -> Iterator[tuple[str | None, DeadLetterStrategy]]:
        """Yield the strategies of `serving`, each with its pattern; None: it is the default."""
        if not is_pattern(source):
            yield self.pattern_for(source), self.strategy_for(source)
            return
        default = True
        for pattern, strategy in self._entries:
            members = Destination.parse(pattern).members
            if any(overlap(source, one) for one in members):
                yield pattern, strategy
            # Where a pattern has all names of the source, no message gets the default.
            default = default and not any(includes(one, source) for one in members)
        if default:
            yield None, self._default

    def __iter__(self) -> Iterator[DeadLetterStrategy]:
        """Go through all strategies; the default is the last."""
        yield from (strategy for _, strategy in self._entries)
        yield self._default

    def __eq__(self, other: object) -> bool:
        """Return True if both maps have equal entries in the same order, and equal defaults."""
        if not isinstance(other, DeadLetterMap):
            return NotImplemented
        return (self._entries, self._default) == (other._entries, other._default)

    def __hash__(self) -> int:
        """Return the hash of the patterns."""
        return hash(self._patterns.texts)

    def __repr__(self) -> str:
        """Show the entries and the default."""
        return f"DeadLetterMap({dict(self._entries)!r}, default={self._default!r})"


def _check(strategy: object, name: str) -> None:
    if not isinstance(strategy, DeadLetterStrategy):
        raise ConfigurationError(f"{name} must be a DeadLetterStrategy, not {shown(strategy)}")
