"""Dispatcher of a connection with a ledger: it looks up and marks each attempt before the handler begins.

The ledger's entries and marks are in memory. Its file must be read only if another process has written, or has died.
The delivery is then kept in `_unknown`, and the thread that wanted it reads the file without a lock.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from redelivery.core.commands import Bury, Clear, LookUp, Mark, Stop
from redelivery.core.events import Alone, Known, Released, Wanted
from redelivery.driver.consumer.dispatcher import Dispatcher
from redelivery.errors import LedgerError
from redelivery.ledger import Behind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.clock import Clock
    from redelivery.core.commands import Command, Subscribe
    from redelivery.core.delivery import Delivery
    from redelivery.core.engine import Engine
    from redelivery.core.events import Event
    from redelivery.core.policy.policy_map import RedeliveryPolicyMap
    from redelivery.driver.connection.connection_ledger import ConnectionLedger
    from redelivery.driver.consumer.dispatcher import DriverPort
    from redelivery.driver.consumer.observation import Observation
    from redelivery.driver.observers import Observers
    from redelivery.errors import RedeliveryError

__all__ = ["LedgerDispatcher"]

ALONE = Alone()
WANTED = Wanted()


class LedgerDispatcher(Dispatcher):
    """One consumer of a connection with a ledger."""

    keeps_counts = True

    def __init__(
        self,
        subscribe: Subscribe,
        engine: Engine,
        driver: DriverPort,
        clock: Clock,
        policies: RedeliveryPolicyMap,
        observers: Observers,
        connection_ledger: ConnectionLedger,
    ) -> None:
        super().__init__(subscribe, engine, driver, clock, policies, observers)
        self._connection_ledger = connection_ledger
        self._turns = connection_ledger.turns
        # Deliveries for which the ledger's file must be read first.
        self._unknown: deque[Delivery] = deque()
        # Deliveries to dispatch, for the next thread that takes one.
        self._decided: deque[Delivery] = deque()
        self._inside = 0  # attempts and lookups
        # True if this consumer may be queued for an exclusive run.
        self._claims = False
        # True while this consumer has the exclusive run of this process.
        self._alone = False
        # True if another consumer has an exclusive run, or is about to have one.
        self._shut_out = False

    def poll(
        self, after: Event | None = None, watch: Observation | None = None
    ) -> tuple[Delivery | None, float | None]:
        """As `Dispatcher.poll`; read the ledger's file if necessary."""
        found = super().poll(after, watch)
        while found[0] is None and self._learn_one():
            found = super().poll()
        return found

    def take(
        self, after: Event | None = None, timeout: float | None = None, watch: Observation | None = None
    ) -> Delivery | None:
        """As `Dispatcher.take`; read the ledger's file if necessary."""
        found = super().take(after, timeout, watch)
        while found is None and self._learn_one():
            found = super().take(None, 0.0)
        return found

    def tick(self) -> None:
        """Run the timers; wake threads that wait for an exclusive run to begin or end, or for the ledger's error."""
        super().tick()
        try:
            self._connection_ledger.forget(self._clock.monotonic())
        except LedgerError as error:
            with self._lock:
                self._fail(error)
                shown = self.events.take()
            self.show(shown)
        if self._turns != self._connection_ledger.turns:
            with self._lock:
                self._turns = self._connection_ledger.turns
                self._fail()
                self._wake(everyone=True)
                shown = self.events.take()
            self.show(shown)

    def next_alarm(self) -> float | None:
        """Return the time at which `tick` has something to do, or None."""
        alarms = super().next_alarm(), self._connection_ledger.next_verdict()
        return min((alarm for alarm in alarms if alarm is not None), default=None)

    def stop(self, error: RedeliveryError | None = None) -> None:
        """Dispatch nothing more, and leave the queue for exclusive runs."""
        super().stop(error)
        self._connection_ledger.withdraw(self)

    def disconnect(self, error: RedeliveryError) -> None:
        """Drop all deliveries. Messages that the application pulled and did not settle are not attempts any more."""
        super().disconnect(error)
        with self._lock:
            if self.pulled:
                for delivery in self.engine.attempts():
                    # An error of the ledger must not prevent the close.
                    with suppress(LedgerError):
                        self._connection_ledger.clear(Clear(delivery, None, keep=True))
            while self._inside or self._alone:
                self._leave_run()

    def hang(self, delivery: Delivery) -> None:
        """Record that a handler will not end: its message is charged when this process ends."""
        with self._lock:
            if delivery.state == "running":
                self._connection_ledger.hang(delivery)

    # With the lock held.

    def _fail(self, error: LedgerError | None = None) -> bool:
        """Stop the consumer if the ledger cannot count; return True if so."""
        error = error or self._connection_ledger.error
        if error is None:
            return False
        if not self.closed:
            self._route((Stop(error),), self._clock.monotonic())
        return True

    def _next(self, now: float) -> Delivery | None:
        if self._decided and not self.closed:
            return self._decided.popleft()
        if self.closed or (self._connection_ledger.ledger.error is not None and self._fail()):
            while self._decided:
                self._route(self.engine.feed(Released(self._decided.popleft()), now), now)
            self._notice_end()
            return None
        self._shut_out = False
        if not self.engine.load.suspects:  # nearly always
            # The suspects were deliveries of a lost connection.
            if self._claims:
                self._claims = False
                self._connection_ledger.withdraw(self)
            if not self._entered(now):
                return None
            found = self._beside(now)
            if found is not None or self._unknown or not self.engine.load.suspects:
                return found
        self._claims = True
        if not self._connection_ledger.turn(self, now):
            return self._beside(now) if self._entered(now) else None
        return self._by_itself(now)

    def _entered(self, now: float) -> bool:
        if not self._connection_ledger.enter(now):
            self._shut_out = True
            return False
        self._inside += 1
        return True

    def _beside(self, now: float) -> Delivery | None:
        """Take the next delivery, to run concurrently with others; `enter` has succeeded before."""
        while commands := self.engine.feed(WANTED, now):
            first = commands[0]
            if isinstance(first, LookUp):
                if len(commands) > 1:
                    self._route(commands[1:], now)
                delivery = first.delivery
                try:
                    entry = self._connection_ledger.look_up(delivery)
                except Behind:
                    self._unknown.append(delivery)
                    return None
                except LedgerError as error:
                    self._give_up(delivery, error, now)
                    return None
                commands = self.engine.feed(Known(delivery, entry), now)
            found = self._begun(commands, now)
            if found is not None:
                return found
            if self.closed or self.engine.load.suspects:
                break
        self._leave_run()
        return None

    def _by_itself(self, now: float) -> Delivery | None:
        """Take a crash suspect for the exclusive run that this consumer has got."""
        self._alone = True
        found = self._begun(self.engine.feed(ALONE, now), now)
        if found is None:
            self._leave_run()
        return found

    def _begun(self, commands: Sequence[Command], now: float) -> Delivery | None:
        """Carry out commands; return the delivery of a dispatch among them, after it was marked, or None."""
        first = commands[0] if commands else None
        if not isinstance(first, Mark):
            self._route(commands, now)
            self.events.waits(commands)
            return None
        try:
            self._connection_ledger.mark(first)
        except LedgerError as error:
            self._give_up(first.delivery, error, now)
            return None
        if self._throttle.paused:
            self._throttle.opens(self.engine.load.ready())
        if len(commands) > 2:
            self._route(commands, now)
        return first.delivery

    def _give_up(self, delivery: Delivery, error: LedgerError | None, now: float) -> None:
        """Release a delivery whose attempt cannot be counted."""
        self._fail(error)
        self._route(self.engine.feed(Released(delivery), now), now)

    def _leave_run(self) -> None:
        """End a lookup or attempt that was entered, or an exclusive run."""
        if self._alone:
            self._alone = False
            self._inside = 0
            self._connection_ledger.end_turn(self._clock.monotonic())
        elif self._inside:
            self._inside -= 1
            self._connection_ledger.leave()

    def _until(self, deadline: float | None, now: float) -> float | None:
        if not self._shut_out:
            return super()._until(deadline, now)
        waits = (self._connection_ledger.until(now), None if deadline is None else deadline - now)
        return min((wait for wait in waits if wait is not None), default=None)

    def _wait(self, timeout: float | None, *, linger: bool = False) -> None:
        if not self._unknown:
            super()._wait(timeout, linger=linger)
            return
        self._lock.release()
        try:
            self._learn_one()
        finally:
            self._lock.acquire()

    def _count(self, command: Clear | Bury) -> None:
        try:
            if isinstance(command, Clear):
                self._connection_ledger.clear(command)
            else:
                self._connection_ledger.bury(command, self._clock.monotonic())
                if command.early:
                    self._driver.expect_alarm(self)
        except LedgerError as error:
            self._fail(error)
        if isinstance(command, Clear):
            self._leave_run()

    # Without the lock.

    def _learn_one(self) -> bool:
        """Read the ledger's file for one delivery that needs it; return False if there is none."""
        try:
            delivery = self._unknown.popleft()
        except IndexError:
            return False
        self._learn(delivery)
        return True

    def _learn(self, delivery: Delivery) -> None:
        error: LedgerError | None = None
        try:
            self._connection_ledger.ledger.refresh(delivery.attempt[0])
        except LedgerError as caught:
            error = caught
        with self._lock:
            self._learned(delivery, error)
            shown = self.events.take()
        self.show(shown)

    def _learned(self, delivery: Delivery, error: LedgerError | None) -> None:
        """Decide on a delivery after the ledger's file was read, or failed with `error`. With the lock held."""
        now, entry = self._now(), None
        try:
            entry = None if error else self._connection_ledger.look_up(delivery, fresh=True)
        except LedgerError as caught:
            error = caught
        if self.closed or error is not None:
            self._give_up(delivery, error, now)
            return
        found = self._begun(self.engine.feed(Known(delivery, entry), now), now)
        if found is not None:
            self._decided.append(found)
        elif not self.closed:
            self._leave_run()
