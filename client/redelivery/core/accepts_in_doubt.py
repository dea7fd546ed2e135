"""Acceptances that the broker may not have received: the recent ones of a consumer, and those of lost connections."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from redelivery.core.delivery import Delivery

__all__ = ["DOUBT", "KEPT", "AcceptsInDoubt", "Proof", "RecentAccepts"]


# ---- Accepts in doubt ------------------------------------------------------------------------------------
# Accepted messages whose acknowledgement the broker may not have received: a duplicate of one is accepted unseen.

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


# ---- Recent accepts --------------------------------------------------------------------------------------
# Recent acceptances of a consumer: if the connection is lost, the broker may not have read their acknowledgements.

# Bytes of bodies kept for digests that may never be needed. A broker reads acknowledgements in milliseconds.
KEPT = 1 << 20
# Seconds after which an acceptance known only by a producer's bytes counts as acknowledged: the broker has read it, or
# the connection has ended for want of heart-beats. Later the same bytes may be sent again on purpose.
DOUBT = 60.0


class RecentAccepts:
    """Deliveries in the order of their acceptance, at most `limit`.

    On the hot path no identity and no digest is computed. Therefore a message known only by its bytes keeps them.
    """

    __slots__ = ("_bytes", "_deliveries", "_kept", "_limit")

    def __init__(self, limit: int) -> None:
        self._deliveries: deque[Delivery] = deque(maxlen=limit)
        # Of each: its time of acceptance, and its number of bytes.
        self._kept: deque[tuple[Delivery, float, int]] = deque()
        self._bytes = 0
        self._limit = limit

    def add(self, delivery: Delivery, now: float) -> None:
        """Add a delivery, without its body; or with it, if needed, in place of the oldest ones that have theirs."""
        if not delivery.digested:
            self._deliveries.append(delivery.let_go())
            return
        size = delivery.slim()
        if size > KEPT // 2:
            # Keeping it would remove more than half of the others.
            return
        kept = self._kept
        kept.append((delivery, now, size))
        self._bytes += size
        # One by one: many at once would return their pages to the system, only to allocate them again. That costs 6 %
        # of the time over STOMP.
        while self._bytes > KEPT or len(kept) > self._limit:
            self._bytes -= kept.popleft()[2]

    def taken(self, now: float) -> Sequence[Delivery]:
        """Remove and return the acceptances that the broker may not have read."""
        deliveries = [*self._deliveries, *(each for each, at, _ in self._kept if now - at <= DOUBT)]
        self._deliveries.clear()
        self._kept.clear()
        self._bytes = 0
        return deliveries
