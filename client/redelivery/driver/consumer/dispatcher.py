"""Thread-safe wrapper of one consumer's engine: collects settlements and wakes threads that wait for a delivery.

The thread that ran a handler feeds the result, writes the settlements that are due, and takes the next delivery; no
other thread is involved. Commands are written outside of the lock.
"""

from __future__ import annotations

import threading
import time
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, assert_never

from redelivery.adapter_support.keyboard_interrupts import Uninterrupted, held_back
from redelivery.classifier import Classifier
from redelivery.clock import capped
from redelivery.core.commands import (
    Accept,
    AcceptUnseen,
    BreakerChanged,
    Bury,
    Clear,
    Credit,
    Dispatch,
    Dropped,
    Forward,
    Hold,
    LookUp,
    LossesCounted,
    Mark,
    PoisonAck,
    PolicyFault,
    Postponed,
    Refused,
    Release,
    Reschedule,
    SetAside,
    StillAside,
    Stop,
    TookBack,
    Unanswered,
)
from redelivery.core.events import Arrived, Confirmed, ConnectionLost, Released, Succeeded, Tick, Wanted
from redelivery.core.policy.policy_guard import would_exhaust
from redelivery.core.shown_values import LAST, calendar_time
from redelivery.driver.consumer.consumer_events import ConsumerEvents
from redelivery.driver.consumer.hooks import APPLICATION
from redelivery.driver.consumer.settlement_batch import LINGER, SettlementBatch, joined
from redelivery.errors import AlreadySettled, RedeliveryError, another

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from redelivery.clock import Clock
    from redelivery.core.commands import AdapterCommand, Command, Subscribe
    from redelivery.core.delivery import Delivery, Outcome
    from redelivery.core.engine import Engine
    from redelivery.core.events import Connected, Event
    from redelivery.core.message_history import MessageHistory
    from redelivery.core.policy.policy_map import RedeliveryPolicyMap
    from redelivery.core.protocol_poison import ProtocolPoison
    from redelivery.driver.connection.shared_history import SharedHistory
    from redelivery.driver.consumer.consumer_events import Drops
    from redelivery.driver.consumer.hooks import ConsumerHooks
    from redelivery.driver.consumer.observation import Observation
    from redelivery.driver.observers import Observers
    from redelivery.driver.session.activity import SessionActivity
    from redelivery.events import Event as Shown
    from redelivery.message import Message

__all__ = ["Dispatcher", "DriverPort", "ReadThrottle"]


# ---- Read throttle ---------------------------------------------------------------------------------------
# Short pauses of the reading thread while the workers have enough messages: it then reads more at once.
#
# Measured: reading as fast as possible gets five messages a read, and each read takes the interpreter lock from the
# handler. With pauses the same machine handles a third more messages. A pause delays heart-beats and receipts by 20
# ms at most. If handlers are slow, nearly all pauses are left out.

# Ready messages at which a pause begins, and at which it ends.
HIGH, LOW = 256, 64
PAUSE = 0.02  # seconds of a pause at most
# Events without a pause after a pause that no worker ended.
SKIPPED = 100


class ReadThrottle:
    """A pause that ends by the workers or by time. All methods but `wait` are called with the dispatcher's lock."""

    def __init__(self) -> None:
        self.paused = False
        self._skip = 0
        self._opened = threading.Lock()
        self._opened.acquire()

    def closes(self, ready: int) -> bool:
        """Return True if the reading thread is to pause now; it must then call `wait`."""
        # Only one thread pauses at a time: the end of a pause wakes one thread.
        if ready < HIGH or self.paused:
            return False
        if self._skip:
            self._skip -= 1
            return False
        self.paused = True
        return True

    def opens(self, ready: int) -> None:
        """End the pause if few messages are ready."""
        if ready <= LOW:
            self.paused = False
            if self._opened.locked():
                self._opened.release()

    def wait(self, lock: threading.Lock) -> None:
        """Pause the calling thread. Called without the dispatcher's `lock`; it is taken afterwards."""
        if self._opened.acquire(timeout=PAUSE):
            return
        with lock:
            if self.paused:
                self.paused = False
                # The handlers are slow: a pause would only delay receipts.
                self._skip = SKIPPED
            else:
                # A worker has just ended the pause: take the lock again for the next pause.
                self._opened.acquire(blocking=False)


