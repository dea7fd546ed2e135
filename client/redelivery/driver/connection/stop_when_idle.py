"""Knowing when a connection has had nothing to do for a while."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.clock import Clock
    from redelivery.driver.consumer.dispatcher import Dispatcher

__all__ = ["IdleWatch"]

# Seconds of real time after which a clock that did not move is one that nobody moves.
STANDS = 2.0


class IdleWatch:
    """Looks at all dispatchers from time to time: `over` once nothing was ready, running, parked or new for so long.

    Not being connected counts as busy: nobody knows what waits at the broker. What nothing here brings to its end does
    not, or a run would have none: messages that a session holds when no handler is at work on them, dead letters that
    the broker has not confirmed, and what a handler has released that the broker does not take back: one of them comes
    again each second. The drain waits for these, and the report tells what is left.
    In real time, whatever the connection's clock is. Messages that wait by a manual clock, which would never be
    over, let it jump if it does that by itself; ConfigurationError if it stands still.
    """

    def __init__(
        self,
        dispatchers: Sequence[Dispatcher],
        seconds: float,
        connected: Callable[[], bool],
        clock: Clock | None = None,
    ) -> None:
        self.interval = max(0.001, min(seconds / 10, 0.1))
        self._dispatchers = dispatchers
        self._seconds = seconds
        self._connected = connected
        self._since = time.monotonic()
        # What has changed since the last look.
        self._seen: tuple[int, ...] = ()
        self._jump: Callable[[], None] | None = getattr(clock, "jump", None)  # manual clocks have it
        self._clock = clock
        # The clock's time, and since when it is that.
        self._stood = 0.0, self._since

    def over(self) -> bool:
        """Whether it has been idle for long enough."""
        dispatchers = [dispatcher for dispatcher in list(self._dispatchers) if not dispatcher.unheard]
        engines = [dispatcher.engine for dispatcher in dispatchers]
        held = [dispatcher.left_to_its_session() for dispatcher in dispatchers]
        acting = any(engine.load.working > idle for engine, idle in zip(engines, held, strict=True))
        parked = any(engine.load.waiting > engine.load.unconfirmed for engine in engines)
        seen = (
            sum(engine.arrived for engine in engines),
            sum(held),
            sum(engine.load.unconfirmed for engine in engines),
        )
        now = time.monotonic()
        if self._clock is not None and self._jump is not None:
            self._watch_clock(self._clock, self._jump, now, waiting=parked and not acting)
        if not self._connected() or acting or parked or seen != self._seen:
            self._seen, self._since = seen, now
        return now - self._since >= self._seconds

    def _watch_clock(self, clock: Clock, jump: Callable[[], None], now: float, *, waiting: bool) -> None:
        if waiting:
            jump()
        at = clock.monotonic()
        if not waiting or at != self._stood[0]:
            self._stood = at, now
        elif now - self._stood[1] >= max(self._seconds, STANDS):
            raise ConfigurationError(
                "run() waits for a clock that nobody moves: use start() and clock.advance()", option="clock"
            )
