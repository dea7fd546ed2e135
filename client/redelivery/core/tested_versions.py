"""Versions of the brokers that the integration tests ran against, and the description of any other version."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TESTED", "numbers", "untested"]

TESTED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "activemq": ("5.18.6", "6.1.7", "6.3.1"),
        "artemis": ("2.31.2", "2.40.0", "2.56.0"),
        "qpid-broker-j": ("9.1.0", "9.2.0", "10.1.0"),
        "rabbitmq": ("3.10.8", "4.0.5", "4.3.6"),
    }
)
"""Tested versions by the name in `Capabilities.broker`, oldest first (docs/brokers.md)."""


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version: `4.3.6-rc.1` is (4, 3, 6); empty if it has none."""
    found = re.match(r"\d{1,6}(\.\d{1,6})*", version, re.ASCII)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def untested(broker: str, version: str) -> str | None:
    """Return how a broker differs from the tested ones, as a clause with a verb; None: it equals one of them.

    A version that differs in the third number only equals a tested one. For other brokers nothing is returned.
    """
    tested = TESTED.get(broker)
    if tested is None:
        return None
    release = numbers(version)[:2]
    releases = [numbers(known)[:2] for known in tested]
    if release in releases:
        return None
    if not release:
        return f"reports no version, and is treated as {tested[-1]}"
    if release > releases[-1]:
        return f"is newer than every tested version, and is treated as {tested[-1]}"
    if release < releases[0]:
        return "is older than every tested version"
    older = max(known for known in releases if known < release)
    return (
        f"was not tested itself; {tested[releases.index(older)]} and {tested[releases.index(older) + 1]} were"
    )