# ---- Dispatcher ------------------------------------------------------------------------------------------

TICK = Tick()
WANTED = Wanted()


class Dispatcher:
    """One consumer of a connection. Any thread may call the public methods."""

    keeps_counts = False
    """True if a ledger keeps the counts of failures over the end of the process."""

    def __init__(
        self,
        subscribe: Subscribe,
        engine: Engine,
        driver: DriverPort,
        clock: Clock,
        policies: RedeliveryPolicyMap,
        observers: Observers,
        hooks: ConsumerHooks = APPLICATION,
    ) -> None:
        self.subscribe = subscribe
        self.engine = engine
        self.error: RedeliveryError | None = None
        self.closed = False
        self.session_state: ConsumerSession | None = None
        # Wakes the waiting tasks of an asyncio connection.
        self.on_ready: Callable[[], None] | None = None
        self._driver = driver
        self._clock = clock
        self._policies = policies
        self._hooks = hooks
        self._history: MessageHistory | None = None
        # Decides by the type of an exception what happens to a message.
        self.errors = Classifier()
        self._lock = threading.Lock()
        self._ready = threading.Condition(self._lock)
        # Notified when no poison acknowledgement is in doubt, or no thread is writing commands, any more.
        self._quiet = threading.Condition(self._lock)
        # Threads that have taken commands, and are about to write them.
        self._unwritten = 0
        self._waiting = 0
        # True if the application pulls messages; False if handlers are run.
        self.pulled = False
        self._settlements = SettlementBatch()
        # Shown without the lock: a log handler or an observer may be slow, and may close the connection.
        self.events = ConsumerEvents(subscribe, clock, policies, observers)
        self.events.of_queues = hooks.logs_results
        self._tell_holds = False
        self._throttle = ReadThrottle()

    # Called on the driver's and the adapter's threads.

    def feed(self, event: Event) -> None:
        """Feed an event; the driver's thread writes the resulting commands, because this one may own the socket."""
        if isinstance(event, Confirmed):
            self._hooks.answered(event)
        watched = self.events.observers.watches_events
        with self._lock:
            now = self._now()
            dead = self.engine.state.counts.poisoned
            commands = self.engine.feed(event, now)
            self._route(commands, now)
            if watched:
                self.events.fed(event, dead_lettered=self.engine.state.counts.poisoned > dead)
            self.events.waits(commands)
            if self._driver.protocol_poison.convicted and isinstance(event, Arrived):
                self._judge(event, now)
            # Accepts stay collected, unless the adapter takes each at once.
            writes = self._leave(self._settlements.urgent())
            self._wake(everyone=self.closed)
            if not self.engine.load.in_doubt:
                self._quiet.notify_all()
            pause = self._settlements.batch and self._throttle.closes(self.engine.load.ready())
            if isinstance(event, Confirmed):
                self._notice_end()
            shown = self.events.take()
        self._write(writes, shown)
        if pause:
            self._throttle.wait(self._lock)

    def share(self, histories: SharedHistory) -> None:
        """Use the shared history of the source, before the first connection, unless the hooks keep this one apart."""
        if self._hooks.shares_history and self._hooks.keeps_history:
            self._history = histories.opened(self.subscribe)
            self.engine.state.share(self._history)

    def unshare(self, histories: SharedHistory) -> None:
        """Give the history back for later consumers: this one has closed."""
        history, self._history = self._history, None
        if history is not None:
            histories.closed(self.subscribe, history)

    def connected(self, event: Connected) -> Sequence[AdapterCommand]:
        """Begin a connection; return the commands that must follow the subscription."""
        with self._lock:
            self._settlements.batch = event.capabilities.batch
            self._tell_holds = event.capabilities.window_in_bytes
            now = self._now()
            self._route(self.engine.feed(event, now), now)
            writes, shown = self._settlements.all(), self.events.take()
        self.show(shown)
        return writes

    def _write(self, writes: Sequence[AdapterCommand], shown: Sequence[Shown] = ()) -> None:
        """Write commands that were taken, and show events.

        With observers, show first: the broker's answer to the commands is a later event. Else write first: logging can
        wait.
        """
        first = bool(writes) and self.events.observers.watches_events
        if shown and first:
            self.show(shown)
        if writes:
            try:
                self._driver.write(writes)
            finally:
                with self._lock:
                    self._unwritten -= 1
                    if not self._unwritten:
                        self._quiet.notify_all()
        if shown and not first:
            self.show(shown)

    def show(self, events: Sequence[Shown]) -> None:
        """Show events to the log and the observers. Without the lock."""
        ends = self.events.observers.emit(events)
        if ends is not None:
            self.observer_ended(ends)

    def observer_ended(self, error: BaseException) -> None:
        """Stop the consumer: an observer raised a `BaseException` that is no `Exception`, for example Ctrl-C."""
        if self.error is None:
            stopped = RedeliveryError(
                f"{self.subscribe.destination}: the observer raised {type(error).__name__}"
            )
            stopped.__cause__ = error
            self.stop(stopped)

    def tick(self) -> None:
        """Run the engine's timer, if it is due."""
        alarm = self.next_alarm()
        if alarm is not None and alarm <= self._clock.monotonic():
            self.feed(TICK)

    def stop(self, error: RedeliveryError | None = None) -> None:
        """Dispatch nothing more; waiting calls return, or raise `error`."""
        with self._lock:
            self.closed = True
            self._end_with(self.error or error)
            self._wake(everyone=True)
            self._notice_end()
            shown = self.events.take()
        self.show(shown)

    def disconnect(self, error: RedeliveryError) -> None:
        """Drop all deliveries: the broker takes them back, and later results for them are stale."""
        self.feed(ConnectionLost(self.engine.state.epoch, error, closed=True))

    @property
    def collecting(self) -> bool:
        """True if there are collected settlements."""
        return self._settlements.collecting

    def pending(self, now: float) -> Sequence[AdapterCommand]:
        """Take the collected settlements that are due."""
        with self._lock:
            return self._settlements.aged(now)

    def next_alarm(self) -> float | None:
        """Return the time at which `tick` has something to do, or None."""
        with self._lock:
            return self.engine.next_alarm()

    def wall_time(self, at: float) -> datetime:
        """Return a time of the connection's clock as a date and time in UTC."""
        return calendar_time(at + self._clock.time() - self._clock.monotonic()) or LAST

    def is_last(self, delivery: Delivery) -> bool:
        """True if a failure charged now would make the message poison, by the policy of its destination."""
        policy = self._policies.policy_for(delivery.destination)
        return would_exhaust(policy, delivery.record, self._clock.monotonic())

    def hang(self, delivery: Delivery) -> None:
        """Record that a handler will not end. Does nothing: only a ledger could keep that."""

    # Called on the application's threads.

    def wait_confirmed(self, deadline: float) -> None:
        """Wait until all poison acknowledgements are confirmed, or until `deadline`."""
        with self._lock:
            while self.engine.load.unconfirmed and (left := deadline - self._clock.monotonic()) > 0:
                self._wait(left)

    def wait_answered(self, deadline: float) -> None:
        """Wait until the broker has answered all poison acknowledgements, or until `deadline`.

        In real time: the wait is for the broker's answers, not for a schedule.
        """
        with self._lock:
            while self.engine.load.in_doubt and (left := deadline - time.monotonic()) > 0:
                self._quiet.wait(capped(left))

    def wait_written(self, deadline: float) -> None:
        """Wait until no thread is about to write commands that it has taken; in real time, as above."""
        with self._lock:
            while self._unwritten and (left := deadline - time.monotonic()) > 0:
                self._quiet.wait(capped(left))

    def settle(self, delivery: Delivery, event: Event) -> Outcome:
        """Feed the result of a dispatch, and return its outcome.

        Raises:
            AlreadySettled: The delivery has a result already.
        """
        with Uninterrupted():
            with self._lock:
                if delivery.state != "running":
                    raise AlreadySettled("this message is settled already; settle each message once")
                now = self._now()
                self._result(event, now)
                outcome = delivery.outcome
                if self.closed:
                    self._notice_end()
                writes = self._settlements.due(now)
                # An asyncio loop must not block on a write.
                writes = self._take(writes) if self.on_ready is None else self._leave(writes)
                self._wake()
                shown = self.events.take()
            self._write(writes, shown)
        assert outcome is not None, "the engine sets an outcome for each result"
        return outcome

    def poll(
        self, after: Event | None = None, watch: Observation | None = None
    ) -> tuple[Delivery | None, float | None]:
        """Feed the result of the last dispatch and take the next delivery, if there is one; never wait.

        `after`: result of the last dispatch; `watch`: its observation.

        Returns:
            The delivery; or None, and the seconds until a parked one is due (None: none is parked).
        """
        with self._lock:
            now = self._now()
            if after is not None:
                changes = self.engine.load.changes
                self._result(after, now, watch)
                if self.engine.state.counts.stale:
                    self.events.stale()
                if changes or self.engine.load.changes:
                    # More deliveries may be ready now than this task takes, or at another time.
                    self._wake()
            delivery = self._next(now)
            writes = self._leave(
                self._settlements.due(now) if delivery is not None else self._settlements.all()
            )
            due = None if delivery is not None else self._until(None, now)
            shown = self.events.take() if self.events.pending else ()
        self._write(writes, shown)
        if watch is not None and watch.message is not None:
            self._show_end(watch, now)
        if delivery is None and self.error is not None:
            raise another(self.error)
        return delivery, due

    def _shown(self, event: Event | None, watch: Observation | None) -> Event | None:
        """Feed a result and show its events, unless it is a plain success: then only return it, not fed yet."""
        if event is None or event.__class__ is Succeeded:
            return event
        with self._lock:
            now = self._now()
            self._result(event, now, watch)
            if self._waiting:
                self._wake()
            shown = self.events.take()
        self.show(shown)
        if watch is not None and watch.message is not None:
            self._show_end(watch, now)
        return None

    def take_many(self, most: int, most_bytes: int, timeout: float) -> list[Delivery]:
        """Take all ready deliveries, after waiting up to `timeout` seconds for the first one.

        The list ends at `most` deliveries, or with the delivery whose body reaches `most_bytes` bytes of bodies.
        """
        first = self.take(None, timeout)
        if first is None:
            return []
        taken, size = [first], len(first.body)
        with self._lock:
            now = self._now()
            while len(taken) < most and size < most_bytes:
                delivery = self._next(now)
                if delivery is None:
                    break
                taken.append(delivery)
                size += len(delivery.body)
            # Expired messages are dead-lettered now, not later with the results of this batch.
            writes = self._take(self._settlements.due(now))
            shown = self.events.take()
        self._write(writes, shown)
        return taken

    def settle_many(self, events: Sequence[Event], *, together: bool = False) -> None:
        """Feed the results of several dispatches, and write their settlements at once.

        `together`: dead-letter copies are sent in one transaction. The result of a delivery of a lost connection is
        stale; its `outcome` is then `stale`.
        """
        with self._lock:
            now = self._now()
            for event in events:
                self._result(event, now)
            if self.closed:
                self._notice_end()
            writes = self._settlements.all()
            writes = self._take(joined(writes) if together else writes)
            self._wake()
            shown = self.events.take()
        self._write(writes, shown)

    def wait_unconfirmed(self, below: int) -> None:
        """Wait until fewer than `below` poison acknowledgements are unconfirmed, or the consumer has ended.

        Raises:
            RedeliveryError: The error that ended the consumer.
        """
        with self._lock:
            while self.engine.load.unconfirmed >= below and self.error is None:
                self._wait(1.0)
        if self.error is not None:
            raise self.error

    def take(
        self, after: Event | None = None, timeout: float | None = None, watch: Observation | None = None
    ) -> Delivery | None:
        """As `poll`, but wait for a delivery; None after `timeout` seconds, or when the consumer has ended.

        Raises:
            RedeliveryError: The error that stopped the consumer.
        """
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        after = self._shown(after, watch)
        lingered = False
        while True:
            with self._lock:
                now = self._now()
                if after is not None:
                    self._route(self.engine.feed(after, now), now)
                    after = None
                    if self._waiting:
                        self._wake()
                delivery = self._next(now)
                if delivery is not None:
                    writes = self._take(self._settlements.due(now))
                    if self._waiting:
                        self._pass_on()
                elif watch is not None and watch.message is not None:
                    # The end of the observed run is shown first.
                    writes = ()
                elif self._lingers(lingered):
                    lingered = True
                    self._wait(LINGER, linger=True)
                    continue
                else:
                    writes = self._take(self._settlements.all())
                    if not writes:
                        if self._has_ended(deadline, now):
                            return None
                        self._wait(self._until(deadline, now))
                        continue
                shown = self.events.take() if self.events.pending else ()
            self._write(writes, shown)
            if watch is not None and watch.message is not None:
                self._show_end(watch, now)
                delivery = self._unless_ended(delivery)
            if delivery is not None:
                return delivery

    # With the lock held.

    def _lingers(self, lingered: bool) -> bool:
        """True if collected settlements are kept back, to be joined by others; once only."""
        settlements = self._settlements
        if lingered or self.closed or not (settlements.collecting and settlements.batch):
            return False
        return not self.engine.load.awaited(settlements.collected)

    def _has_ended(self, deadline: float | None, now: float) -> bool:
        """True if the consumer has ended, or the time is over. Raises the consumer's error."""
        if self.events.pending or not (self.closed or (deadline is not None and deadline <= now)):
            return False
        self._pass_on()
        if self.error is not None:
            raise another(self.error)
        return True

    def _now(self) -> float:
        """Read both clocks before the next event is fed: the wall clock may have been set meanwhile."""
        now = self._clock.monotonic()
        # Without expiry, the engine's wall clock is before the expiry time of any message.
        self.engine.state.wall_offset = self._clock.time() - now if self._hooks.expires else -inf
        return now

    def _next(self, now: float) -> Delivery | None:
        if self.closed:
            self._notice_end()
            return None
        while commands := self.engine.feed(WANTED, now):
            first = commands[0]
            if len(commands) > 1 or first.__class__ is not Dispatch:
                self._route(commands, now)
                self.events.waits(commands)
            if isinstance(first, Dispatch):
                if self._throttle.paused:
                    self._throttle.opens(self.engine.load.ready())
                return first.delivery
        return None

    @property
    def over(self) -> bool:
        """True if the consumer has stopped with an error, and no handler or poison acknowledgement is unfinished."""
        return self.error is not None and not (self.engine.load.running or self.engine.load.unconfirmed)

    @property
    def unheard(self) -> bool:
        """True if the application may not pull from the consumer now: its session has a listener."""
        return self.pulled and self.session_state is not None and self.session_state.activity.listens

    def left_to_its_session(self) -> int:
        """Return the number of deliveries that its session has and no handler works on; needs no lock."""
        return 0 if self.session_state is None else self.session_state.idle(self)

    def _end_with(self, error: RedeliveryError | None) -> None:
        # First set the error, then notify the driver: its thread reads them in the opposite order.
        self.error = error
        if error is not None:
            self._driver.stopped(self)

    def _notice_end(self) -> None:
        """Make the driver's thread unsubscribe when all is over: prefetched messages go to other consumers."""
        if self.over:
            self._driver.expect_alarm(self)

    def _judge(self, event: Arrived, now: float) -> None:
        """Stop the consumer if a message arrives over which the broker has closed too many connections."""
        stop = self._driver.protocol_poison.verdict([delivery.proof for delivery in event.deliveries], now)
        if stop is not None and not self.closed:
            self._route((stop,), now)

    def _until(self, deadline: float | None, now: float) -> float | None:
        if self.engine.load.exhausted:
            self.events.spent(self.engine.load.running)
        elif self.engine.load.full:
            self.events.full(self.engine.load.parked)
        due = None if self.engine.load.exhausted else self.engine.load.next_due()
        if due is None:
            return None if deadline is None else deadline - now
        return max(0.0, (due if deadline is None else min(due, deadline)) - now)

    def _take(self, writes: Sequence[AdapterCommand]) -> Sequence[AdapterCommand]:
        """Mark commands as being written; `wait_written` blocks until they are."""
        if writes:
            self._unwritten += 1
        return writes

    def _leave(self, writes: Sequence[AdapterCommand]) -> Sequence[AdapterCommand]:
        """Leave commands to the driver's thread. Return them to be written here if the adapter cannot block."""
        if not (writes and self._settlements.batch):
            return self._take(writes)
        self._driver.defer(writes)
        return ()

    def _wait(self, timeout: float | None, *, linger: bool = False) -> None:
        if self.events.pending:
            self._show_unlocked()
            return
        held_by = None if linger else held_back()
        self._waiting += 1
        try:
            if linger:
                # Real time: the wait is for more settlements to write together, not for a schedule.
                self._ready.wait(timeout)
            elif held_by is None:
                self._clock.wait(self._ready, timeout)
            else:
                held_by.wait(self._clock, self._ready, timeout)
        finally:
            self._waiting -= 1

    def _pass_on(self) -> None:
        """Wake a waiting thread before this one leaves: no other may know of a delivery that is ready or due next."""
        if self._waiting and (self.engine.load.ready() or self.engine.load.next_due() is not None):
            self._clock.notify(self._ready)

    def _wake(self, *, everyone: bool = False) -> None:
        if self.engine.state.counts.stale:
            self.events.stale()
        if self._waiting:
            self._clock.notify(self._ready, self._waiting if everyone else max(1, self.engine.load.ready()))
        if self.on_ready is not None:
            self.on_ready()

    def _result(self, event: Event, now: float, watch: Observation | None = None) -> None:
        """Feed the result of a dispatch."""
        commands = self.engine.feed(event, now)
        if self._hooks.logs_results:
            self.events.result(event, commands, watch)
        self._route(commands, now)

    def conclude(self, event: Event, watch: Observation | None) -> None:
        """Feed the last result of a worker that ends; the driver's thread writes the resulting commands."""
        with self._lock:
            self._result(event, self._now(), watch)
            if self.closed:
                self._notice_end()
            writes = self._leave(self._settlements.all())
            self._wake()
            shown = self.events.take()
        self._write(writes, shown)

    def run_ended(self, watch: Observation) -> None:
        """Show that the last observed run of a worker that ends is over."""
        if watch.message is not None:
            self._show_end(watch, self._clock.monotonic())

    def _unless_ended(self, delivery: Delivery | None) -> Delivery | None:
        """Return a delivery that was taken; None, after releasing it, if an observer has ended the consumer since."""
        if delivery is not None and self.closed:
            self.settle(delivery, Released(delivery))
            return None
        return delivery

    def _show_end(self, watch: Observation, now: float) -> None:
        """Show the end of an observed run, then the broker's answers since. Without the lock."""
        if watch.show_end(now):
            with self._lock:
                later = watch.take_later()
            self.show(later)

    def _show_unlocked(self) -> None:
        """Show events, with the lock released meanwhile."""
        shown = self.events.take()
        self._lock.release()
        try:
            self.show(shown)
        finally:
            self._lock.acquire()

    def _count(self, command: Clear | Bury) -> None:
        """Pass a command on to the ledger. Does nothing here: there is none."""

    def _route(self, commands: Sequence[Command], now: float) -> None:  # noqa: C901, PLR0912 - the table of commands
        for command in commands:
            match command:
                case Dropped():
                    self.events.dropped(self._driver.drops.count())
                case Accept():
                    # First collect, then expect: the driver's thread works in the opposite order.
                    if self._settlements.collect(command.deliveries, now):
                        self._driver.expect(self)
                case AcceptUnseen():
                    self.events.unseen(command)
                case Clear() | Bury():
                    self._count(command)
                case PolicyFault():
                    self.events.policy(command)
                case BreakerChanged():
                    self.events.breaker(command)
                    if command.new != "closed":
                        # The broker may limit how long parked messages stay here.
                        self._driver.expect_alarm(self)
                case Dispatch() | LookUp() | Mark() | Unanswered() | TookBack() | LossesCounted():
                    pass
                case Hold():
                    if self._tell_holds:
                        self._settlements.put(command)
                case SetAside():
                    self._driver.expect_alarm(self)
                    self.events.aside(command)
                    if self._tell_holds:
                        self._settlements.put(Hold(command.delivery, inf, inf, 0, None))
                case StillAside():
                    self.events.aside(command)
                case Stop():
                    self.closed = True
                    self._end_with(command.error)
                    self.events.stopped(command.error)
                    self._wake(everyone=True)
                    self._notice_end()
                case PoisonAck() | Forward():
                    self._driver.expect_alarm(self)
                    self._settlements.put(command)
                case Postponed() | Refused():
                    # The retry is sooner than that of a missing answer.
                    self._driver.expect_alarm(self)
                case Release() | Credit() | Reschedule():
                    self._settlements.put(command)
                case _:
                    assert_never(command)


