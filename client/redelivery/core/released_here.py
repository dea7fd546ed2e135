"""What was released where the broker takes nothing back before the consumer closes.

It is kept here, unacknowledged, and counts as parked. When that leaves no room for a fresh message, what was released
first comes again, behind all that is ready: else a consumer that releases now and then would come to a standstill.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.transitions import enter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redelivery.core.delivery import Delivery
    from redelivery.core.dispatch_order import Schedule

__all__ = ["ReleasedHere"]


class ReleasedHere:
    """Deliveries in the order in which they were released."""

    __slots__ = ("_deliveries",)

    def __init__(self) -> None:
        self._deliveries: dict[Delivery, None] = {}

    def __len__(self) -> int:
        return len(self._deliveries)

    def __iter__(self) -> Iterator[Delivery]:
        return iter(self._deliveries)

    def keep(self, delivery: Delivery) -> None:
        """Take in a delivery."""
        enter(delivery, "held")
        self._deliveries[delivery] = None

    def one_again(self, schedule: Schedule) -> bool:
        """Let the first one be dispatched again; False if there is none."""
        delivery = next(iter(self._deliveries), None)
        if delivery is not None:
            del self._deliveries[delivery]
            enter(delivery, "ready")
            schedule.add(delivery)
        return delivery is not None

    def clear(self) -> None:
        """Forget all of them."""
        self._deliveries.clear()
