"""Order of dispatch: three schedules of ready and parked deliveries.

The consumer may park only so many messages. Therefore each schedule counts as `parked` every delivery that a failure
holds up: the parked ones, and those behind them.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redelivery.core.delivery import Delivery

__all__ = ["Blocking", "NonBlocking", "Ordering", "PerGroup", "Schedule", "schedule_for"]

Ordering = Literal["blocking", "non_blocking", "per_group"]


class Schedule(Protocol):
    """Ready and parked deliveries of a consumer. They leave by `next`, `withdrawn` or `clear`."""

    @property
    def parked(self) -> int:
        """Number of deliveries held up: those with a due time, and those behind one of them."""
        ...

    def add(self, delivery: Delivery) -> None:
        """Add a delivery that may be dispatched at once, behind the others."""

    def park(self, delivery: Delivery, due: float) -> None:
        """Add a delivery that must wait until `due`."""

    def next(self, now: float, *, fresh: bool) -> Delivery | None:
        """Remove and return a delivery that is due or, if `fresh` ones are allowed, the next ready one."""

    def favour_fresh(self) -> None:
        """Return a ready delivery next, if there is one, before those that are parked."""

    def withdrawn(self, keep: int) -> list[Delivery]:
        """Remove the ready ones that were never parked, except the first `keep`; none where an order is kept."""
        ...

    def settled(self, delivery: Delivery) -> None:
        """Note that a delivery from `next` is settled and will not be parked."""

    def occupy(self, delivery: Delivery) -> None:
        """Note that a handler still has a delivery of a lost connection: its group must wait for it."""

    def next_due(self) -> float | None:
        """Return when `next` will have another delivery, if nothing else happens; None: never."""

    def ready(self) -> int:
        """Return how many deliveries `next` could return now, without the parked ones."""
        ...

    def __iter__(self) -> Iterator[Delivery]:
        """Iterate over all deliveries, in no order."""
        ...

    def __bool__(self) -> bool:
        """Return True if a delivery is ready or parked."""
        ...

    def parked_now(self) -> list[Delivery]:
        """Return those that have a due time, in no order. Safe without a lock."""
        ...

    def clear(self) -> None:
        """Remove everything."""


class _Heaped:
    """Ready deliveries, and a heap of parked ones. `NonBlocking` and `Blocking` add the order between them."""

    def __init__(self) -> None:
        self._ready: deque[Delivery] = deque()
        self._heap: list[tuple[float, float, Delivery]] = []
        self.parked: int = 0

    def add(self, delivery: Delivery) -> None:
        self._ready.append(delivery)

    def favour_fresh(self) -> None:
        """Do nothing: the order leaves no choice."""

    def withdrawn(self, keep: int) -> list[Delivery]:  # noqa: ARG002 - an order is kept
        return []

    def settled(self, delivery: Delivery) -> None:
        """Do nothing: no delivery waits for this one."""

    def occupy(self, delivery: Delivery) -> None:
        """Do nothing: no delivery waits for this one."""

    def __bool__(self) -> bool:
        return bool(self._ready or self._heap)

    def parked_now(self) -> list[Delivery]:
        return [parked[2] for parked in self._heap.copy()]

    def __iter__(self) -> Iterator[Delivery]:
        yield from self._ready
        for _, _, delivery in self._heap:
            yield delivery

    def clear(self) -> None:
        self._ready.clear()
        self._heap.clear()
        self.parked = 0


class NonBlocking(_Heaped):
    """Parked deliveries do not block the others; those that are due alternate with them."""

    # Otherwise a message that fails at once, again and again, would block the others; also if each delivery has a new
    # consumer, which begins with a parked message of the one before.
    _fresh_turn = True

    def park(self, delivery: Delivery, due: float) -> None:
        self.parked += 1
        heappush(self._heap, (due, delivery.seq, delivery))

    def next(self, now: float, *, fresh: bool) -> Delivery | None:
        heap, ready = self._heap, self._ready
        due = heap and heap[0][0] <= now
        if due and not (fresh and ready and self._fresh_turn):
            self.parked -= 1
            self._fresh_turn = True
            return heappop(heap)[2]
        if fresh and ready:
            self._fresh_turn = False
            return ready.popleft()
        return None

    def favour_fresh(self) -> None:
        self._fresh_turn = True

    def withdrawn(self, keep: int) -> list[Delivery]:
        ready = self._ready
        taken = [ready.pop() for _ in range(len(ready) - keep)]
        taken.reverse()
        return taken

    def next_due(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def ready(self) -> int:
        return len(self._ready)


class Blocking(_Heaped):
    """Strict order: a parked delivery blocks all others; failed ones are dispatched again in order of arrival."""

    def park(self, delivery: Delivery, due: float) -> None:
        self.parked += 1
        heappush(self._heap, (delivery.seq, due, delivery))

    def next(self, now: float, *, fresh: bool) -> Delivery | None:
        heap = self._heap
        if heap and not (fresh and self._ahead()):
            if heap[0][1] > now:
                return None
            self.parked -= 1
            return heappop(heap)[2]
        if fresh and self._ready:
            return self._ready.popleft()
        return None

    def _ahead(self) -> bool:
        """Return True if the ready one arrived before the parked one, whose record was remembered."""
        return bool(self._ready) and self._ready[0].seq < self._heap[0][0]

    def next_due(self) -> float | None:
        return self._heap[0][1] if self._heap else None

    def ready(self) -> int:
        if not self._heap:
            return len(self._ready)
        return 1 if self._ahead() else 0


class _Group:
    """Message group with a head: one delivery that is ready, runs or is parked. The others wait behind it."""

    __slots__ = ("behind", "counted", "head", "head_parked")

    def __init__(self, head: Delivery) -> None:
        self.head = head
        self.head_parked = False
        self.behind: deque[Delivery] = deque()
        # Number of those behind that count as parked.
        self.counted = 0

    def led_by(self, delivery: Delivery) -> bool:
        """Return True if it is the head, or the second delivery of a lost head: the two share a record."""
        head = self.head
        return head is delivery or (head.record is not None and head.record is delivery.record)


class PerGroup:
    """One delivery of a group at a time, in order; other groups, and messages without one, are not blocked."""

    def __init__(self) -> None:
        self._free = NonBlocking()
        self._groups: dict[str, _Group] = {}
        self._behind = 0  # number behind a parked head

    @property
    def parked(self) -> int:
        return self._free.parked + self._behind

    def add(self, delivery: Delivery) -> None:
        name = delivery.group
        if name is not None:
            group = self._groups.get(name)
            if group is not None:
                group.behind.append(delivery)
                self._count(group)
                return
            self._groups[name] = _Group(delivery)
        self._free.add(delivery)

    def park(self, delivery: Delivery, due: float) -> None:
        name = delivery.group
        if name is not None:
            group = self._groups.setdefault(name, _Group(delivery))
            if not group.led_by(delivery):
                # A broker need not redeliver in the old order: a failed message may arrive behind its successor.
                group.behind.append(delivery)
                self._count(group)
                return
            group.head = delivery
            group.head_parked = True
            self._count(group)
        self._free.park(delivery, due)

    def next(self, now: float, *, fresh: bool) -> Delivery | None:
        delivery = self._free.next(now, fresh=fresh)
        if delivery is not None and delivery.record is not None:
            group = self._groups.get(delivery.group) if delivery.group is not None else None
            if group is not None and group.head_parked:
                group.head_parked = False
                self._count(group)
        return delivery

    def settled(self, delivery: Delivery) -> None:
        name = delivery.group
        group = self._groups.get(name) if name is not None else None
        if name is None or group is None or not group.led_by(delivery):
            return
        if not group.behind:
            del self._groups[name]
            return
        head = group.head = group.behind.popleft()
        due = head.record.due if head.record is not None else None
        if due is None:
            self._free.add(head)
        else:
            group.head_parked = True
            self._free.park(head, due)
        self._count(group)

    def occupy(self, delivery: Delivery) -> None:
        if delivery.group is not None:
            self._groups.setdefault(delivery.group, _Group(delivery))

    def _count(self, group: _Group) -> None:
        counted = len(group.behind) if group.head_parked else 0
        self._behind += counted - group.counted
        group.counted = counted

    def favour_fresh(self) -> None:
        self._free.favour_fresh()

    def withdrawn(self, keep: int) -> list[Delivery]:  # noqa: ARG002 - an order is kept
        return []

    def next_due(self) -> float | None:
        return self._free.next_due()

    def ready(self) -> int:
        return self._free.ready()

    def __bool__(self) -> bool:
        return bool(self._free)

    def parked_now(self) -> list[Delivery]:
        return self._free.parked_now()

    def __iter__(self) -> Iterator[Delivery]:
        yield from self._free
        for group in self._groups.values():
            yield from group.behind

    def clear(self) -> None:
        self._free.clear()
        self._groups.clear()
        self._behind = 0


def schedule_for(ordering: Ordering) -> Schedule:
    """Return an empty schedule for this order."""
    if ordering == "blocking":
        return Blocking()
    return PerGroup() if ordering == "per_group" else NonBlocking()
