"""Threads that a manual clock waits for before it moves."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Alarm", "Threads"]


class Alarm:
    """Event at `deadline` (None: only when notified): a waiter is woken, or a callback is called."""

    __slots__ = ("awake", "callback", "condition", "deadline", "slot")

    def __init__(self, deadline: float | None) -> None:
        self.deadline = deadline
        self.awake = False  # woken, called or cancelled
        self.condition: threading.Condition | None = None
        self.callback: object = None
        self.slot: Slot | None = None


class Slot:
    """One counted thread.

    The code that starts a thread counts it before the start: it never runs uncounted. The thread of a slot is
    known when it waits for the first time: it was not alive when the slot was made. If several slots fit, the
    thread gets the newest one, because an older slot may belong to a thread that started earlier and has not
    waited yet.
    """

    __slots__ = ("alarm", "before", "maker", "owner")

    def __init__(self) -> None:
        self.maker = threading.current_thread()
        self.before: WeakSet[threading.Thread] = WeakSet(threading.enumerate())
        self.owner: threading.Thread | None = None
        self.alarm: Alarm | None = None  # what the thread waits for

    @property
    def waiting(self) -> bool:
        return self.alarm is not None and not self.alarm.awake


class Threads:
    """Counted threads. Guarded by the clock's lock."""

    def __init__(self) -> None:
        self._slots: list[Slot] = []
        # The clock's own thread. The clock does not wait for it.
        self.helper: threading.Thread | None = None

    def attach(self) -> None:
        self._slots.append(Slot())

    def detach(self) -> None:
        """Stop counting the calling thread, or one that it has counted and not started."""
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
        """Return the slot of the calling thread; None: the thread is not counted."""
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
        """Return the names of the counted threads that do not wait, without one thread."""
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
        """Return the name of the thread that may belong to an unclaimed slot; empty: it has not started."""
        known = {other.owner for other in self._slots} | {self.helper}
        return [t.name for t in threading.enumerate() if t not in slot.before and t not in known][:1]
