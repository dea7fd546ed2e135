"""Runs one scenario of `vectors/breaker_scenarios.json` against the engine, in virtual time: no threads, no broker.

A worker asks when free and `next_due` is reached; a handler takes its seconds; dead letters are confirmed at once.
A released message goes to the end of the broker's queue. Credit takes effect at once, unless the scenario has `late`:
these messages are on their way when credit is first withdrawn, and arrive a hundredth of a second later. With `renews`,
a new consumer takes the place of the old one after so many results, as in a program that has one for each request; the
driver's own `SharedHistory` carries over what is known.
"""

from __future__ import annotations

import functools
import heapq
from collections import Counter
from math import inf
from typing import TYPE_CHECKING, Any

from redelivery.core.breaker import Breaker
from redelivery.core.capabilities import Capabilities
from redelivery.core.commands import (
    Accept,
    BreakerChanged,
    Credit,
    Dispatch,
    Forward,
    Hold,
    PoisonAck,
    Release,
    Stop,
    Subscribe,
)
from redelivery.core.dead_lettering.routing import DeadLetterRouting
from redelivery.core.delivery import Cause, Delivery
from redelivery.core.engine import Engine
from redelivery.core.events import (
    Arrived,
    Confirmed,
    Connected,
    ConnectionLost,
    Deferred,
    Discarded,
    Drained,
    Failed,
    Poisoned,
    Succeeded,
    Tick,
    Wanted,
)
from redelivery.core.policy.policy_map import RedeliveryPolicyMap
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy
from redelivery.driver.connection.shared_history import SharedHistory
from redelivery.errors import TransportError

if TYPE_CHECKING:
    from redelivery.core.commands import Command
    from redelivery.core.events import Event

__all__ = ["BreakerWorld", "names"]

WEIGHTS = ("outage", "maybe", "own")
# Attempts at one moment in which the engine dispatches nothing although it reported a due message.
HOT = 5
SOURCE = Subscribe(1, "queue://orders", 1000, room=1000)


class Mail(Delivery):
    """Delivery of a message of the world; `keyed`: the broker gives it an id."""

    __slots__ = ("_group", "_keyed", "_redelivered", "name")

    def __init__(
        self, epoch: int, name: str, group: str | None, *, redelivered: bool, keyed: bool = True
    ) -> None:
        super().__init__(1, epoch, name.encode())
        self.name, self._group, self._redelivered, self._keyed = name, group, redelivered, keyed

    @property
    def key(self) -> str | None:
        return self.name if self._keyed else None

    @property
    def strong(self) -> bool:
        return self._keyed

    @property
    def identity(self) -> str | None:
        return self.key

    @property
    def message_id(self) -> str:
        return self.name

    @property
    def group(self) -> str | None:
        return self._group

    @property
    def redelivered(self) -> bool:
        return self._redelivered

    @property
    def destination(self) -> str:
        return "queue://orders"


@functools.cache
def names(spec: str) -> dict[str, None]:
    """Return the names of `m1..m20 x1`, in order."""
    found: list[str] = []
    for part in spec.split():
        first, _, last = part.partition("..")
        if not last:
            found.append(first)
            continue
        stem = first.rstrip("0123456789")
        found += [f"{stem}{n}" for n in range(int(first[len(stem) :]), int(last[len(stem) :]) + 1)]
    return dict.fromkeys(found)


