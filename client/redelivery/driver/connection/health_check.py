"""Computation of `connection.health()`: the state of each consumer, and the reasons for `live` and `ready`.

No I/O, and no lock for longer than a copy takes: a probe must answer while a consumer's thread hangs with its lock.
No other module computes the state of a consumer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from redelivery.core.delivery import Cause
from redelivery.core.destination import Destination
from redelivery.driver.connection.vital_signs import SILENT
from redelivery.errors import ConfigurationError, HandlerTimeout, near_miss
from redelivery.health import ConsumerHealth, Health

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.driver.connection.connection_driver import ConnectionDriver
    from redelivery.driver.connection.connection_end import Runner
    from redelivery.driver.consumer.dispatcher import Dispatcher
    from redelivery.driver.listening import HandlerRegistration
    from redelivery.health import ConsumerState, ReadyWhen

__all__ = ["HealthCheck"]

READY_WHEN: tuple[ReadyWhen, ...] = ("consuming", "connected")
# States that the application itself has caused.
OWN: tuple[ConsumerState, ...] = ("drained", "paused")


class HealthCheck:
    """Health of one connection at one moment. Made for one call of `health()`."""

    def __init__(
        self,
        driver: ConnectionDriver,
        listeners: Sequence[HandlerRegistration[Any]],
        *,
        now: float,
        entered: bool,
        drained: bool,
        closed: bool,
        texts: bool = True,
        dropped: int = 0,
    ) -> None:
        """`dropped`: calls of hooks that were dropped."""
        self._driver = driver
        self._listeners = listeners
        self._now = now
        self._entered = entered
        self._drained = drained
        self._closed = closed
        self._texts = texts
        self._dropped = dropped
        self._silence = driver.silence()

    def health(self, ready_when: str, error: BaseException | None, loop_silence: float | None) -> Health:
        """Return the health.

        Args:
            ready_when: `consuming`, or `connected`: pauses and open circuit breakers do not make it not ready.
            error: The error that has ended the connection, or None.
            loop_silence: Seconds for which the event loop has not answered; None: the loop is closed.

        Raises:
            ConfigurationError: `ready_when` has another value.
        """
        if ready_when not in READY_WHEN:
            hint = near_miss(ready_when, READY_WHEN) if isinstance(ready_when, str) else ""  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"ready_when={ready_when!r}: must be {' or '.join(READY_WHEN)}{hint}", option="ready_when"
            )
        consumers = [self._listener(listener) for listener in self._listeners if not self._gone(listener)]
        handled = {id(listener.dispatcher) for listener in self._listeners}
        pulled = [each for each in tuple(self._driver.open_consumers.dispatchers) if id(each) not in handled]
        consumers += [
            self._consumer(dispatcher, dispatcher.subscribe.destination, ()) for dispatcher in pulled
        ]
        dead = [*self._dead(error, consumers), *self._silent(loop_silence)]
        unready = self._unready(consumers, ready_when)
        return Health(
            live=not dead,
            ready=not dead and not unready,
            reasons=(*dead, *unready),
            connection=self._driver.signs.connection(
                self._now, up=self._driver.up, silence=self._silence, dropped=self._dropped
            ),
            consumers=tuple(consumers),
            totals=self._driver.open_consumers.report(),
            unaccounted=self._driver.shared_history.unaccounted(self._now),
        )

    # Consumers.

    def _gone(self, listener: HandlerRegistration[Any]) -> bool:
        """True if the listener's session was closed and its workers have ended: it is not shown any more."""
        return listener.ended and not any(runner.alive for runner in listener.runners)

    def _listener(self, listener: HandlerRegistration[Any]) -> ConsumerHealth:
        runners = cast("Sequence[Runner]", tuple(listener.runners))
        # The name is the same before the listener is started.
        name = (
            str(Destination.parse(listener.destination))
            if listener.dispatcher is None
            else listener.dispatcher.subscribe.destination
        )
        return self._consumer(listener.dispatcher, name, runners)

    def _consumer(
        self, dispatcher: Dispatcher | None, destination: str, runners: Sequence[Runner]
    ) -> ConsumerHealth:
        found = [run for runner in runners if (run := runner.run.now_running()) is not None]
        started = [at for runner in runners if (at := runner.run.started) is not None]
        load = None if dispatcher is None else dispatcher.engine.load
        error = None if dispatcher is None else dispatcher.error
        refusal = None if load is None else load.unconfirmed_because
        waits = (
            None
            if dispatcher is None
            else self._driver.refused_consumers.reason(dispatcher.subscribe.consumer)
        )
        return ConsumerHealth(
            destination=destination,
            state=self._state(dispatcher),
            workers=len(runners),
            workers_alive=len([runner for runner in runners if runner.alive]),
            running=0 if load is None else load.running,
            oldest_running_s=max((self._now - run.since for run in found), default=0.0),
            parked=0 if load is None else load.parked,
            oldest_parked_s=0.0 if load is None else load.oldest(self._now),
            last_dispatch_s=self._now - max(started) if started else None,
            unconfirmed=0 if load is None else load.unconfirmed,
            ready=0 if load is None else load.ready(),
            credit=0 if load is None else load.credit,
            paused=load is not None and load.paused,
            breaker="off" if load is None or not load.has_breaker else load.breaker_state,
            breaker_open_s=0.0 if load is None else load.open_for(self._now) or 0.0,
            breaker_cause=None
            if load is None or load.open_because is None
            else self._shown(load.open_because),
            error=None if error is None else self._shown(Cause.of(error)),
            unconfirmed_cause=None if refusal is None else self._shown(Cause.of(refusal)),
            refusal=None if waits is None else self._shown(Cause.of(waits)),
        )

    def _shown(self, cause: Cause) -> str:
        """Return type and text of an error, or its type alone."""
        # A reason that the application gave as text has no type.
        return cause.text if self._texts else cause.kind or "a failure"

    def _state(self, dispatcher: Dispatcher | None) -> ConsumerState:
        """Return the state of a consumer. Nothing else decides on it."""
        if self._drained or self._closed:
            return "drained" if dispatcher is None or dispatcher.error is None else "stopped"
        if dispatcher is None:
            return "starting"
        if dispatcher.error is not None or dispatcher.closed:
            return "stopped"
        if not self._driver.up or not self._driver.signs.confirmed(dispatcher.subscribe.consumer):
            return "waiting for the broker"
        return "paused" if dispatcher.engine.load.paused else "consuming"

    # Reasons why `live` or `ready` is False.

    def _dead(self, error: BaseException | None, consumers: Sequence[ConsumerHealth]) -> list[str]:
        """Return the reasons for a new process: an error, overdue handlers, ended workers."""
        reasons: list[str] = []
        if error is not None:
            # Without a `run` that ends by it, the other messages go on.
            what = "a handler did not end" if isinstance(error, HandlerTimeout) else "consuming has ended"
            reasons.append(f"{what}: {self._shown(Cause.of(error))}")
        for listener in self._listeners:
            for runner in cast("Sequence[Runner]", tuple(listener.runners)):
                reasons += self._overdue(runner)
        for each in consumers:
            lost = each.workers - each.workers_alive
            if lost and each.state not in ("drained", "stopped"):
                reasons.append(f"{each.destination}: {lost} of {each.workers} workers have ended")
        return reasons

    def _overdue(self, runner: Runner) -> list[str]:
        """Return a reason if the worker's handler has run for twice its timeout.

        Computed here, because the watch that logs it may be late.
        """
        deadline, found = runner.run.deadline, runner.run.now_running()
        if deadline is None or found is None or self._now - found.since < 2 * deadline.timeout:
            return []
        where = runner.run.dispatcher.subscribe.destination
        return [
            f"{where}: a handler runs for {self._now - found.since:.0f} s, its timeout is {deadline.timeout:g} s"
        ]

    def _silent(self, loop_silence: float | None) -> list[str]:
        """Return a reason for each own thread or loop of the connection that does not turn."""
        if not self._entered or self._closed:
            return []
        reasons: list[str] = []
        silence = self._driver.signs.silence(self._now, self._driver.poke)
        if silence is None:
            reasons.append("the connection's thread has ended")
        elif silence >= SILENT:
            reasons.append(f"the connection's thread has not turned for {silence:.0f} s")
        if loop_silence is None:
            reasons.append("the event loop is closed")
        elif loop_silence >= SILENT:
            reasons.append(f"the event loop has not turned for {loop_silence:.0f} s")
        return reasons

    def _unready(self, consumers: Sequence[ConsumerHealth], ready_when: str) -> list[str]:
        """Return the reasons why nothing is consumed now."""
        if not self._entered:
            return ["not connected yet"]
        if self._closed:
            return ["the connection is closed"]
        reasons = [] if self._driver.up else ["not connected"]
        beat = self._driver.heartbeat
        if self._silence is not None and beat is not None and self._silence > 2 * beat:
            reasons.append(f"nothing was heard from the broker for {self._silence:.0f} s")
        if self._drained:
            reasons.append("draining")
        for each in consumers:
            if each.refusal is not None:
                reasons.append(f"{each.destination}: waiting for the broker ({each.refusal})")
            elif not self._driver.up:
                continue
            elif each.state != "consuming" and each.state not in OWN:
                reasons.append(f"{each.destination}: {each.state}")
            elif each.state == "paused" and ready_when == "consuming":
                reasons.append(f"{each.destination}: paused")
            elif each.breaker in ("open", "probing") and ready_when == "consuming":
                lasts = f"{each.breaker_open_s:.0f} s"
                reasons.append(f"{each.destination}: breaker open for {lasts} ({each.breaker_cause})")
        return reasons
