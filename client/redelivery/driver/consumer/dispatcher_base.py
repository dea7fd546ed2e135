"""What a channel does with its lock held: ask the engine, carry out its commands as far as they need no I/O, wait."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from redelivery.classifier import Classifier
from redelivery.core.commands import (
    Accept,
    Bury,
    Clear,
    Dispatch,
    Dropped,
    Forward,
    Hold,
    LookUp,
    Mark,
    Poison,
    Release,
    Stop,
    Unanswered,
)
from redelivery.core.events import Inherited, Succeeded, Wanted
from redelivery.driver.connection.shared_history import heirs_of, source_of
from redelivery.driver.consumer import message_log
from redelivery.driver.consumer.read_throttle import Gate
from redelivery.driver.consumer.settlement_batch import Outbox

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.clock import Clock
    from redelivery.core.commands import AdapterCommand, Command, Subscribe
    from redelivery.core.delivery import Delivery
    from redelivery.core.engine import Engine
    from redelivery.core.events import Arrived, Event
    from redelivery.core.policy.policy_map import RedeliveryPolicyMap
    from redelivery.driver.connection.manager import Keeper
    from redelivery.driver.session.session_state import Holdings
    from redelivery.errors import RedeliveryError

__all__ = ["Locked"]

logger = logging.getLogger("redelivery")

WANTED = Wanted()


class Locked:
    """The inner part of a channel. Whoever calls one of its methods holds the lock."""

    def __init__(
        self,
        subscribe: Subscribe,
        engine: Engine,
        keeper: Keeper,
        clock: Clock,
        policies: RedeliveryPolicyMap,
        observer: Callable[[Subscribe, Command], None] | None = None,
    ) -> None:
        self.subscribe = subscribe
        self.engine = engine
        self.error: RedeliveryError | None = None
        self.closed = False
        self.holdings: Holdings | None = None  # of its session
        self.on_ready: Callable[[], None] | None = None  # an asynchronous waiter's wake-up
        self._keeper = keeper
        self._clock = clock
        self._policies = policies  # for the log; the engine has them too
        self._observer = observer
        self.errors = Classifier()  # what becomes of a message by its exception's type
        self._lock = threading.Lock()
        self._ready = threading.Condition(self._lock)
        self._quiet = threading.Condition(self._lock)  # told when nothing is in doubt, or in hand, any more
        self._in_hand = 0  # threads that have taken commands, and are about to write them
        self._waiting = 0
        self.pulled = False  # whether the application takes messages itself; else handlers are run
        self._outbox = Outbox()
        self._once = message_log.Once(subscribe)
        self._tell_holds = False
        self._gate = Gate()
        self._source = source_of(subscribe)
        self._heirs = heirs_of(subscribe)

    def _now(self) -> float:
        """Read both clocks, for what is fed next: the wall clock may have been set at any time."""
        now = self._clock.monotonic()
        self.engine.wall_offset = self._clock.time() - now
        return now

    def _next(self, now: float) -> Delivery | None:
        if self.closed:
            self._notice_end()
            return None
        while commands := self.engine.feed(WANTED, now):
            first = commands[0]
            if len(commands) > 1 or self._observer is not None or first.__class__ is not Dispatch:
                self._route(commands, now)
                message_log.say_waits(commands)
            if isinstance(first, Dispatch):
                if self._gate.paused:
                    self._gate.opens(self.engine.ready())
                return first.delivery
        return None

    @property
    def over(self) -> bool:
        """Whether it has stopped with an error, and nothing is left that the broker should still hear of."""
        return self.error is not None and not (self.engine.running or self.engine.unconfirmed)

    @property
    def unheard(self) -> bool:
        """Whether nobody may receive from it: its session has a listener."""
        return self.pulled and self.holdings is not None and self.holdings.at_work.listens

    def left_to_its_session(self) -> int:
        """How many deliveries its session holds, and nobody is at work on; needs no lock."""
        return 0 if self.holdings is None else self.holdings.idle(self)

    def _notice_end(self) -> None:
        """Have the keeper unsubscribe once all is over: what was prefetched is for others."""
        if self.over:
            self._keeper.expect_alarm()

    def _claim(self, event: Arrived, now: float) -> None:
        """Take over what other consumers knew of the messages that arrive."""
        if self._heirs == "all" and self._source in self._keeper.legacy.sources:
            epoch = self.engine.epoch
            keys = [delivery.key for delivery in event.deliveries if delivery.epoch == epoch]
            records = self._keeper.legacy.claim(self._source, keys)
            if records:
                self._route(self.engine.feed(Inherited(records), now), now)

    def _judge(self, event: Arrived, now: float) -> None:
        """Stop over a message that has broken too many connections: it is not handed out again."""
        stop = self._keeper.suspects.verdict([delivery.key for delivery in event.deliveries], now)
        if stop is not None and not self.closed:
            self._route((stop,), now)

    def _leave_behind(self) -> None:
        """Leave what is known of messages that go to others from here, before the broker can give them to anybody."""
        if self._heirs == "all" or (self._heirs == "later" and self.closed):
            records = self.engine.leave(closed=self.closed)
            self._keeper.legacy.leave(self._source, records)

    def _until(self, deadline: float | None, now: float) -> float | None:
        if self.engine.exhausted:
            self._once.spent(self.engine.running)
        elif self.engine.full:
            self._once.full(self.engine.parked)
        due = None if self.engine.exhausted else self.engine.next_due()
        if due is None:
            return None if deadline is None else deadline - now
        return max(0.0, (due if deadline is None else min(due, deadline)) - now)

    def _take(self, writes: Sequence[AdapterCommand]) -> Sequence[AdapterCommand]:
        """Take commands in hand: whoever ends the consumer waits until they are written."""
        if writes:
            self._in_hand += 1
        return writes

    def _leave(self, writes: Sequence[AdapterCommand]) -> Sequence[AdapterCommand]:
        """Leave commands to the keeper; return those in hand, where the adapter has no socket to block on."""
        if not (writes and self._outbox.batch):
            return self._take(writes)
        self._keeper.defer(writes)
        return ()

    def _wait(self, timeout: float | None, *, linger: bool = False) -> None:
        self._waiting += 1
        if linger:
            self._ready.wait(timeout)  # real time: it is about the wire, not about a schedule
        else:
            self._clock.wait(self._ready, timeout)
        self._waiting -= 1

    def _pass_on(self) -> None:
        """Wake one that waits, before this thread leaves: nobody else may know of what is ready, or due next."""
        if self._waiting and (self.engine.ready() or self.engine.next_due() is not None):
            self._clock.notify(self._ready)

    def _wake(self, *, everyone: bool = False) -> None:
        if self.engine.counts.stale:
            self._once.stale()
        if self._waiting:
            self._clock.notify(self._ready, self._waiting if everyone else max(1, self.engine.ready()))
        if self.on_ready is not None:
            self.on_ready()

    def _result(self, event: Event, now: float) -> message_log.Line | None:
        """Feed the result of a dispatch; return what the log is to say, once the lock is left."""
        commands = self.engine.feed(event, now)
        line = None if event.__class__ is Succeeded else message_log.said(event, commands, self._policies)
        self._route(commands, now)
        return line

    def _count(self, command: Clear | Bury) -> None:
        """Tell the ledger, if there is one."""

    def _route(self, commands: Sequence[Command], now: float) -> None:  # noqa: C901, PLR0912 - the table of commands
        for command in commands:
            if self._observer is not None:
                self._observer(self.subscribe, command)
            match command:
                case Dropped():
                    self._keeper.drops.count()
                case Accept():
                    # First collect, then expect: the keeper looks the other way round.
                    if self._outbox.collect(command.deliveries, now):
                        self._keeper.expect()
                case Clear() | Bury():
                    self._count(command)
                case Dispatch() | LookUp() | Mark() | Unanswered():
                    pass
                case Hold():
                    if self._tell_holds:
                        self._outbox.put(command)
                case Stop():
                    self.closed = True
                    self.error = command.error
                    logger.error("%s: the consumer stops: %s", self.subscribe.destination, command.error)
                    self._wake(everyone=True)
                    self._notice_end()
                case Release():
                    self._leave_behind()
                    self._outbox.put(command)
                case _:
                    if isinstance(command, Poison | Forward):
                        self._keeper.expect_alarm()
                    self._outbox.put(command)
