"""Released deliveries of a broker that takes nothing back before the consumer closes.

They are kept here, unacknowledged, and count as parked. If that leaves no room for a fresh message that is ready, the
first released one makes room: it is dispatched again when there is room and nothing else is ready. If nothing is
ready, one is dispatched again each second, because the broker may send no more while they are unsettled. A consumer
that releases its messages thus neither stands still nor handles them in a tight loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.transitions import enter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redelivery.core.delivery import Delivery
    from redelivery.core.dispatch_order import Schedule

__all__ = ["ReleasedHere"]

# Seconds until one is dispatched again although no fresh message needs its room.
PAUSE = 1.0


class ReleasedHere:
    """Deliveries in order of their release. The length counts those that count as parked."""

    __slots__ = ("_again", "_many", "_next_turn", "coming", "kept")

    def __init__(self) -> None:
        # Public, because `bool(self)` would be a method call for each message.
        self.kept: dict[Delivery, None] = {}
        # Those that made room: they use credit, but no room for parked messages.
        self.coming: dict[Delivery, None] = {}
        # Those dispatched again, some of which are settled by now; and the size at which the settled ones are removed.
        self._again: set[Delivery] = set()
        self._many = 4
        # While nothing can be dispatched: when the next one is dispatched again.
        self._next_turn: float | None = None

    def __len__(self) -> int:
        return len(self.kept)

    def __bool__(self) -> bool:
        return bool(self.kept or self.coming)

    def __iter__(self) -> Iterator[Delivery]:
        yield from self.kept
        yield from self.coming

    def ready(self, *, full: bool) -> int:
        """Return how many may be dispatched again if nothing else is ready."""
        return 0 if full else len(self.coming)

    def again(self) -> int:
        """Return how many running deliveries were released here before. Called without a lock."""
        return len(self._at_work())

    def _at_work(self) -> set[Delivery]:
        return {each for each in list(self._again) if each.state == "running"}

    def next_due(self, due: float | None) -> float | None:
        """Return when the next one is dispatched again, or `due` if that is earlier."""
        turn = self._next_turn
        return due if turn is None else turn if due is None else min(due, turn)

    def keep(self, delivery: Delivery) -> None:
        """Add a delivery."""
        enter(delivery, "held")
        self.kept[delivery] = None

    def room(self, schedule: Schedule, room: int, now: float) -> bool:
        """Return True if a fresh message may be dispatched; `room` more may be parked. Below 1, others make room."""
        while room < 1:
            if not self._make_way(now, needed=schedule.ready() > 0):
                return False
            room += 1
        self._next_turn = None
        while room and self.coming and not schedule.ready():
            delivery = next(iter(self.coming))
            del self.coming[delivery]
            self._come_again(delivery)
            schedule.add(delivery)
            # It may have to wait behind its group.
            room -= 1
        return True

    def _make_way(self, now: float, *, needed: bool) -> bool:
        """Stop counting the first one as parked: at once if `needed`, otherwise in time. False if none does so."""
        if not self.kept:
            self._next_turn = None
            return False
        if not needed:
            if self._next_turn is None:
                self._next_turn = now + PAUSE
            if now < self._next_turn:
                return False
        self._next_turn = None
        delivery = next(iter(self.kept))
        del self.kept[delivery]
        self.coming[delivery] = None
        return True

    def _come_again(self, delivery: Delivery) -> None:
        enter(delivery, "ready")
        if len(self._again) >= self._many:
            self._again = self._at_work()
            self._many = 2 * len(self._again) + 4
        self._again.add(delivery)

    def forget(self, delivery: Delivery) -> None:
        """Remove a delivery that the broker has taken back."""
        self.kept.pop(delivery, None)
        self.coming.pop(delivery, None)

    def clear(self) -> None:
        """Remove all."""
        self._again.clear()
        self.kept.clear()
        self.coming.clear()
        self._next_turn = None
