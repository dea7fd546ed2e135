"""What was released where the broker takes nothing back before the consumer closes.

It is kept here, unacknowledged, and counts as parked. When that leaves no room for a fresh message that is ready, what
was released first makes way: it is dispatched again when there is room and nothing else is ready. If nothing is ready,
since the broker may give no more while all this is unsettled, one is dispatched again each second. A consumer that
releases does not stand still, and does not go round in a circle either.
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
    """Deliveries in the order in which they were released. Its length is that of those that count as parked."""

    __slots__ = ("_again", "_many", "_next_turn", "coming", "kept")

    def __init__(self) -> None:
        # To be read by others, as asking for its truth is a call for each message.
        self.kept: dict[Delivery, None] = {}
        # Those that have made way: they take up credit, and no room for what is parked.
        self.coming: dict[Delivery, None] = {}
        # Those that came again, some of which are settled by now; with how many these are looked for.
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
        """How many may be dispatched again, if nothing else is ready."""
        return 0 if full else len(self.coming)

    def again(self) -> int:
        """How many of what is running was released here before. Called without a lock."""
        return len(self._at_work())

    def _at_work(self) -> set[Delivery]:
        return {each for each in list(self._again) if each.state == "running"}

    def next_due(self, due: float | None) -> float | None:
        """When the next one is dispatched again, or `due`, if that is sooner."""
        turn = self._next_turn
        return due if turn is None else turn if due is None else min(due, turn)

    def keep(self, delivery: Delivery) -> None:
        """Take in a delivery."""
        enter(delivery, "held")
        self.kept[delivery] = None

    def room(self, schedule: Schedule, room: int, now: float) -> bool:
        """Whether a fresh message may be dispatched, where so many more may be parked: below 1, others make way."""
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
        """Let the first one count as parked no longer: at once if it is `needed`, else in time. False if none does."""
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
        """Forget one, which the broker has taken back."""
        self.kept.pop(delivery, None)
        self.coming.pop(delivery, None)

    def clear(self) -> None:
        """Forget all of them."""
        self._again.clear()
        self.kept.clear()
        self.coming.clear()
        self._next_turn = None
