"""Knowing when a connection has had nothing to do for a while."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from redelivery.errors import BreakerOpen, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.clock import Clock
    from redelivery.core.engine import Engine
    from redelivery.driver.consumer.dispatcher import Dispatcher

__all__ = ["IdleWatch"]

# Seconds for which a breaker may be open: a run that is to end by itself would wait for the service for ever.
OPEN = 60.0
# Seconds of real time after which a clock that did not move is one that nobody moves.
STANDS = 2.0


class IdleWatch:
    """Looks at all dispatchers from time to time: `over` once nothing was ready, running, parked or new for so long.

    Not being connected counts as busy: nobody knows what waits at the broker. What nothing here brings to its end does
    not, or a run would have none: messages that a session holds when no handler is at work on them, dead letters that
    the broker has not confirmed, and what a handler has released that the broker does not take back: one of them comes
    again each second. The drain waits for these, and the report tells what is left.
    A breaker that is open is not idle. After a minute, or `seconds` if that is longer, the run ends with an error.
    In real time, whatever the connection's clock is. Messages that wait by a manual clock, which would never be
    over, let it jump if it does that by itself; ConfigurationError if it stands still.
    """

    def __init__(
        self,
        dispatchers: Sequence[Dispatcher],
        seconds: float,
        connected: Callable[[], bool],
        clock: Clock | None = None,
        failed: Callable[[BaseException], None] | None = None,
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
        self._failed = failed
        # The clock's time, and since when it is that.
        self._stood = 0.0, self._since

    def over(self) -> bool:
        """Whether it has been idle for long enough, or a breaker open for too long: that is an error of the run."""
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
        if self._clock is not None and self._failed is not None and not acting:
            error = self._held_up(engines, self._clock.monotonic())
            if error is not None:
                self._failed(error)
                return True
        now = time.monotonic()
        if self._clock is not None and self._jump is not None:
            self._watch_clock(self._clock, self._jump, now, waiting=parked and not acting)
        if not self._connected() or acting or parked or seen != self._seen:
            self._seen, self._since = seen, now
        return now - self._since >= self._seconds

    def _held_up(self, engines: Sequence[Engine], now: float) -> BreakerOpen | None:
        """Return the error of a breaker that has been open for too long."""
        for engine in engines:
            lasted, cause = engine.load.open_for(now), engine.load.open_because
            waits = engine.load.waiting > engine.load.unconfirmed
            if waits and lasted is not None and lasted >= max(OPEN, self._seconds):
                why = "unknown" if cause is None else cause.text
                return BreakerOpen(
                    f"nothing has succeeded for {lasted:.0f} s: {why}; until_idle waits no longer"
                )
        return None

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
