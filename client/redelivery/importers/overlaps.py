"""Overlaps of address-setting matches, as matches of their own.

Artemis merges all settings that cover an address. A policy map takes one whole entry. For two matches that
overlap (`a.*` and `*.b`) an entry is made for what both cover (`a.b`), with the merged settings.
"""

from __future__ import annotations

from itertools import combinations

from redelivery.core.policy.artemis_wildcards import ARTEMIS, AddressMatch, ArtemisWildcards

__all__ = ["MOST", "with_overlaps"]

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
