"""Map from destinations to redelivery policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from redelivery.core.destination import LONGEST_KEPT, Destination
from redelivery.core.option_values import check_mapping, shown
from redelivery.core.policy import file_reader
from redelivery.core.policy.redelivery_policy import Policy, RedeliveryPolicy
from redelivery.core.policy.wildcards import ARTEMIS, AddressMatches, ArtemisWildcards, ClassicPatterns
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from os import PathLike

__all__ = ["DestinationPatterns", "RedeliveryPolicyMap", "check_policy"]


# ---- Destination patterns --------------------------------------------------------------------------------
# Patterns of a map, and the one that serves a destination: found once, then remembered.

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


# ---- Policy map ------------------------------------------------------------------------------------------


class RedeliveryPolicyMap:
    """Immutable map from destination patterns to policies, with ActiveMQ Classic's wildcards.

    Keys are `queue://`, `topic://`, `temp-queue://`, `temp-topic://` or `native://` names; a bare name is a queue. Each
    kind is a tree of its own: a queue entry never serves topics. `.` separates tokens, `*` matches exactly one token,
    `>` at the end any number of further ones, including none. `A,B` is an entry for both. `native://` keys match
    exactly. `?options` are ignored. A look-up takes constant time for destinations seen before (bounded cache).
    """

    __slots__ = ("_default", "_entries", "_patterns", "has_default")

    has_default: bool
    """True if a default was given; otherwise `default` is a plain `RedeliveryPolicy`."""

    def __init__(
        self,
        mapping: Mapping[str, Policy] | Mapping[Destination, Policy] | None = None,
        default: Policy | None = None,
    ) -> None:
        """Build a map.

        Args:
            mapping: Policies by pattern, in order of registration. None: no patterns.
            default: Policy of destinations that no pattern matches; None: a plain `RedeliveryPolicy`.

        Raises:
            ConfigurationError: A key is no destination, or a value is no policy.
        """
        check_mapping(mapping, "RedeliveryPolicyMap({'orders.>': policy})")
        given = mapping or {}
        self._init(DestinationPatterns.classic(given), tuple(given.values()), default)

    def _init(
        self, patterns: DestinationPatterns, policies: Sequence[Policy], default: Policy | None
    ) -> None:
        self._entries = tuple(zip(patterns.texts, policies, strict=True))
        for pattern, policy in self._entries:
            check_policy(policy, f"the policy for {pattern}")
        self.has_default = default is not None
        self._default: Policy = RedeliveryPolicy() if default is None else default
        check_policy(self._default, "the default policy")
        self._patterns = patterns

    @classmethod
    def from_artemis_settings(
        cls,
        settings: Mapping[str, Policy],
        default: Policy | None = None,
        wildcards: ArtemisWildcards = ARTEMIS,
    ) -> RedeliveryPolicyMap:
        """Build a map whose keys are Artemis' address-setting matches: `*` is one word, a last `#` any words.

        A match serves queues and topics alike, as addresses do in Artemis. The most specific match wins; the values of
        less specific ones are not merged into it.

        Args:
            settings: Policies by match, in order of registration.
            default: Policy of addresses that no match covers; None: a plain `RedeliveryPolicy`.
            wildcards: Characters for the delimiter and the wildcards. Default: `.`, `*`, `#`.

        Raises:
            ConfigurationError: A key is no match, or a value is no policy.
        """
        made = cls.__new__(cls)
        made._init(DestinationPatterns.artemis(tuple(settings), wildcards), tuple(settings.values()), default)
        return made

    @classmethod
    def from_activemq_xml(cls, path: str | PathLike[str]) -> RedeliveryPolicyMap:
        """Read ActiveMQ Classic's XML: `activemq.xml`, or a Spring or Camel file of a client.

        Policies come from the first connection factory, otherwise from the broker's `redeliveryPlugin`. Settings that
        cannot be carried over are logged as warnings, one a line; `redelivery.importers.read` returns them.

        Args:
            path: Path of the file.

        Raises:
            ConfigurationError: The file cannot be read; the error has the line where it is known.
        """
        return _from_file(path, "activemq.xml")

    @classmethod
    def from_artemis_xml(cls, path: str | PathLike[str]) -> RedeliveryPolicyMap:
        """Read the address settings of Artemis' `broker.xml`, merged as the broker merges them.

        Addresses without a setting get Artemis' defaults. Warnings: as `from_activemq_xml`.

        Args:
            path: Path of the file.

        Raises:
            ConfigurationError: The file cannot be read; the error has the line where it is known.
        """
        return _from_file(path, "broker.xml")

    @classmethod
    def from_brokerj_json(cls, path: str | PathLike[str]) -> RedeliveryPolicyMap:
        """Read `maximumDeliveryAttempts` of the queues in Qpid Broker-J's JSON: its files, or its REST answers.

        Broker-J redelivers at once: the delays are 0. Warnings: as `from_activemq_xml`.

        Args:
            path: Path of the file.

        Raises:
            ConfigurationError: The file cannot be read; the error has the line where it is known.
        """
        return _from_file(path, "Broker-J JSON")

    @classmethod
    def from_toml(cls, path: str | PathLike[str]) -> RedeliveryPolicyMap:
        """Read a map from TOML, as `redelivery policy convert --to toml` writes it.

        Args:
            path: Path of the file.

        Raises:
            ConfigurationError: The file cannot be read; the error has the line where it is known.
        """
        return _from_file(path, "TOML")

    @property
    def default(self) -> Policy:
        """Policy of destinations that no pattern matches."""
        return self._default

    @property
    def entries(self) -> tuple[tuple[str, Policy], ...]:
        """Patterns, qualified (`queue://FRED.>`), and their policies: pairs, in the order of registration."""
        return self._entries

    @property
    def wildcards(self) -> ArtemisWildcards | None:
        """Artemis' wildcards, if the patterns are its address-setting matches; None: they are Classic's."""
        return self._patterns.wildcards

    def policy_for(self, destination: str | Destination) -> Policy:
        """Return the policy that serves `destination`.

        Args:
            destination: Destination as text or value; a bare name is a queue.

        Raises:
            ConfigurationError: The text names no destination.
        """
        index = self._patterns.index(destination)
        return self._default if index is None else self._entries[index][1]

    def pattern_for(self, destination: str | Destination) -> str | None:
        """Return the pattern whose policy serves `destination`; None: the default serves it.

        Args:
            destination: Destination as text or value; a bare name is a queue.

        Raises:
            ConfigurationError: The text names no destination.
        """
        index = self._patterns.index(destination)
        return None if index is None else self._entries[index][0]

    def __eq__(self, other: object) -> bool:
        """Return True if both maps have equal entries in the same order, equal defaults and the same wildcards."""
        if not isinstance(other, RedeliveryPolicyMap):
            return NotImplemented
        mine, theirs = (self._entries, self._default), (other._entries, other._default)
        return mine == theirs and self.wildcards == other.wildcards

    def __hash__(self) -> int:
        """Return the hash of the patterns."""
        return hash(tuple(pattern for pattern, _ in self._entries))

    def __repr__(self) -> str:
        """Show the entries and the default."""
        return f"RedeliveryPolicyMap({dict(self._entries)!r}, default={self._default!r})"


def _from_file(path: str | PathLike[str], kind: str) -> RedeliveryPolicyMap:
    policies: RedeliveryPolicyMap = file_reader.policies_of(path, kind)
    return policies


def check_policy(policy: object, name: str) -> None:
    """Refuse an object that is no policy. Raises ConfigurationError."""
    if isinstance(policy, type) or not isinstance(policy, Policy):
        raise ConfigurationError(f"{name} must be a redelivery policy, not {shown(policy)}")
