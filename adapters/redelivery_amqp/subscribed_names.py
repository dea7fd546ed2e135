"""Destinations that a subscription covers: a message's `to` counts only if it names one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.dead_lettering.dead_letter_headers import LONGEST, readable_origin
from redelivery.core.destination import Destination
from redelivery.core.policy.wildcards import covers
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery_amqp.profile_base import AmqpProfile

__all__ = ["SubscribedNames"]

_ANY_WORDS = "#"
_WILDCARDS = frozenset({"*", ">", _ANY_WORDS})
# Most results that are kept: a producer can invent any number of names.
MOST_KEPT = 1000


class SubscribedNames:
    """Destinations of one subscription. A producer can write any name into `to`, and Artemis passes it on."""

    def __init__(self, destination: str, profile: AmqpProfile) -> None:
        self._destination = destination
        self._profile = profile
        self._kind, _, name = destination.partition("://")
        address = profile.qualified(name, self._kind) if self._kind == "native" else destination
        try:
            members = Destination.parse(address).members
        except ConfigurationError:
            # A native address that only its broker understands.
            members = ()
        self._members = members
        self.many = len(members) > 1 or any(map(_wild, members))
        """True if messages of this subscription can have different destinations."""
        self._known: dict[str, str] = {}

    def destination_of(self, to: str) -> str:
        """Return the qualified destination of a message's `to` if it is covered; else the consumed destination."""
        found = self._known.get(to)
        if found is None:
            found = self._destination
            # A longer name is not a destination.
            if len(to) > LONGEST:
                return found
            told = self._profile.qualified(to, self._kind)
            if self._covered(told):
                found = told
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            self._known[to] = found
        return found

    def _covered(self, told: str) -> bool:
        if readable_origin(told) is None:
            return False
        place = Destination.parse(told)
        return any(_covers(member, place) for member in self._members)


def _wild(member: Destination) -> bool:
    return not _WILDCARDS.isdisjoint(member.name.split("."))


def _covers(member: Destination, place: Destination) -> bool:
    words = member.name.split(".")
    if member.kind != "native" and _ANY_WORDS not in words:
        return covers(member, place)
    # In the broker's own syntax `#` has the meaning of Classic's `>`, and may stand anywhere.
    return member.kind == place.kind and _fit(
        [*words[:-1], _ANY_WORDS if words[-1] == ">" else words[-1]], place.name.split(".")
    )


def _fit(pattern: Sequence[str], words: Sequence[str]) -> bool:
    """True if these words match: `*` stands for one non-empty word, `#` for any number of words, also none."""
    reached = _skipped(pattern, {0})
    for word in words:
        taken = {at for at in reached if pattern[at : at + 1] == [_ANY_WORDS]}
        taken |= {
            at + 1
            for at in reached
            if at < len(pattern) and (pattern[at] == word or (pattern[at] == "*" and word))
        }
        reached = _skipped(pattern, taken)
    return len(pattern) in reached


def _skipped(pattern: Sequence[str], reached: set[int]) -> set[int]:
    """Return these places of a pattern, and those after each `#` that stands for no word."""
    for at in range(len(pattern)):
        if at in reached and pattern[at] == _ANY_WORDS:
            reached.add(at + 1)
    return reached
