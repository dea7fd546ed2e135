"""Events of one consumer, made from its engine's commands: kept while its lock is held, shown afterwards."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, assert_never, cast

from redelivery import events as public
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
    Subscribe,
    TookBack,
    Unanswered,
)
from redelivery.core.delivery import UNKNOWN
from redelivery.core.events import (
    Arrived,
    Committed,
    Confirmed,
    Continued,
    Deferred,
    Discarded,
    Failed,
    Paused,
    Poisoned,
    Released,
    Succeeded,
)
from redelivery.core.policy.policy_guard import limit_of
from redelivery.driver.consumer.observation import Observation
from redelivery.driver.observers import Observers
from redelivery.events.event import ResultDetails

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.clock import Clock
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Command
    from redelivery.core.delivery import Delivery
    from redelivery.core.events import Event, Result
    from redelivery.core.events import Event as Fed
    from redelivery.core.policy.policy_map import RedeliveryPolicyMap
    from redelivery.driver.consumer.observation import ObservedRun
    from redelivery.events import NextStep

__all__ = ["ConsumerEvents", "Drops", "result_log"]


# ---- Next step -------------------------------------------------------------------------------------------
# The next step after the result of a delivery, as the log names it, from the engine's commands.


def next_step(  # noqa: C901, PLR0911, PLR0912 - the table of commands
    commands: Sequence[Command],
) -> tuple[NextStep, float | None, str | None]:
    """Return the next step after a result, its delay in seconds, and the destination of a dead-letter copy."""
    for command in commands:
        match command:
            case Hold():
                return "redelivery", command.delay, None
            case Forward() if command.delayed:
                return "delayed copy", command.copy.delay, None
            case Reschedule():
                return "delayed by the broker", command.delay, None
            case Forward():
                return "dead-letter copy", None, command.copy.destination
            case PoisonAck():
                return "poison acknowledgement", None, None
            case Accept():
                return "drop", None, None
            case Postponed():
                return next_step([command.command])
            case Stop():
                return "stop", None, None
            case SetAside():
                return "set aside", None, None
            case (
                AcceptUnseen() | Dispatch() | Credit() | Release() | Dropped() | Unanswered() | PolicyFault()
            ):
                pass
            case (
                LookUp()
                | Mark()
                | Clear()
                | Bury()
                | StillAside()
                | BreakerChanged()
                | TookBack()
                | LossesCounted()
                | Refused()
            ):
                pass
            case _:
                assert_never(command)
    return "none", None, None


# ---- Consumer events -------------------------------------------------------------------------------------

# Verdict of each result, and the prefix that its cause's text has.
_VERDICTS: dict[type, tuple[public.Verdict, str]] = {
    Failed: ("failed", ""),
    Poisoned: ("poison", "Poison: "),
    Deferred: ("defer", "Defer: "),
    Discarded: ("discard", "Discard: "),
}


class ConsumerEvents:
    """Events to be shown after the lock is released. All methods but `take` need the consumer's lock."""

    def __init__(
        self, subscribe: Subscribe, clock: Clock, policies: RedeliveryPolicyMap, observers: Observers
    ) -> None:
        # False for a tool: it needs no advice about its queue.
        self.of_queues = True
        self.observers = observers
        self.pending: list[public.Event] = []
        self._subscribe = subscribe
        self._clock = clock
        self._policies = policies
        # Observations of the workers, if every delivery is observed.
        self.watches: list[Observation] = []
        # Reasons that were reported: each is reported once.
        self._said: set[str] = set()

    def take(self) -> Sequence[public.Event]:
        """Take the events to be shown."""
        if not self.pending:
            return ()
        taken = self.pending[:]
        self.pending.clear()
        return taken

    def observed(self, run: ObservedRun, ended: Callable[[BaseException], None]) -> Observation | None:
        """Return the observation of a worker's runs; None: no observer wants it. `ended`: see `Observation`."""
        if not self.observers.watches_runs:
            return None
        watch = Observation(run, self.observers, self._subscribe, self._clock.time, ended)
        self.watches.append(watch)
        return watch

    def began(self, able: Capabilities | None, refusals: int = 0) -> Sequence[public.Event]:
        """Return the events of a confirmed subscription.

        `able`: capabilities of its queue, if the broker sent them; `refusals`: how often it was refused before.
        """
        shown: list[public.Event] = [public.ConsumerStarted(self.now(), self._subscribe, refusals)]
        if not self.of_queues:
            return shown
        shown += self.cautions(able)
        if able is not None and able.advice and self._first("advice"):
            shown.append(public.QueueAdvice(self.now(), self._subscribe, able.advice))
        return shown

    def cautions(self, able: Capabilities | None) -> list[public.Event]:
        """Return how the broker may lose a message of the queue, each time once; `able`: as of `began`."""
        if not self.of_queues:
            return []
        return [
            public.QueueCaution(self.now(), self._subscribe, text)
            for text in (self._subscribe.caution, "" if able is None else able.caution)
            if text and self._first(text)
        ]

    def refused_for_good(self, error: BaseException) -> Sequence[public.Event]:
        """Return the event of a subscription that the broker has refused for good after a reconnect."""
        return (public.ConsumerStopped(self.now(), self._subscribe, error),)

    def refused(self, error: BaseException, times: int) -> Sequence[public.Event]:
        """Return the event of a subscription that the broker refuses for now, so many times in a row."""
        return (public.ConsumerRefused(self.now(), self._subscribe, error, times),)

    def now(self) -> float:
        """Return the time of the wall clock, for an event."""
        return self._clock.time()

    # Results.

    def result(self, event: Fed, commands: Sequence[Command], watch: Observation | None = None) -> None:
        """Keep the result of a delivery; `watch`, the observation of its run, shows it when the run has ended."""
        succeeded = isinstance(event, Succeeded | Committed | Released)
        if succeeded and (watch is not None or not self.observers.watches_runs):
            return
        delivery = cast("Result", event).delivery
        if watch is None and self.observers.watches_runs:
            # The handler settled the message itself, and has not ended. After its end a session may commit it.
            watch = next((each for each in self.watches if each.unsettled(delivery)), None)
        details = self._details(event, commands)
        message = None
        if watch is not None:
            watch.details, message = details, watch.message
        if watch is None or not succeeded:
            finished = public.Finished(self.now(), self._subscribe, delivery, message, None, details)
            self.pending.append(finished)

    def _details(self, event: Fed, commands: Sequence[Command]) -> ResultDetails:
        if isinstance(event, Failed | Poisoned | Deferred | Discarded):
            return self._failure(event, commands)
        delivery = cast("Result", event).delivery
        return ResultDetails(delivery.outcome, "release" if isinstance(event, Released) else "succeeded")

    def _failure(
        self, event: Failed | Poisoned | Deferred | Discarded, commands: Sequence[Command]
    ) -> ResultDetails:
        delivery, cause, maximum = event.delivery, event.cause, None
        verdict, prefix = _VERDICTS[type(event)]
        record = delivery.record
        if isinstance(event, Failed):
            policy = self._policies.policy_for(delivery.destination) if event.policy is None else event.policy
            most, _ = limit_of(policy)
            maximum = None if most < 0 else most + 1
            # The record's cause names the policy's time limit, if the message is poison because of that.
            if record is not None and record.cause is not None and delivery.outcome != "spared":
                cause = record.cause
        step, delay, to = next_step(commands)
        own = next((each.own_place for each in commands if isinstance(each, PoisonAck)), "")
        return ResultDetails(
            delivery.outcome, verdict, None, cause.text.removeprefix(prefix), cause.kind, _number(event), maximum,
            0 if record is None else record.deferrals, step, delay, to, own,
        )  # fmt: skip

    # Events that do not follow from a result.

    def fed(self, event: Fed, *, dead_lettered: bool) -> None:
        """Keep an event of the adapter for observers; the log has no line for it.

        `dead_lettered`: True if the broker has confirmed a dead letter.
        """
        if isinstance(event, Arrived):
            if self.observers.watches_arrivals:
                self._note(public.Received, len(event.deliveries))
        elif isinstance(event, Confirmed):
            self._answered(event, dead_lettered=dead_lettered)
        elif isinstance(event, Paused):
            self._note(public.Paused)
        elif isinstance(event, Continued):
            self._note(public.Resumed)

    def waits(self, commands: Sequence[Command]) -> None:  # noqa: C901, PLR0912 - the table of commands
        """Keep events of commands without a result: for redelivered and expired messages, and repeated attempts."""
        for command in commands:
            match command:
                case Accept() | AcceptUnseen() | Dispatch() | Credit() | Release() | Stop() | PolicyFault():
                    continue
                case LookUp() | Mark() | Clear() | Bury() | SetAside() | StillAside() | BreakerChanged():
                    continue
                case Postponed():
                    continue
                case Hold():
                    record = command.delivery.record
                    put_off = command.deferred and not (record is not None and record.spared)
                    cause = "unknown" if command.cause is None else command.cause.text
                    self._parked(command.delivery, cause, command.delay, deferred=put_off)
                case Forward() if command.delayed:
                    cause, delay = command.cause.text, command.copy.delay or 0.0
                    self._parked(command.delivery, cause, delay, copied=True)
                case Reschedule():
                    cause, late = command.cause.text, command.deferred
                    self._parked(command.delivery, cause, command.delay, deferred=late, native=True)
                case PoisonAck():
                    self._dead_lettering(command.delivery, command.cause.text, None, command.own_place)
                # The copy of a redrive is no dead letter.
                case Forward() if command.redrive:
                    continue
                case Forward():
                    self._dead_lettering(command.delivery, command.cause.text, command.copy.destination)
                case Refused():
                    self._refused(command)
                case Dropped():
                    self._note(public.Dropped, command.delivery, command.cause.text)
                case Unanswered():
                    record = command.delivery.record
                    delayed = record is not None and not record.poisoned
                    self._note(public.Unanswered, command.delivery, command.seconds, delayed)
                case LossesCounted():
                    self._note(public.ManyLosses, command.messages, command.losses, command.limit)
                case TookBack():
                    self._note(public.TakenBack, command.messages, command.running, command.seconds)
                case _:
                    assert_never(command)

    def _parked(
        self,
        delivery: Delivery,
        cause: str,
        delay: float,
        *,
        deferred: bool = False,
        copied: bool = False,
        native: bool = False,
    ) -> None:
        self._note(public.Parked, delivery, cause, delay, deferred, copied, native)

    def _dead_lettering(self, delivery: Delivery, cause: str, to: str | None, own_place: str = "") -> None:
        again = delivery.record is not None and delivery.record.tries > 1
        self._note(public.DeadLettering, delivery, cause, to, again, own_place)

    def _refused(self, command: Refused) -> None:
        """Keep the event of a refused dead letter or delayed copy, behind the end of its handler's run."""
        delivery, record = command.delivery, command.delivery.record
        tries, delayed = (0, False) if record is None else (record.tries, not record.poisoned)
        event = public.DeadLetterFailed(
            self.now(), self._subscribe, delivery, command.error, tries, command.delay, delayed, command.again
        )
        self._behind(delivery).append(event)

    def _behind(self, delivery: Delivery) -> list[public.Event]:
        watch = next((each for each in self.watches if each.condemned(delivery)), None)
        return self.pending if watch is None else watch.later

    def unseen(self, command: AcceptUnseen) -> None:
        """Keep the event of a delivery that is accepted without being handled."""
        self._note(public.Deduplicated, command.delivery, command.why)

    def aside(self, command: SetAside | StillAside) -> None:
        """Keep the event of a message that is set aside: once, and each hour while it still is."""
        still = isinstance(command, StillAside)
        if isinstance(command, StillAside) or not command.again:
            self._note(public.SetAside, command.delivery, command.error, still)

    def _answered(self, event: Confirmed, *, dead_lettered: bool) -> None:
        """Keep the event of the broker's answer to a poison acknowledgement."""
        delivery = event.delivery
        record = delivery.record
        if record is None or event.error is not None or not dead_lettered:
            # The command that follows a refusal has an event of its own.
            return
        now, cause, kind = self.now(), (record.cause or UNKNOWN).text, (record.cause or UNKNOWN).kind
        self._behind(delivery).append(
            public.DeadLettered(now, self._subscribe, delivery, cause, kind, record.count, record.copied)
        )

    def breaker(self, change: BreakerChanged) -> None:
        """Keep a change of the breaker's state."""
        cause = None if change.cause is None else change.cause.text
        self._note(
            public.BreakerChanged, change.old, change.new, cause, change.failures, change.messages, change.delay,
            change.spared, change.seconds, change.charging, change.named, change.reminds,
        )  # fmt: skip

    def stopped(self, error: BaseException) -> None:
        """Keep the event that the consumer stops with an error."""
        self._note(public.ConsumerStopped, error)

    def dropped(self, dropped: int | None) -> None:
        """Keep the number of messages that the connection has dropped, if it is to be reported."""
        if dropped is not None:
            self.pending.append(public.ManyDropped(self.now(), dropped))

    # Events that are kept once only: their reason does not change.

    def spent(self, running: int) -> None:
        """Keep the event that no message arrives, because none is settled."""
        if self._first("spent"):
            self._note(public.CreditSpent, running)

    def full(self, parked: int) -> None:
        """Keep the event that no new message is dispatched, because too many are parked."""
        if self._first("full"):
            self._note(public.ParkingFull, parked)

    def stale(self) -> None:
        """Keep the event of a stale result."""
        if self._first("stale"):
            self._note(public.ResultStale)

    def policy(self, fault: PolicyFault) -> None:
        """Keep the fault of a policy."""
        kind = type(fault.policy)
        # Once by type, not by object: an application may make a policy for each message.
        if self._first(f"{kind.__module__}.{kind.__qualname__}.{fault.member}"):
            self._note(public.PolicyFault, kind.__name__, fault.text, fault.error)

    def _first(self, what: str) -> bool:
        if what in self._said:
            return False
        self._said.add(what)
        return True

    def _note(self, kind: Callable[..., public.ConsumerEvent], *values: object) -> None:
        """Keep an event of this consumer with the current time; for a message, the delivery is the first value."""
        self.pending.append(kind(self.now(), self._subscribe, *values))


