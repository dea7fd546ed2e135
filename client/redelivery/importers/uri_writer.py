"""Writer of policies as options of a connection URI.

A URI has the Java client's policy, with Classic's wildcards.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from redelivery.core.destination import Destination
from redelivery.core.policy.artemis_policy import ArtemisRedeliveryPolicy
from redelivery.core.policy.policy_guard import elapsed_of
from redelivery.core.policy.redelivery_policy import DelayListPolicy, RedeliveryPolicy
from redelivery.core.policy.wildcards import ARTEMIS, AddressMatch, ArtemisWildcards
from redelivery.importers.toml_policies import ELAPSED
from redelivery.uri.option_table import MAP_PREFIX, OUR_MAP_PREFIX, OUR_POLICY, POLICY
from redelivery.uri.syntax import option_text, shortest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redelivery.core.policy.policy_map import RedeliveryPolicyMap
    from redelivery.core.policy.redelivery_policy import Policy

__all__ = ["MOST", "UriOptions", "classic_entries", "to_uri_options", "with_overlaps"]


# ---- Overlaps --------------------------------------------------------------------------------------------
# Overlaps of address-setting matches, as matches of their own.
#
# Artemis merges all settings that cover an address. A policy map takes one whole entry. For two matches that
# overlap (`a.*` and `*.b`) an entry is made for what both cover (`a.b`), with the merged settings.

MOST = 1000
"""Most matches with wildcards, overlaps included.

Some hundred matches may overlap in more ways than can be listed.
"""


def with_overlaps(
    matches: list[str], wildcards: ArtemisWildcards = ARTEMIS
) -> tuple[list[AddressMatch], bool]:
    """Return the matches and all their overlaps, general ones first; and True if these are all.

    A match without wildcards has no overlap but itself.
    """
    found = {text: AddressMatch(text, wildcards=wildcards) for text in matches}
    newest = [match for match in found.values() if match.wildcard]
    known = list(newest)
    while newest and len(known) <= MOST:
        made: dict[str, AddressMatch] = {}
        pairs = combinations(known, 2) if newest == known else ((old, new) for new in newest for old in known)
        for one, other in pairs:
            both = one.overlap(other)
            if both is not None and both.text not in found:
                found[both.text] = made[both.text] = both
            if len(found) > len(matches) + MOST:
                return _general_first(found), False
        newest = [match for match in made.values() if match.wildcard]
        known += newest
    return _general_first(found), not newest


def _general_first(found: dict[str, AddressMatch]) -> list[AddressMatch]:
    return sorted(found.values(), key=lambda match: (len(match.words), -match.tail, match.rank))


# ---- Uri writer ------------------------------------------------------------------------------------------

T = TypeVar("T")

_KINDS = ("queue", "topic", "temp-queue", "temp-topic")
_NATIVE = "native:// addresses: the patterns of a URI do not match them; they get its default"
# Most redeliveries whose delays are written as a list, if no formula of the URI gives them.
_LISTED = 50
_LONGEST = 1000
"""Most redeliveries whose delays are compared. The delays of brokers reach their cap long before."""


class UriOptions(NamedTuple):
    """Text behind the `?` of a connection URI, and its differences from the policies."""

    text: str
    differences: tuple[str, ...]
    """Destinations with another schedule by the URI, a line for each policy."""
    notes: tuple[str, ...] = ()
    """Notes that hold for every URI."""


def to_uri_options(
    policies: RedeliveryPolicyMap, dead_letters: Mapping[str, str] | None = None
) -> UriOptions:
    """Return a map, and dead-letter options, as options of a connection URI. `parse_uri` reads them.

    A policy that a URI cannot express is written as the nearest fixed or exponential one with the same
    maximum. Each of these is a line in `differences`.

    Args:
        policies: The map.
        dead_letters: Options by full name. None: none.

    Returns:
        The text of the options, the differences, and notes.
    """
    differences: list[str] = []
    written: dict[str, str] = {}
    mapped = _by_kind(policies, differences)
    default, entries = mapped
    written |= _options(_sayable(default, "other destinations", differences), POLICY, OUR_POLICY)
    for pattern, policy in entries.items():
        parsed = Destination.parse(pattern)
        plain = shortest(pattern)
        # An address of Artemis has an entry for each kind of destination, and one note.
        said = _sayable(policy, pattern if policies.wildcards is None else parsed.name, differences)
        written |= _options(said, f"{MAP_PREFIX}{plain}.", f"{OUR_MAP_PREFIX}{plain}.")
    wild = policies.wildcards is not None and any("*" in pattern or ">" in pattern for pattern in entries)
    return UriOptions(
        option_text({**written, **(dead_letters or {})}),
        tuple(dict.fromkeys(differences)),
        (_NATIVE,) if wild else (),
    )


def _options(policy: RedeliveryPolicy | DelayListPolicy, prefix: str, our_prefix: str) -> dict[str, str]:
    """Return the options that differ from their default, by full name; and the maximum or the delays."""
    options = policy.to_options()
    limit = options.pop(ELAPSED, None)
    if isinstance(policy, DelayListPolicy) and policy.delays:
        written = {f"{our_prefix}delays": options["delays"]}
    else:
        # An empty list cannot be written: a maximum of 0 is the same.
        options.pop("delays", None)
        defaults = RedeliveryPolicy().to_options()
        written = {
            prefix + name: value
            for name, value in options.items()
            if name == "maximumRedeliveries" or defaults.get(name) != value
        }
    return written if limit is None else written | {our_prefix + ELAPSED: limit}


def _sayable(policy: Policy, name: str, differences: list[str]) -> RedeliveryPolicy | DelayListPolicy:
    """Return a policy that a URI can express, with the delays of `policy` or the nearest ones."""
    if isinstance(policy, RedeliveryPolicy | DelayListPolicy):
        return policy
    maximum = policy.maximum_redeliveries
    count = _LONGEST if maximum < 0 else min(maximum, _LONGEST)
    delays = policy.delays_ms(max(count, 1))
    limit, _ = elapsed_of(policy)
    nearest = _nearest(policy, maximum, delays, limit)
    theirs, ours = delays[:count], nearest.delays_ms(count)
    if theirs != ours and 0 <= maximum <= _LISTED and _exact(policy):
        return DelayListPolicy.from_ms(theirs, limit)
    if theirs != ours:
        place = next(i for i in range(count) if theirs[i] != ours[i])
        differences.append(
            f"{name}: a URI cannot express these delays: redelivery {place + 1} is after {ours[place]} ms, "
            f"not after {theirs[place]} ms"
        )
    elif (
        isinstance(policy, ArtemisRedeliveryPolicy) and policy.redelivery_collision_avoidance_factor and count
    ):
        differences.append(
            f"{name}: Artemis varies the first delay too, each by its own, and cuts it at the maximum; "
            "the Java client's collision avoidance does not"
        )
    return nearest


def _exact(policy: Policy) -> bool:
    """True if a list of the delays is certainly the same schedule: other kinds may draw random numbers."""
    return isinstance(policy, ArtemisRedeliveryPolicy) and not policy.redelivery_collision_avoidance_factor


def _nearest(policy: Policy, maximum: int, delays: list[int], limit_ms: int | None) -> RedeliveryPolicy:
    options: dict[str, object] = {"maximumRedeliveries": maximum, "initialRedeliveryDelay": delays[0]}
    options["redeliveryDelay"] = max(delays[1:], default=delays[0])
    if isinstance(policy, ArtemisRedeliveryPolicy):
        given = policy.to_options()
        if policy.redelivery_delay_multiplier > 1 and len(set(delays)) > 1:
            options |= {
                "redeliveryDelay": delays[0],
                "useExponentialBackOff": "true",
                "backOffMultiplier": given["redelivery-delay-multiplier"],
                "maximumRedeliveryDelay": given.get("max-redelivery-delay", str(policy.cap_ms)),
            }
        if policy.redelivery_collision_avoidance_factor:
            options["useCollisionAvoidance"] = "true"
            options["collisionAvoidanceFactor"] = given["redelivery-collision-avoidance-factor"]
    return RedeliveryPolicy.from_prefixed_options(options, "", limit_ms)


def _by_kind(policies: RedeliveryPolicyMap, differences: list[str]) -> tuple[Policy, Mapping[str, Policy]]:
    """Return the default and the entries of a map with Classic's patterns, one destination kind each."""
    wildcards = policies.wildcards
    entries = dict(policies.entries)
    if wildcards is None:
        return policies.default, entries
    unsaid: dict[str, str] = {}
    found = classic_entries(entries, policies.default, wildcards, unsaid, (*_KINDS, "native"))
    differences += [f"{match}: {why}" for match, why in unsaid.items()]
    return found


