"""Deliveries that were unsettled when a connection was lost: they prove which messages were not accepted over it.

The broker sends a message once over a connection, unless it was released. If it has sent two equal ones, and one was
accepted and the other was not, they are two messages, and neither may be taken for the other. The consumers are
notified of the loss one after the other, in any order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    from redelivery.core.delivery import Delivery

__all__ = ["GivenBack", "HeldAtLoss"]


class HeldAtLoss:
    """Unsettled deliveries by key, and by digest once that is needed. Not thread-safe."""

    def __init__(self) -> None:
        self._deliveries: dict[Hashable, list[Delivery]] = {}
        self._digests: dict[Hashable, set[bytes]] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._deliveries

    def add(self, delivery: Delivery) -> None:
        """Add a delivery, until the next connection."""
        self._deliveries.setdefault(delivery.key, []).append(delivery)

    def digests(self, key: Hashable) -> Collection[bytes]:
        """Return the digests of all deliveries with this key. May take long; each is computed once."""
        known = self._digests.setdefault(key, set())
        deliveries = self._deliveries.get(key, [])
        known.update(delivery.digest() for delivery in deliveries)
        deliveries.clear()
        return known

    def clear(self) -> None:
        """Remove all: the broker redelivers them."""
        self._deliveries.clear()
        self._digests.clear()


class GivenBack:
    """Digests of deliveries released over each connection, by key, until another one is lost. Not thread-safe.

    Above the limit every message accepted over that connection counts as released: it is handled again.
    """

    def __init__(self) -> None:
        # By epoch; None: full.
        self._digests: dict[int, dict[Hashable, set[bytes]] | None] = {}
        self._many: dict[int, int] = {}

    def add(self, key: Hashable, digest: bytes, epoch: int, limit: float) -> None:
        """Add a digest."""
        digests = self._digests.setdefault(epoch, {})
        if digests is None or digest in digests.setdefault(key, set()):
            return
        digests[key].add(digest)
        self._many[epoch] = self._many.get(epoch, 0) + 1
        if self._many[epoch] > limit:
            self._digests[epoch] = None

    def digests(self, key: Hashable, epoch: int) -> Collection[bytes] | None:
        """Return the digests with this key of one connection; None: full, any digest counts as released."""
        digests = self._digests.get(epoch, {})
        return None if digests is None else digests.get(key, ())

    def lost(self, epoch: int) -> None:
        """Remove the digests of the connections before this one, which is lost."""
        for each in [each for each in self._digests if each < epoch]:
            del self._digests[each]
            self._many.pop(each, None)
