"""Accepted messages whose acknowledgement the broker may not have received: a duplicate of one is accepted unseen."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["AcceptsInDoubt", "Proof"]

Proof = tuple["Hashable", bytes | None]
"""Key and digest of a message. The digest is None where the broker made the key: then the key alone identifies it."""


class AcceptsInDoubt:
    """Bounded multiset of proofs. Not thread-safe."""

    def __init__(self) -> None:
        self._digests: OrderedDict[Hashable, Counter[bytes | None]] = OrderedDict()
        self._many = 0

    def __len__(self) -> int:
        return self._many

    def __contains__(self, key: Hashable) -> bool:
        return key in self._digests

    def add(self, proof: Proof | None, limit: float) -> None:
        """Add one proof. Past `limit` the oldest keys are removed; their messages are handled again if redelivered."""
        if proof is None:
            return
        key, digest = proof
        self._digests.setdefault(key, Counter())[digest] += 1
        self._digests.move_to_end(key)
        self._many += 1
        while self._many > max(0, limit):
            self._many -= self._digests.popitem(last=False)[1].total()

    def take(self, key: Hashable, digest: bytes | None) -> bool:
        """Remove one proof; return True if there was one."""
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
        """Remove all proofs of one message."""
        digests = self._digests.get(key)
        if digests is not None:
            self._many -= digests.pop(digest, 0)
            if not digests:
                del self._digests[key]

    def forget(self, *, strong: bool) -> None:
        """Remove the proofs without a digest (`strong`), or those with one."""
        for key, digests in list(self._digests.items()):
            for digest in [each for each in digests if (each is None) is strong]:
                self._many -= digests.pop(digest)
            if not digests:
                del self._digests[key]
