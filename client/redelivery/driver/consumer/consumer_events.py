"""Events of one consumer, made of what its engine decides: kept while its lock is held, shown after that."""

from __future__ import annotations

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
    Mark,
    PoisonAck,
    PolicyFault,
    Release,
    Reschedule,
    SetAside,
    StillAside,
    Stop,
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
from redelivery.events.of_handling import ResultDetails

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.clock import Clock
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Command, Subscribe
    from redelivery.core.delivery import Delivery
    from redelivery.core.events import Event as Fed
    from redelivery.core.events import Result
    from redelivery.core.policy.policy_map import RedeliveryPolicyMap
    from redelivery.driver.consumer.observation import ObservedRun
    from redelivery.driver.observers import Observers

__all__ = ["ConsumerEvents"]

# With what their causes begin with.
_VERDICTS: dict[type, tuple[public.Verdict, str]] = {
    Failed: ("failed", ""),
    Poisoned: ("poison", "Poison: "),
    Deferred: ("defer", "Defer: "),
    Discarded: ("discard", "Discard: "),
}


class ConsumerEvents:
    """Events that are to be shown as soon as the lock is left. All but `take` needs the lock of the consumer."""

    def __init__(
        self, subscribe: Subscribe, clock: Clock, policies: RedeliveryPolicyMap, observers: Observers
    ) -> None:
        # A tool has no use for what is to be said of its queue.
        self.of_queues = True
        self.observers = observers
        self.pending: list[public.Event] = []
        self._subscribe = subscribe
        self._clock = clock
        self._policies = policies
        # Of the workers, where every delivery is observed.
        self.watches: list[Observation] = []
        # What is reported once.
        self._said: set[str] = set()

    def take(self) -> Sequence[public.Event]:
        """Take what is to be shown."""
        if not self.pending:
            return ()
        taken = self.pending[:]
        self.pending.clear()
        return taken

    def observed(self, run: ObservedRun, ended: Callable[[BaseException], None]) -> Observation | None:
        """Return what observes the runs of a worker; None: no observer wants them. `ended`: see `Observation`."""
        if not self.observers.watches_runs:
            return None
        watch = Observation(run, self.observers, self._subscribe, self._clock.time, ended)
        self.watches.append(watch)
        return watch

    def began(self, able: Capabilities | None) -> Sequence[public.Event]:
        """Return that the broker has confirmed the consumer; `able`: what it can do with its queue, if it says."""
        shown: list[public.Event] = [public.ConsumerStarted(self.now(), self._subscribe)]
        if able is None or not self.of_queues:
            return shown
        if able.caution and self._first("caution"):
            shown.append(public.QueueCaution(self.now(), self._subscribe, able.caution))
        if able.advice and self._first("advice"):
            shown.append(public.QueueAdvice(self.now(), self._subscribe, able.advice))
        return shown

    def refused(self, error: BaseException) -> Sequence[public.Event]:
        """Return that the broker has refused the consumer after a reconnect."""
        return (public.ConsumerStopped(self.now(), self._subscribe, error),)

    def now(self) -> float:
        """Return the time of the wall, as events have it."""
        return self._clock.time()

    # Results.

    def result(self, event: Fed, commands: Sequence[Command], watch: Observation | None = None) -> None:
        """Note the result of a delivery, of an observed run perhaps: what observes that shows it when it has ended."""
        succeeded = isinstance(event, Succeeded | Committed | Released)
        if succeeded and (watch is not None or not self.observers.watches_runs):
            return
        delivery = cast("Result", event).delivery
        if watch is None and self.observers.watches_runs:
            # The handler settles it itself, and has not ended. After its end a session may commit it.
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
            # With a policy's limit of time, if that is why it is poison.
            if record is not None and record.cause is not None and delivery.outcome != "spared":
                cause = record.cause
        step, delay, to = _next_step(commands)
        return ResultDetails(
            delivery.outcome, verdict, None, cause.text.removeprefix(prefix), cause.kind, _number(event), maximum,
            0 if record is None else record.deferrals, step, delay, to,
        )  # fmt: skip

    # What follows from no result.

    def fed(self, event: Fed, *, dead_lettered: bool) -> None:
        """Note what the adapter has reported; only for observers, because the log has no line on it.

        `dead_lettered`: it has confirmed a dead letter.
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

    def waits(self, commands: Sequence[Command]) -> None:
        """Note commands that follow from no result: of messages that were redelivered, expired, or are repeated."""
        for command in commands:
            match command:
                case Accept() | AcceptUnseen() | Dispatch() | Credit() | Release() | Stop() | PolicyFault():
                    continue
                case LookUp() | Mark() | Clear() | Bury() | SetAside() | StillAside() | BreakerChanged():
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
                    self._note(public.DeadLettering, command.delivery, command.cause.text, None)
                case Forward():
                    to = command.copy.destination
                    self._note(public.DeadLettering, command.delivery, command.cause.text, to)
                case Dropped():
                    self._note(public.Dropped, command.delivery, command.cause.text)
                case Unanswered():
                    record = command.delivery.record
                    delayed = record is not None and not record.poisoned
                    self._note(public.Unanswered, command.delivery, command.seconds, delayed)
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

    def unseen(self, command: AcceptUnseen) -> None:
        """Note a delivery that is accepted without being handled."""
        self._note(public.Deduplicated, command.delivery, command.why)

    def aside(self, command: SetAside | StillAside) -> None:
        """Note a message that is set aside, once, and each hour that it still is."""
        still = isinstance(command, StillAside)
        if isinstance(command, StillAside) or not command.again:
            self._note(public.SetAside, command.delivery, command.error, still)

    def _answered(self, event: Confirmed, *, dead_lettered: bool) -> None:
        """Note the broker's answer to a poison acknowledgement."""
        delivery, error = event.delivery, event.error
        record = delivery.record
        if record is None:
            return
        watch = next((each for each in self.watches if each.condemned(delivery)), None)
        pending = self.pending if watch is None else watch.later
        now, cause, kind = self.now(), (record.cause or UNKNOWN).text, (record.cause or UNKNOWN).kind
        if event.final:
            # What follows says why: it is set aside.
            return
        if error is not None:
            pending.append(public.DeadLetterFailed(now, self._subscribe, delivery, error, record.tries))
        elif dead_lettered:
            pending.append(
                public.DeadLettered(now, self._subscribe, delivery, cause, kind, record.count, record.copied)
            )

    def breaker(self, change: BreakerChanged) -> None:
        """Note a change of the breaker."""
        cause = None if change.cause is None else change.cause.text
        self._note(
            public.BreakerChanged, change.old, change.new, cause, change.failures, change.messages, change.delay,
            change.spared, change.seconds, change.charging, change.told, change.reminds,
        )  # fmt: skip

    def stopped(self, error: BaseException) -> None:
        """Note that the consumer stops by itself."""
        self._note(public.ConsumerStopped, error)

    def dropped(self, dropped: int | None) -> None:
        """Note how many messages the connection has dropped, where that is to be reported."""
        if dropped is not None:
            self.pending.append(public.ManyDropped(self.now(), dropped))

    # What is noted once, because its reason stays.

    def spent(self, running: int) -> None:
        """Note that no message arrives because none is settled."""
        if self._first("spent"):
            self._note(public.CreditSpent, running)

    def full(self, parked: int) -> None:
        """Note that no fresh message is dispatched, because too many are parked."""
        if self._first("full"):
            self._note(public.ParkingFull, parked)

    def stale(self) -> None:
        """Note a stale result."""
        if self._first("stale"):
            self._note(public.ResultStale)

    def policy(self, fault: PolicyFault) -> None:
        """Note what is wrong with a policy."""
        kind = type(fault.policy)
        # Not by policy: one may be made for each message.
        if self._first(f"{kind.__module__}.{kind.__qualname__}.{fault.member}"):
            self._note(public.PolicyFault, kind.__name__, fault.text, fault.error)

    def _first(self, what: str) -> bool:
        if what in self._said:
            return False
        self._said.add(what)
        return True

    def _note(self, kind: Callable[..., public.ConsumerEvent], *values: object) -> None:
        """Keep an event of this consumer, of now; of a message, its delivery is the first value."""
        self.pending.append(kind(self.now(), self._subscribe, *values))


def _number(event: Failed | Poisoned | Deferred | Discarded) -> int:
    """Return the number of the delivery that has a result, from 1: a failure that was charged is counted already."""
    record, outcome = event.delivery.record, event.delivery.outcome
    if record is None:
        return 1
    if isinstance(event, Deferred):
        # Past redelivery.maximumDeferrals.
        charged = outcome in ("redelivered", "poisoned")
    else:
        charged = isinstance(event, Failed | Poisoned) and outcome != "spared"
    return max(1, record.count if charged else record.count + 1)


def _next_step(  # noqa: PLR0911 - the table of commands
    commands: Sequence[Command],
) -> tuple[public.NextStep, float | None, str | None]:
    """Return what follows from a result, with the delay and the destination of a copy."""
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
            case Stop():
                return "stop", None, None
            case SetAside():
                return "set aside", None, None
            case (
                AcceptUnseen() | Dispatch() | Credit() | Release() | Dropped() | Unanswered() | PolicyFault()
            ):
                pass
            case LookUp() | Mark() | Clear() | Bury() | StillAside() | BreakerChanged() | TookBack():
                pass
            case _:
                assert_never(command)
    return "none", None, None