def classic_entries(
    entries: Mapping[str, T],
    default: T,
    wildcards: ArtemisWildcards,
    unsaid: dict[str, str],
    kinds: Sequence[str],
) -> tuple[T, Mapping[str, T]]:
    """Return values by Artemis' address-setting matches as the default and values by Classic's patterns.

    `kinds`: of the destinations that get an entry; `native` only for an address without wildcards. What cannot be said
    with Classic's patterns is added to `unsaid`: the reason by its match.
    """
    matches, _ = with_overlaps(list(entries), wildcards)
    ranked = [AddressMatch(text, place, wildcards) for place, text in enumerate(entries)]
    ranked = [match for match in ranked if match.wildcard]
    found: dict[str, T] = {}
    served: list[tuple[AddressMatch, T]] = []
    plain = [kind for kind in kinds if kind != "native"]
    for match in matches:
        if match.wildcard or match.text not in entries:
            best = max((one for one in ranked if one.includes(match)), key=lambda one: one.rank)
            value = entries[best.text]
        else:
            value = entries[match.text]
        around = [held for other, held in served if other.includes(match)]
        if match.wildcard:
            served.append((match, value))
        if match.tail and not match.words:
            default = value
            continue
        # If all matches around this one have the same value, it need not be written.
        changes = any(held != value for held in around or [default])
        native = "native" in kinds and not match.wildcard and value != default
        named = [*(plain if changes else ()), *(["native"] if native else ())]
        _add(match, value, named, found, unsaid)
    return default, found


def _add(
    match: AddressMatch, value: T, kinds: list[str], found: dict[str, T], unsaid: dict[str, str]
) -> None:
    delimiter, one, many = match.wildcards
    words = match.text.split(delimiter)
    if not kinds:
        return
    if match.wildcard and delimiter != ".":
        unsaid[match.text] = "a URI's patterns have . between words; left out"
    elif any(c in word for word in words if word not in (one, many) for c in "*>?,") or "" in words:
        unsaid[match.text] = "a URI's patterns cannot express this name; left out"
    else:
        name = delimiter.join({one: "*", many: ">"}.get(word, word) for word in words)
        found.update({f"{kind}://{name}": value for kind in kinds})
