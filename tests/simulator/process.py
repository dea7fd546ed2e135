"""One process of the application: its engines, their shared history, and a ledger that outlives it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulator.sim_delivery import QUEUE, SimDelivery
from tests.simulator.truth import Violation

from redelivery.core.breaker import Breaker
from redelivery.core.broker_redelivery import BrokerRedelivery
from redelivery.core.commands import (
    Accept,
    AcceptUnseen,
    Bury,
    Clear,
    Command,
    Credit,
    Dispatch,
    Forward,
    LookUp,
    Mark,
    PoisonAck,
    Release,
    Reschedule,
    SetAside,
    Stop,
)
from redelivery.core.credit import CreditPace
from redelivery.core.dead_lettering.routing import DeadLetterRouting
from redelivery.core.engine import Engine
from redelivery.core.events import Confirmed, Known, Succeeded
from redelivery.core.ledger_engine import LedgerEngine
from redelivery.core.ledger_entry import AttemptMark, Entry, after_death, fingerprint
from redelivery.core.message_history import ACCEPTED, MessageHistory
from redelivery.core.policy.policy_map import RedeliveryPolicyMap
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.simulator.quorum import QuorumBroker

    from redelivery.core.delivery import Delivery
    from redelivery.core.dispatch_order import Ordering
    from redelivery.core.events import Event

__all__ = ["DELAY", "LONG_DELAY", "RETRIES", "Process", "SimLedger"]

RETRIES = 1
CREDIT = 8
DELAY, LONG_DELAY = 1.0, 4.0
"""Seconds of a policy; longer where the broker delays copies, because one may arrive that much too early."""


def _policies(delay: float) -> RedeliveryPolicyMap:
    policy = RedeliveryPolicy(
        maximum_redeliveries=RETRIES, initial_redelivery_delay=delay, redelivery_delay=delay
    )
    return RedeliveryPolicyMap({}, default=policy)


# Quick to open and quick to give up: all of it happens within a schedule.
BREAKER = Breaker(
    failures=2,
    messages=1,
    named=2,
    probe=0.5,
    maximum_probe=1.0,
    ramp=2,
    reopen=2,
    uncharged=2,
    maximum_open=4.0,
)
POLICIES, LONG_POLICIES = _policies(DELAY), _policies(LONG_DELAY)


class SimLedger:
    """Entries of messages, and marked attempts. It outlives the process."""

    def __init__(self) -> None:
        self.entries: dict[bytes, Entry] = {}
        self.marks: dict[Delivery, tuple[bytes, int]] = {}

    def mark(self, delivery: SimDelivery, count: int) -> None:
        self.marks[delivery] = fingerprint(delivery), count

    def clear(self, command: Clear) -> None:
        key = fingerprint(command.delivery)
        self.marks.pop(command.delivery, None)
        if command.keeps(self.entries.get(key)):
            return
        if command.entry is not None:
            self.entries[key] = command.entry
        else:
            self.entries.pop(key, None)

    def bury(self, command: Bury) -> None:
        """Remove a message's entry; later, if its original is acknowledged only now."""
        if not command.early:
            self.entries.pop(command.key, None)

    def died(self, now: float) -> None:
        """Process the death of a process: what it had open is charged, or suspected."""
        attempts = [AttemptMark(key, count, "running") for key, count in self.marks.values()]
        self.entries.update(after_death(attempts, self.entries, now))
        self.marks.clear()