def _number(event: Failed | Poisoned | Deferred | Discarded) -> int:
    """Return the delivery count of the delivery with this result, from 1; a charged failure is counted already."""
    record, outcome = event.delivery.record, event.delivery.outcome
    if record is None:
        return 1
    if isinstance(event, Deferred):
        # Charged only past redelivery.maximumDeferrals.
        charged = outcome in ("redelivered", "poisoned")
    else:
        charged = isinstance(event, Failed | Poisoned) and outcome != "spared"
    return max(1, record.count if charged else record.count + 1)


# ---- Result log ------------------------------------------------------------------------------------------
# Log of results of an engine that has no dispatcher: the Spark source feeds it.


def result_log(
    destination: str, policies: RedeliveryPolicyMap, clock: Clock
) -> Callable[[Event, Sequence[Command]], None]:
    """Return a function that logs a result, with the commands that follow, of an engine that the caller feeds."""
    events = ConsumerEvents(Subscribe(0, destination, 0), clock, policies, Observers())

    def log(event: Event, commands: Sequence[Command]) -> None:
        events.result(event, commands)
        events.observers.emit(events.take())

    return log


# ---- Drops -----------------------------------------------------------------------------------------------
# Count of messages that a connection has dropped instead of dead-lettering them.


class Drops:
    """Number of dead letters that a connection has dropped; reported at each multiple of `interval`, 0: never."""

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._dropped = 0
        self._lock = threading.Lock()

    def count(self) -> int | None:
        """Count one more; return the number to report, or None."""
        with self._lock:
            self._dropped += 1
            dropped = self._dropped
        return None if not self._interval or dropped % self._interval else dropped