class BreakerWorld:
    """Broker with one queue, one consumer, its workers, and a handler whose results the scenario defines."""

    def __init__(self, scenario: dict[str, Any]) -> None:
        self.scenario = scenario
        able = {"poison_persistent": True, "poison_non_persistent": True, **scenario.get("capabilities", {})}
        self.able = Capabilities(broker="none", groups=True, **able)
        self.engine = self._engine(scenario)
        self.shared = SharedHistory()
        self.history = self.shared.opened(SOURCE)
        self.engine.state.share(self.history)
        # Results that each consumer still takes.
        self.results_left: float = scenario.get("renews", inf)
        self.keyed: bool = scenario.get("keyed", True)
        self.workers: int = scenario.get("consumer", {}).get("workers", 1)
        self.now, self.epoch, self.granted, self.ticket, self.spins = 0.0, 1, 0, 0, 0
        # Messages at the broker; and those it had sent when credit was withdrawn.
        self.queue: list[tuple[str, str | None]] = []
        self.late: list[tuple[float, list[tuple[str, str | None]]]] = []
        self.running: list[tuple[float, int, Mail]] = []
        self.calls: Counter[str] = Counter()
        self.charges: Counter[str] = Counter()
        self.done: list[str] = []
        self.dead: list[str] = []
        self.back: list[str] = []
        self.returned: set[str] = set()
        self.states: list[list[Any]] = []
        self.log: list[list[Any]] = []
        self.stopped: str | None = None
        self.last_done = 0.0
        self.events = sorted(
            [(m["at"], n, "arrive", m) for n, m in enumerate(scenario["messages"])]
            + [(e["at"], 1000 + n, e["event"], e) for n, e in enumerate(scenario.get("events", []))],
            key=lambda event: event[:2],
        )

    @staticmethod
    def _engine(scenario: dict[str, Any]) -> Engine:
        consumer, policy = scenario.get("consumer", {}), scenario.get("policy", {})
        breaker = scenario.get("breaker", {})
        delay = policy.get("redeliveryDelay", 1.0)
        plain = RedeliveryPolicy(
            maximum_redeliveries=policy.get("maximumRedeliveries", 6),
            initial_redelivery_delay=delay,
            redelivery_delay=delay,
        )
        return Engine(
            1,
            policies=RedeliveryPolicyMap(default=plain),
            dead_letters=DeadLetterRouting(),
            credit=consumer.get("credit", 1000),
            max_parked=consumer.get("maxParked", 1000),
            ordering=consumer.get("ordering", "non_blocking"),
            breaker=None if breaker == "off" else Breaker(**breaker),
        )

    def run(self) -> dict[str, Any]:
        """Play the scenario; return its outcome."""
        self.feed(Connected(self.epoch, self.able))
        while self.now <= self.scenario["until"]:
            while self.events and self.events[0][0] <= self.now:
                _, _, kind, event = self.events.pop(0)
                self.happens(kind, event)
            while self.late and self.late[0][0] <= self.now:
                self.arrive(self.late.pop(0)[1])
            if (alarm := self.engine.next_alarm()) is not None and alarm <= self.now:
                self.feed(Tick())
            self.begin()
            if not self.advance():
                break
        return self.result()

    def renew(self) -> None:
        """Close the consumer; the next one takes its messages, and knows what the source's history knows."""
        self.feed(Drained())
        held = [*self.engine.state.schedule, *self.engine.state.released]
        self.feed(ConnectionLost(self.epoch, TransportError("closed"), closed=True))
        self.queue = [*((str(each.message_id), each.group) for each in held), *self.queue]
        self.returned.update(str(each.message_id) for each in held)
        self.shared.closed(SOURCE, self.history)
        self.history = self.shared.opened(SOURCE)
        self.engine, self.granted = self._engine(self.scenario), 0
        self.engine.state.share(self.history)
        self.results_left = self.scenario["renews"]
        self.feed(Connected(self.epoch, self.able))

    def happens(self, kind: str, event: dict[str, Any]) -> None:
        match kind:
            case "arrive":
                groups = event.get("groups")
                made = names(event["names"])
                self.queue += [
                    (name, None if groups is None else groups[i % len(groups)]) for i, name in enumerate(made)
                ]
                self.deliver()
            case "lost":
                self.say("lost")
                waiting = [*self.engine.state.schedule, *self.engine.state.released]
                live = {
                    d.message_id: d.group
                    for d in [*waiting, *(d for _, _, d in self.running if d.epoch == self.epoch)]
                }
                self.feed(ConnectionLost(self.epoch, TransportError("cut")))
                self.granted = 0
                self.queue = [*((str(name), group) for name, group in live.items()), *self.queue]
            case "connected":
                self.epoch += 1
                self.feed(Connected(self.epoch, self.able))
            case _:
                self.feed(Drained())

    def begin(self) -> None:
        """Make each free worker ask; before that, let a consumer that has taken enough results close."""
        if self.results_left <= 0 and not self.running:
            self.renew()
        while self.results_left > 0 and len(self.running) < self.workers:
            found = self.feed(Wanted())
            if found is None:
                return
            self.calls[found.name] += 1
            self.say("dispatched", found.name)
            self.ticket += 1
            took = self.rule(found.name).get("seconds", 0.01)
            heapq.heappush(self.running, (self.now + took, self.ticket, found))

    def advance(self) -> bool:
        """Advance to the next moment at which something happens, and end the handlers that are done then."""
        asks = len(self.running) < self.workers and not self.engine.load.exhausted and self.results_left > 0
        due = self.engine.load.next_due() if asks else None
        at_once = [self.running[0][0]] if self.running else []
        at_once += [self.events[0][0]] if self.events else []
        at_once += [self.late[0][0]] if self.late else []
        alarm = self.engine.next_alarm()
        at_once += [] if alarm is None else [alarm]
        times = [*at_once, *([] if due is None else [due])]
        if not times:
            return False
        if min(times) <= self.now and not any(at <= self.now for at in at_once):
            self.spins += 1
            assert self.spins < HOT, f"a hot loop at {self.now}: {due} is due, and nothing is dispatched"
            self.now += 1e-6
            return True
        self.spins = 0
        self.now = max(self.now, min(times))
        if self.now > self.scenario["until"]:
            return False
        while self.running and self.running[0][0] <= self.now:
            self.finish(heapq.heappop(self.running)[2])
        return True

    def rule(self, name: str) -> dict[str, Any]:
        for rule in self.scenario["handler"]:
            low, high = rule.get("from", 0.0), rule.get("to", float("inf"))
            every, number = rule.get("every"), int(name.lstrip("abcdefghijklmnopqrstuvwxyz"))
            named = "names" not in rule or name in names(rule["names"])
            if low <= self.now < high and named and (every is None or number % every[0] in every[1]):
                return rule  # type: ignore[no-any-return]
        return {"result": "success"}

    def finish(self, mail: Mail) -> None:
        rule = self.rule(mail.name)
        result, cause = rule["result"], Cause("it failed")
        self.say("ended", mail.name, result)
        self.results_left -= 1
        before = 0 if mail.record is None else mail.record.count
        match result:
            case "success":
                self.feed(Succeeded(mail))
            case "poison":
                self.feed(Poisoned(mail, cause))
            case "discard":
                self.feed(Discarded(mail, cause))
            case "defer":
                self.feed(Deferred(mail, rule.get("delay", 30.0), cause))
            case _:
                assert result in WEIGHTS
                self.feed(Failed(mail, cause, None, result))
        after = 0 if mail.record is None else mail.record.count
        if after > before:
            self.charges[mail.name] += after - before

    def feed(self, event: Event) -> Mail | None:
        given: Mail | None = None
        for command in self.engine.feed(event, self.now):
            if isinstance(command, Dispatch):
                assert isinstance(command.delivery, Mail)
                given = command.delivery
            else:
                self.carry_out(command)
        self.deliver()
        return given

    def carry_out(self, command: Command) -> None:
        match command:
            case Accept():
                self.done += [str(delivery.message_id) for delivery in command.deliveries]
                self.last_done = self.now
            case Hold():
                what = "spared" if command.deferred else f"charged {command.count}"
                self.say("held", command.delivery.message_id, what, round(command.due, 3))
            case PoisonAck() | Forward():
                self.say("dead", command.delivery.message_id, command.count)
                self.dead.append(str(command.delivery.message_id))
                self.feed(Confirmed(command.delivery))
            case Release():
                for each in command.deliveries:
                    self.back.append(str(each.message_id))
                    self.returned.add(str(each.message_id))
                    self.queue.append((str(each.message_id), each.group))
                self.say("released", len(command.deliveries))
            case Credit():
                self.grant(command.messages)
            case BreakerChanged():
                if command.new != (self.states[-1][1] if self.states else "closed"):
                    self.states.append([round(self.now, 3), command.new])
                    self.say("breaker", command.new)
            case Stop():
                self.stopped = str(command.error)
                self.say("stopped", self.stopped)
            case _:
                raise AssertionError(command)

    def grant(self, messages: int) -> None:
        self.say("credit", messages)
        self.granted += messages
        if messages < 0 and not self.late and self.epoch == 1:
            sent = names(self.scenario.get("late", ""))
            self.late.append((self.now + 0.01, [(name, None) for name in sent]))

    def deliver(self) -> None:
        """Send what the credit allows."""
        if self.engine.state.epoch != self.epoch:
            return
        window = max(0, self.granted) if self.able.flow else len(self.queue)
        if not (self.queue and window):
            return
        take, self.queue = self.queue[:window], self.queue[window:]
        if take:
            self.granted -= len(take)
            self.arrive(take)

    def arrive(self, sent: list[tuple[str, str | None]]) -> None:
        calls, back = self.calls, self.returned
        mails = [
            Mail(self.epoch, name, group, redelivered=name in calls or name in back, keyed=self.keyed)
            for name, group in sent
        ]
        self.feed(Arrived(1, mails))

    def say(self, what: str, *details: Any) -> None:
        self.log.append([round(self.now, 3), what, *details])

    def result(self) -> dict[str, Any]:
        return {
            "calls": sum(self.calls.values()),
            "accepted": len(self.done),
            "dead": len(self.dead),
            "charged": sum(self.charges.values()),
            "most_charged": max(self.charges.values(), default=0),
            "released": len(self.back),
            "spared": self.engine.state.counts.spared,
            "done_at": round(self.last_done, 3),
            "states": self.states[:40],
            "stopped": self.stopped,
        }
