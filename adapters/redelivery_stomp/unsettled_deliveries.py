"""Unsettled deliveries of a subscription whose end does not release them."""

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
        # Not at the same time as `end`, which would return a delivery that is just being settled: its release would
        # follow its settlement.
        with self._lock:
            self._held.difference_update(deliveries)

    def end(self) -> list[Returnable]:
        """Return the deliveries to release. Later arrivals are returned by the next call."""
        with self._lock:
            self._ended = True
            held, self._held = self._held, set()
            return list(held)
