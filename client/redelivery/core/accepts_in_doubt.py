"""Accepted messages of which a broker may not have learned: by what a copy of each may be accepted unseen."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["AcceptsInDoubt"]


class AcceptsInDoubt:
    """A bounded multiset of keys with digests; None in place of a digest where the key says all. Not for threads."""

    def __init__(self) -> None:
        self._digests: OrderedDict[Hashable, list[bytes | None]] = OrderedDict()
        self._many = 0

    def __len__(self) -> int:
        return self._many

    def __contains__(self, key: Hashable) -> bool:
        return key in self._digests

    def add(self, proof: tuple[Hashable, bytes | None] | None, limit: float) -> None:
        """Take one in; past the limit the oldest keys are forgotten: their messages are handled again."""
        if proof is None:
            return
        key, digest = proof
        self._digests.setdefault(key, []).append(digest)
        self._digests.move_to_end(key)
        self._many += 1
        while self._many > max(0, limit):
            self._many -= len(self._digests.popitem(last=False)[1])

    def take(self, key: Hashable, digest: bytes | None) -> bool:
        """Take one away; return whether there was one."""
        digests = self._digests.get(key, [])
        if digest not in digests:
            return False
        digests.remove(digest)
        self._many -= 1
        if not digests:
            del self._digests[key]
        return True

    def forget_strong(self) -> None:
        """Forget those that are known by their keys alone."""
        for key in [key for key, digests in self._digests.items() if None in digests]:
            self._many -= len(self._digests.pop(key))
