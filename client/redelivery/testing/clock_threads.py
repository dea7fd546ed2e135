"""Which threads a manual clock waits for before it moves."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Alarm", "Threads"]


class Alarm:
    """What happens at `deadline` (None: only when notified): a waiter is woken, or a callback called."""

    __slots__ = ("awake", "callback", "condition", "deadline", "slot")

    def __init__(self, deadline: float | None) -> None:
        self.deadline = deadline
        self.awake = False  # woken, called or cancelled
        self.condition: threading.Condition | None = None
        self.callback: object = None
        self.slot: Slot | None = None


class Slot:
    """One thread that was counted in.

    Whoever starts a thread counts it in before, so that there is no moment at which it runs uncounted. Which
    thread it is shows when it waits for the first time: one that was not alive when it was counted in. Of several slots
    of that kind it has the newest: an older one may be of a thread that started before, and has not come to wait yet.
    """

    __slots__ = ("alarm", "before", "maker", "owner")

    def __init__(self) -> None:
        self.maker = threading.current_thread()
        self.before: WeakSet[threading.Thread] = WeakSet(threading.enumerate())
        self.owner: threading.Thread | None = None
        self.alarm: Alarm | None = None  # where the thread waits

    @property
    def waiting(self) -> bool:
        return self.alarm is not None and not self.alarm.awake


class Threads:
    """The threads that were counted in. Guarded by the clock's lock."""

    def __init__(self) -> None:
        self._slots: list[Slot] = []
        # The clock's own thread, which nobody waits for.
        self.helper: threading.Thread | None = None

    def attach(self) -> None:
        self._slots.append(Slot())

    def detach(self) -> None:
        """Count out the calling thread, or one that it has counted in and not started."""
        me = threading.current_thread()

        def fit(slot: Slot) -> int:
            if slot.owner is not None:
                return 0 if slot.owner is me else 4
            if me not in slot.before:
                return 1
            return 2 if slot.maker is me else 3

        best = min(reversed(self._slots), key=fit, default=None)
        if best is not None and fit(best) < 4:
            self._slots.remove(best)

    def claim(self) -> Slot | None:
        """Return the slot of the calling thread, or None: it was not counted in."""
        me = threading.current_thread()
        free = None
        for slot in self._slots:
            if slot.owner is me:
                return slot
            if slot.owner is None and me not in slot.before:
                free = slot
        if free is not None:
            free.owner = me
        return free

    def running(self, besides: threading.Thread) -> Iterable[str]:
        """Return the names of those that do not wait, `besides` one."""
        found: list[str] = []
        for slot in self._slots:
            if slot.waiting or slot.owner is besides:
                continue
            if slot.owner is not None:
                found.append(slot.owner.name)
            else:
                found += self._starting(slot)
        return found

    def _starting(self, slot: Slot) -> list[str]:
        """Return who may be the thread of a slot that has not waited yet: none, if it was not started yet."""
        known = {other.owner for other in self._slots} | {self.helper}
        return [t.name for t in threading.enumerate() if t not in slot.before and t not in known][:1]