class Process:
    """Feeds engines, and carries out their commands. `dispatched` is called for each dispatch."""

    def __init__(
        self,
        broker: QuorumBroker,
        dispatched: Callable[[SimDelivery], None],
        *,
        ordering: Ordering,
        ledger: SimLedger | None,
        unique_ids: bool,
        most_aside: int = 100,
        scheduled: bool = False,
        breaker: bool = False,
        auto: bool = False,
    ) -> None:
        self.broker = broker
        self.ledger = ledger
        self.history = MessageHistory(unique_ids=unique_ids)
        self.engines: dict[int, Engine] = {}
        # Closed ones, whose handlers may still run.
        self.closed: dict[int, Engine] = {}
        # Those that have set aside as many as they may.
        self.stopped: list[int] = []
        self._dispatched = dispatched
        self._ordering = ordering
        self._most_aside = most_aside
        # True if the broker delays redeliveries.
        self._scheduled = scheduled
        self._breaker = BREAKER if breaker else None
        self._auto = auto
        # Broker of the last connection; True if it is another than that of the one before.
        self._at, self._moved = "", False

    def open(self, number: int) -> Engine:
        """Start a consumer."""
        kind = Engine if self.ledger is None else LedgerEngine
        engine = kind(
            number,
            policies=LONG_POLICIES if self._scheduled else POLICIES,
            dead_letters=DeadLetterRouting(maximum_set_aside=self._most_aside, scheduled=self._scheduled),
            rescheduling=BrokerRedelivery(QUEUE, f"run{number}") if self._scheduled else None,
            ordering=self._ordering,
            credit=CREDIT,
            max_parked=8,
            breaker=self._breaker,
            pace=CreditPace(1, CREDIT, enough=1, period=0.0) if self._auto else None,
        )
        engine.state.share(self.history)
        self.engines[number] = engine
        self.broker.joined(number, 1 if self._auto else None)
        return engine

    def feed(self, number: int, event: Event, now: float, *, epoch: int | None) -> bool:
        """Feed an event; return True if commands followed. `epoch`: of the present connection. Raises Violation."""
        engine = self.engines.get(number) or self.closed[number]
        counted = engine.state.counts.deduplicated
        commands = engine.feed(event, now)
        for command in commands:
            if isinstance(command, Accept):
                self._seen(command, event, commands)
        unseen = sum(isinstance(command, AcceptUnseen) for command in commands)
        if engine.state.counts.deduplicated - counted != unseen and not isinstance(event, Confirmed):
            raise Violation(f"uncounted: {unseen} messages are accepted unseen")
        self._carry_out(number, commands, now, epoch)
        return bool(commands)

    def _carry_out(  # noqa: C901 - the table of commands
        self, number: int, commands: Sequence[Command], now: float, epoch: int | None
    ) -> None:
        for command in commands:
            match command:
                case Dispatch():
                    self._dispatched(self._own(command))
                case LookUp():
                    assert self.ledger is not None
                    entry = self.ledger.entries.get(fingerprint(command.delivery))
                    self.feed(number, Known(command.delivery, entry), now, epoch=epoch)
                case Mark():
                    assert self.ledger is not None
                    self.ledger.mark(self._own(command), command.count)
                case Clear():
                    assert self.ledger is not None
                    self.ledger.clear(command)
                case Bury():
                    assert self.ledger is not None
                    self.ledger.bury(command)
                case Accept() | Release():
                    for delivery in command.deliveries:
                        assert isinstance(delivery, SimDelivery)
                        kind = "accept" if isinstance(command, Accept) else "release"
                        self.broker.write(kind, delivery, live=delivery.epoch == epoch)
                case PoisonAck() | Forward():
                    kind = "poison" if isinstance(command, PoisonAck) else "forward"
                    delivery = self._own(command)
                    if isinstance(command, Forward) and command.delayed:
                        kind, delivery.copy = "delay", command.copy
                    self.broker.write(kind, delivery, live=delivery.epoch == epoch)
                case Reschedule():
                    delivery = self._own(command)
                    delivery.given = command
                    self.broker.write("reschedule", delivery, live=delivery.epoch == epoch)
                case Credit():
                    self.broker.widen(number, command.messages)
                case SetAside():
                    self._set_aside(number, self._own(command), now)
                case Stop():
                    if self._aside(number) == self._most_aside:
                        self.stopped.append(number)
                        continue
                    raise Violation(f"stop: {command.error}")
                case _:
                    pass

    def _seen(self, accept: Accept, event: Event, commands: Sequence[Command]) -> None:
        """Check that an accept has a reason: a result, a confirmed copy, or a line in the log."""
        told = {command.delivery: command for command in commands if isinstance(command, AcceptUnseen)}
        for delivery in accept.deliveries:
            if delivery in told:
                self._proven(told[delivery])
            elif not isinstance(event, Succeeded | Confirmed) or event.delivery is not delivery:
                raise Violation(f"unseen: {delivery.message_id} is accepted without a word")

    def connected(self, address: str) -> None:
        """Note the broker of a new connection."""
        self._moved, self._at = self._at not in ("", address), address

    def _proven(self, unseen: AcceptUnseen) -> None:
        """Check the proof of an earlier acceptance: the broker's id and flag, or a creation time."""
        delivery = unseen.delivery
        if unseen.why != ACCEPTED:
            return
        named = delivery.strong or delivery.dated or self.history.unique_ids
        # A node that has taken over may not know what the other one has marked.
        marks = self.broker.profile.marks == "all" and not self._moved
        if not named or (marks and not delivery.redelivered):
            raise Violation(f"unproven: {delivery.message_id} is taken for one that was accepted")
        if delivery.strong and not (delivery.redelivered or delivery.dated):
            raise Violation(f"unproven: {delivery.message_id} is accepted without the broker's mark")

    def _aside(self, number: int) -> int:
        """Return how many messages a consumer has set aside on this connection."""
        broker = self.broker
        untold = {each for of, gone in (*broker.notices, *broker.settled) for each in gone if of == number}
        return sum(each.state == "aside" for each in {*broker.unsettled.get(number, ()), *untold})

    def _set_aside(self, number: int, delivery: SimDelivery, now: float) -> None:
        self.broker.put_aside(delivery, now)
        if self._aside(number) > self._most_aside:
            raise Violation(f"bound: {delivery.message.name} is set aside beyond {self._most_aside}")

    @staticmethod
    def _own(command: Dispatch | Mark | PoisonAck | Forward | Reschedule | SetAside) -> SimDelivery:
        assert isinstance(command.delivery, SimDelivery)
        return command.delivery
