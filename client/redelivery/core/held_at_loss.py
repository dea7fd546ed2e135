"""What the consumers of a source held unsettled when their connection was lost: what was accepted then is not these.

The broker sends a message once over a connection. So if it has sent equal ones, and one of them was accepted and one
was not, they are two messages, and neither may be taken for the other. The consumers learn of the loss one after the
other, in any order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    from redelivery.core.delivery import Delivery

__all__ = ["HeldAtLoss"]


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
