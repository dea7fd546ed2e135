"""Deliveries of a subscription that the broker does not take back at its end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Returnable", "UnsettledDeliveries"]


class Returnable(Protocol):
    """A delivery that can be released."""

    def returned(self) -> bytes:
        """Return the frame that releases it."""
        ...


class UnsettledDeliveries:
    """The unsettled deliveries of one subscription. The reading thread adds them; any thread settles them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: set[Returnable] = set()
        self._ended = False

    def take(self, deliveries: Sequence[Returnable]) -> bool:
        """Add deliveries that arrived; return True if their consumer has not ended."""
        with self._lock:
            self._held.update(deliveries)
            return not self._ended

    def settled(self, deliveries: Iterable[Returnable]) -> None:
        """Remove deliveries whose settlement is being written."""
        # Not beside `end`, which would return what is just being settled: a release behind it, of the same message.
        with self._lock:
            self._held.difference_update(deliveries)

    def end(self) -> list[Returnable]:
        """Return the deliveries to release. Later arrivals are returned by the next call."""
        with self._lock:
            self._ended = True
            held, self._held = self._held, set()
            return list(held)
