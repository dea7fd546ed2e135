"""Watch for a run that ends by itself: its connection has had nothing to do for long enough, or its breaker is open."""

from __future__ import annotations

import time
from math import inf
from typing import TYPE_CHECKING

from redelivery.errors import BreakerOpen, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.clock import Clock
    from redelivery.core.engine import Engine
    from redelivery.driver.consumer.dispatcher import Dispatcher

__all__ = ["IdleWatch"]

# Seconds for which a breaker may be open over a named failure: a run that ends by itself must not wait for a service
# for ever. An opening of unnamed failures ends by itself (`Breaker.maximum_unnamed`): bad messages must not keep each
# such run from the good ones behind them.
OPEN = 60.0
# Seconds of real time without a change after which a manual clock counts as standing still.
STANDS = 2.0


class IdleWatch:
    """Checks all dispatchers regularly: `over` when no message was ready, running, parked or new for `seconds`.

    - A lost connection counts as busy: messages may be waiting on the broker.
    - These do not count as busy, because nothing in this process ends them: messages that a session has when no handler
      works on them, dead letters that the broker has not confirmed, and messages that a handler has released and the
      broker does not take back (one of them is dispatched again each second). The drain waits for these, and the
      report counts the rest.
    - An open breaker is not idle. If it has seen a named failure, the run ends with an error after a minute, or
      `seconds` if that is longer; otherwise the opening ends by itself. The run also ends with an error, not with
      success, if nothing is left here while a breaker is open: the queue may have more.
    - `seconds` are real time, whatever the connection's clock is. If messages are parked by a manual clock, the clock
      jumps if it can do that by itself. If it stands still, the run ends with ConfigurationError.
    """

    def __init__(
        self,
        dispatchers: Sequence[Dispatcher],
        seconds: float,
        connected: Callable[[], bool],
        clock: Clock | None = None,
        failed: Callable[[BaseException], None] | None = None,
    ) -> None:
        """Watch from now on. `seconds`: infinite if idleness does not end the run."""
        self.interval = max(0.001, min(seconds / 10, 0.1))
        self._dispatchers = dispatchers
        self._seconds = seconds
        self._connected = connected
        self._since = time.monotonic()
        # Counts at the last check.
        self._seen: tuple[int, ...] = ()
        self._jump: Callable[[], None] | None = getattr(clock, "jump", None)  # manual clocks have it
        self._clock = clock
        self._failed = failed
        # The clock's time, and the real time at which it became that.
        self._stood = 0.0, self._since

    def over(self) -> bool:
        """True if the run is over: idle for long enough, or, which is an error of the run, a breaker open too long."""
        dispatchers = [dispatcher for dispatcher in list(self._dispatchers) if not dispatcher.unheard]
        engines = [dispatcher.engine for dispatcher in dispatchers]
        held = [dispatcher.left_to_its_session() for dispatcher in dispatchers]
        acting = any(engine.load.working > idle for engine, idle in zip(engines, held, strict=True))
        parked = any(engine.load.waiting > engine.load.unconfirmed for engine in engines)
        # Once more: a message that was parked at the first reading can have been due before the second one.
        acting = acting or any(engine.load.working > idle for engine, idle in zip(engines, held, strict=True))
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
        idle = now - self._since >= self._seconds
        if self._clock is not None and self._failed is not None and not acting:
            error = self._held_up(engines, self._clock.monotonic(), idle=idle)
            if error is not None:
                self._failed(error)
                return True
        return idle

    def _held_up(self, engines: Sequence[Engine], now: float, *, idle: bool) -> BreakerOpen | None:
        """Return the error of the run if a breaker has been open for too long, or is open at the end of the run."""
        limit = OPEN if self._seconds == inf else max(OPEN, self._seconds)
        for engine in engines:
            lasted, cause = engine.load.open_for(now), engine.load.open_because
            waits = engine.load.waiting > engine.load.unconfirmed and engine.load.is_down(now)
            if lasted is not None and (idle or (waits and lasted >= limit)):
                why = "unknown" if cause is None else cause.text
                return BreakerOpen(
                    f"no message has succeeded for {lasted:.0f} s: {why}; "
                    "a run that ends by itself does not wait longer"
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
                "run() waits for a clock that does not move; use start() and clock.advance()", option="clock"
            )
