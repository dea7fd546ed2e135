"""Facts of one broker that hold over each of its protocols, and its tested versions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redelivery.core.capabilities import Capabilities

__all__ = ["Broker", "numbers"]


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker."""

    tested: tuple[str, ...]
    """Versions that the integration tests ran against, oldest first (docs/brokers.md)."""
    always: Capabilities
    """Capabilities over each protocol, with its name; the profile of a protocol adds its own."""

    def untested(self, version: str) -> str | None:
        """Return how a version differs from the tested ones, as a clause with a verb; None: it equals one of them.

        A version that differs in the third number only equals a tested one.
        """
        release = numbers(version)[:2]
        releases = [numbers(known)[:2] for known in self.tested]
        if release in releases:
            return None
        if not release:
            return f"reports no version, and is treated as {self.tested[-1]}"
        if release > releases[-1]:
            return f"is newer than every tested version, and is treated as {self.tested[-1]}"
        if release < releases[0]:
            return "is older than every tested version"
        older = releases.index(max(known for known in releases if known < release))
        return f"was not tested itself; {self.tested[older]} and {self.tested[older + 1]} were"


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version: `4.3.6-rc.1` is (4, 3, 6); empty if it has none."""
    found = re.match(r"\d{1,6}(\.\d{1,6})*", version, re.ASCII)
    return tuple(int(part) for part in found[0].split(".")) if found else ()
