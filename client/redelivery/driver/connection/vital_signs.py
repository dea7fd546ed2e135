"""Signs of life of a connection's driver, for `health()`: its threads write them, any thread reads them, no lock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redelivery.clock import SystemClock
from redelivery.health import ConnectionHealth

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from redelivery.clock import Clock
    from redelivery.core.capabilities import Capabilities
    from redelivery.errors import RedeliveryError

__all__ = ["SILENT", "DriverHooks", "Pulse", "VitalSigns", "longest_sleep", "nudge"]


# ---- Pulse -----------------------------------------------------------------------------------------------
# Pulse of a thread or an event loop: a question that it answers when it turns, to find out if it still does.

# Seconds without an answer after which the thread or loop counts as dead in `health()`.
SILENT = 30.0


class Pulse:
    """One open question at most, and when it was asked. No lock: each step is one assignment."""

    def __init__(self) -> None:
        self._asked: float | None = None

    def answer(self) -> None:
        """Answer the question: called by the watched thread or loop, whenever it turns."""
        self._asked = None

    def ask(self, now: float) -> float:
        """Ask, unless a question is open; return the seconds since the open one was asked, else 0."""
        asked = self._asked
        if asked is None:
            self._asked = now
            return 0.0
        return now - asked


# ---- Vital signs -----------------------------------------------------------------------------------------

# Seconds of the machine's clock that the driver's thread sleeps at most: it logs handlers that run for long.
BEAT = 10.0


def longest_sleep(seconds: float | None, clock: Clock) -> float | None:
    """Return how many seconds the driver's thread sleeps; None: until it is woken.

    At most `BEAT`, except with a clock that a test moves.
    """
    if not isinstance(clock, SystemClock):
        return seconds
    return BEAT if seconds is None else min(seconds, BEAT)


def nudge(condition: threading.Condition, clock: Clock) -> None:
    """Wake a thread that waits for a condition, unless a thread holds the lock: that one is awake, or hangs."""
    if condition.acquire(blocking=False):
        try:
            clock.notify(condition)
        finally:
            condition.release()


def _nothing(_: object) -> None:
    """Do nothing."""


@dataclass(slots=True)
class DriverHooks:
    """Functions of a connection that its driver calls."""

    stopped: Callable[[Any], None] = _nothing
    """Called with a dispatcher that has stopped with an error, with its lock held."""
    given_up: Callable[[RedeliveryError], None] = _nothing
    """Called with the error with which the connection is given up; without a lock."""
    beat: Callable[[float], None] = _nothing
    """Called by the driver's thread with the time, about every `BEAT` seconds; without a lock."""


class VitalSigns:
    """Pulse of the driver's thread, number of its connections, and subscriptions that the broker has confirmed."""

    def __init__(self) -> None:
        self.pulse = Pulse()
        self.thread: threading.Thread | None = None
        self.connecting = False
        """True while the thread tries to reconnect: it does not turn then, and is alive all the same."""
        self.address = ""
        self.since: float | None = None
        self.connects = 0
        self._capabilities: Capabilities | None = None
        # Numbers of consumers.
        self._confirmed: set[int] = set()
        self._next_beat = 0.0

    def turned(self, now: float, beat: Callable[[float], None]) -> None:
        """Record a turn of the driver's thread; call `beat` if that is due."""
        self.pulse.answer()
        if now >= self._next_beat:
            self._next_beat = now + BEAT
            beat(now)

    def connected(self, address: str, capabilities: Capabilities, now: float) -> None:
        """Record a new connection: no subscription is confirmed on it yet."""
        self.address, self._capabilities, self.since = address, capabilities, now
        self._confirmed.clear()
        self.connects += 1

    @property
    def reconnects(self) -> int:
        """Number of connections after the first one."""
        return max(0, self.connects - 1)

    def confirm(self, consumer: int) -> None:
        """Record that the broker has confirmed a subscription."""
        self._confirmed.add(consumer)

    def withdraw(self, consumer: int) -> None:
        """Record that a subscription has ended, or was refused."""
        self._confirmed.discard(consumer)

    def confirmed(self, consumer: int) -> bool:
        """True if the broker has confirmed the subscription on the last connection."""
        return consumer in self._confirmed

    def silence(self, now: float, poke: Callable[[], None]) -> float | None:
        """Return the seconds for which the thread has not turned although it was woken; None: it has ended.

        `poke`: wakes the thread, so that it answers.
        """
        if self.thread is None or not self.thread.is_alive():
            return None
        if self.connecting:
            self.pulse.answer()
            return 0.0
        silence = self.pulse.ask(now)
        poke()
        return silence

    def connection(
        self, now: float, *, up: bool, silence: float | None = None, dropped: int = 0
    ) -> ConnectionHealth:
        """Return the connection's own part of its health.

        `silence`: seconds since the broker was heard; `dropped`: calls of hooks.
        """
        able = self._capabilities
        return ConnectionHealth(
            connected=up,
            address=self.address,
            broker="" if able is None else f"{able.broker} {able.version}".rstrip(),
            since_s=0.0 if self.since is None else now - self.since,
            reconnects=self.reconnects,
            silent_s=silence if up else None,
            hook_calls_dropped=dropped,
        )
