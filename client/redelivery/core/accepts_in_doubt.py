"""Accepted messages of which a broker may not have learned: by what a copy of each may be accepted unseen."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["AcceptsInDoubt", "Proof"]

Proof = tuple["Hashable", bytes | None]
"""A key with a digest; None in place of a digest where the key says all, for the broker made it."""


class AcceptsInDoubt:
    """A bounded multiset of proofs. Not for threads."""

    def __init__(self) -> None:
        self._digests: OrderedDict[Hashable, Counter[bytes | None]] = OrderedDict()
        self._many = 0

    def __len__(self) -> int:
        return self._many

    def __contains__(self, key: Hashable) -> bool:
        return key in self._digests

    def add(self, proof: Proof | None, limit: float) -> None:
        """Take one in; past the limit the oldest keys are forgotten: their messages are handled again."""
        if proof is None:
            return
        key, digest = proof
        self._digests.setdefault(key, Counter())[digest] += 1
        self._digests.move_to_end(key)
        self._many += 1
        while self._many > max(0, limit):
            self._many -= self._digests.popitem(last=False)[1].total()

    def take(self, key: Hashable, digest: bytes | None) -> bool:
        """Take one away; return whether there was one."""
        digests = self._digests.get(key)
        if digests is None or digest not in digests:
            return False
        self._many -= 1
        digests[digest] -= 1
        if not digests[digest]:
            del digests[digest]
        if not digests:
            del self._digests[key]
        return True

    def discard(self, key: Hashable, digest: bytes | None) -> None:
        """Forget all of one message."""
        digests = self._digests.get(key)
        if digests is not None:
            self._many -= digests.pop(digest, 0)
            if not digests:
                del self._digests[key]

    def forget(self, *, strong: bool) -> None:
        """Forget those that are known by their keys alone, or those that are not."""
        for key, digests in list(self._digests.items()):
            for digest in [each for each in digests if (each is None) is strong]:
                self._many -= digests.pop(digest)
            if not digests:
                del self._digests[key]