# ---- Dispatcher ports ------------------------------------------------------------------------------------
# Interfaces that a dispatcher uses: the driver of its connection, and the session of its consumer.


class DriverPort(Protocol):
    """Interface of a connection's driver for its dispatchers; `ConnectionDriver` implements it."""

    protocol_poison: ProtocolPoison
    drops: Drops

    def write(self, commands: Sequence[AdapterCommand]) -> None:
        """Write commands on this thread."""

    def defer(self, commands: Sequence[AdapterCommand]) -> None:
        """Leave commands to the driver's thread."""

    def expect(self, dispatcher: Any) -> None:
        """Make the driver's thread write the settlements that a dispatcher collects."""

    def expect_alarm(self, dispatcher: Any = None) -> None:
        """Wake the driver's thread: the next timer of an engine may have moved forward. None: of any engine."""

    def stopped(self, dispatcher: Any) -> None:
        """Make the driver's thread unsubscribe a dispatcher that has an error, when its work is over."""


class ConsumerSession(Protocol):
    """Interface of a consumer's session for its dispatcher; `SessionState` implements it."""

    activity: SessionActivity

    def message(self, delivery: Delivery, dispatcher: Any, *, handled: bool) -> Message:
        """Return the message of a delivery. `handled`: True if a handler gets it."""
        ...

    def pulled(self, message: Any) -> None:
        """Record that a `receive` is about to return a message."""

    def idle(self, dispatcher: object) -> int:
        """Return the number of deliveries of this dispatcher that the session has and no handler works on."""
        ...
