"""Shortens an input with the same fault: leaves out blocks, then replaces single bytes by plain ones."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.fuzz.child import try_in_child
from tests.fuzz.trial import forget_peak, try_input

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fuzz.target import Target
    from tests.fuzz.trial import Finding

__all__ = ["minimised"]

_TRIES = 3000
_SECONDS = 30.0


def minimised(target: Target, finding: Finding) -> Finding:
    """Return the shortest finding of the same fault within some thousand tries, or half a minute."""
    best = finding
    tries, until = 0, time.monotonic() + _SECONDS

    def fails(data: bytes) -> bool:
        nonlocal best, tries
        tries += 1
        if finding.kind == "memory":
            forget_peak()
        found = try_in_child(target, data) if target.isolated else try_input(target, data).finding
        if found is None or found.fault != finding.fault:
            return False
        best = found
        return True

    def more() -> bool:
        return tries < _TRIES and time.monotonic() < until

    # Memory that is kept over many inputs does not show in a single one.
    if finding.place != "held":
        _shorten(finding.data, fails, more)
        _plain(best.data, fails, more)
    return best


def _shorten(data: bytes, fails: Callable[[bytes], bool], more: Callable[[], bool]) -> None:
    size = max(len(data) // 2, 1)
    while data and more():
        place, shorter = 0, False
        while place < len(data) and more():
            without = data[:place] + data[place + size :]
            if fails(without):
                data, shorter = without, True
            else:
                place += size
        if size == 1 and not shorter:
            return
        size = max(size // 2, 1) if not shorter or size > len(data) else size


def _plain(data: bytes, fails: Callable[[bytes], bool], more: Callable[[], bool]) -> None:
    for place in range(min(len(data), 200)):
        if not more():
            return
        plain = data[:place] + b"a" + data[place + 1 :]
        if data[place : place + 1] not in b"a0123456789" and fails(plain):
            data = plain
