"""What the broker had not as accepted when a connection was lost: what was accepted over it is not these.

The broker sends a message once over a connection, unless it was given back. So if it has sent equal ones, and one of
them was accepted and one was not, they are two messages, and neither may be taken for the other. The consumers learn of
the loss one after the other, in any order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    from redelivery.core.delivery import Delivery

__all__ = ["GivenBack", "HeldAtLoss"]


class HeldAtLoss:
    """Held deliveries by key, and by digest once that is asked for. Not for threads."""

    def __init__(self) -> None:
        self._deliveries: dict[Hashable, list[Delivery]] = {}
        self._digests: dict[Hashable, set[bytes]] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._deliveries

    def add(self, delivery: Delivery) -> None:
        """Take one in, until the next connection."""
        self._deliveries.setdefault(delivery.key, []).append(delivery)

    def digests(self, key: Hashable) -> Collection[bytes]:
        """Return the digests of all that have a key. May take long; each is computed once."""
        known = self._digests.setdefault(key, set())
        deliveries = self._deliveries.get(key, [])
        known.update(delivery.digest() for delivery in deliveries)
        deliveries.clear()
        return known

    def clear(self) -> None:
        """Forget them: the broker sends them again."""
        self._deliveries.clear()
        self._digests.clear()


class GivenBack:
    """Digests of what was given back over each connection, by key, until another one is lost. Not for threads.

    Past the limit all that was accepted over that connection counts as given back: it is handled again.
    """

    def __init__(self) -> None:
        # By epoch; None: it is full.
        self._digests: dict[int, dict[Hashable, set[bytes]] | None] = {}
        self._many: dict[int, int] = {}

    def add(self, key: Hashable, digest: bytes, epoch: int, limit: float) -> None:
        """Take one in."""
        digests = self._digests.setdefault(epoch, {})
        if digests is None or digest in digests.setdefault(key, set()):
            return
        digests[key].add(digest)
        self._many[epoch] = self._many.get(epoch, 0) + 1
        if self._many[epoch] > limit:
            self._digests[epoch] = None

    def digests(self, key: Hashable, epoch: int) -> Collection[bytes] | None:
        """Return the digests of all of a connection that have a key; None: of whatever they may be."""
        digests = self._digests.get(epoch, {})
        return None if digests is None else digests.get(key, ())

    def lost(self, epoch: int) -> None:
        """Forget what was given back before the connection of this epoch, which is lost."""
        for each in [each for each in self._digests if each < epoch]:
            del self._digests[each]
            self._many.pop(each, None)
