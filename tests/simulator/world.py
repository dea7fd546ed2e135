"""One world in virtual time: an adversarial broker, an application, and the library's engines between them.

An action is a tuple that names messages, not positions: a schedule can be replayed, shortened, and read. `enabled`
lists the possible next actions, `do` does one and checks every invariant, `finish` ends everything without further
failures and checks that nothing is left.
"""

from __future__ import annotations

from collections import Counter
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tests.simulator.choices import choices, free, next_time
from tests.simulator.leftovers import leftovers
from tests.simulator.order import out_of_order
from tests.simulator.process import BREAKER, DELAY, LONG_DELAY, RETRIES, Process, SimLedger
from tests.simulator.profiles import PROFILES, messages
from tests.simulator.quorum import QuorumBroker, all_noted, noted_count, noted_due
from tests.simulator.takebacks import Takebacks
from tests.simulator.truth import Truth, Violation

from redelivery.core.delivery import Cause, Record
from redelivery.core.events import (
    Alone,
    Arrived,
    Confirmed,
    Connected,
    ConnectionLost,
    Deferred,
    Drained,
    Failed,
    Poisoned,
    Released,
    Succeeded,
    Tick,
    Wanted,
)
from redelivery.core.message_history import RETURN
from redelivery.errors import TransportError

if TYPE_CHECKING:
    from collections.abc import Hashable

    from tests.simulator.profiles import Message
    from tests.simulator.sim_delivery import SimDelivery

    from redelivery.core.breaker import Weight
    from redelivery.core.dispatch_order import Ordering
    from redelivery.core.engine import Engine
    from redelivery.core.events import Event

__all__ = ["Action", "Case", "World"]

Action = tuple[Any, ...]
CUT = TransportError("cut")
DEFER, LONG_DEFER = 0.5, 2.5
UNANSWERED = ("accept", "reschedule", "outcome")
SAYS = {
    "ok": "succeeds",
    "fail": "fails",
    "trip": "finds its service down",
    "poison": "gives up",
    "defer": "defers",
    "release": "releases",
}


@dataclass(frozen=True)
class Case:
    """Configuration of a world. `budget`: how often the adversary may use each of its limited actions."""

    profile: str
    messages: str
    ordering: Ordering = "non_blocking"
    consumers: int = 1
    workers: int = 2
    outcomes: tuple[str, ...] = ("ok", "fail")
    expires: float | None = None
    ledger: bool = False
    # True if the body of the first message does not arrive whole; and how many a consumer may set aside.
    torn: bool = False
    most_aside: int = 100
    # True if the user guarantees that no two messages have one id.
    unique_ids: bool = False
    # True if the broker delays redeliveries, by delayed copies.
    scheduled: bool = False
    # True if failures in a row open a breaker.
    breaker: bool = False
    # True if the credit starts with one message, and grows.
    auto: bool = False
    # Seconds that the broker's clock is ahead.
    skew: float = 0.0
    budget: dict[str, int] = field(default_factory=lambda: {"cut": 2})


class BesideSuccesses:
    """Uncharged failures of a message in one process, after another message has succeeded there, at any consumer."""

    def __init__(self) -> None:
        self.successes = 0
        # How many successes there were at the first failure.
        self._first: dict[str, int] = {}
        self._tries: Counter[str] = Counter()

    def succeeded(self, name: str) -> None:
        """Note a success; if the message is redelivered nevertheless, it begins anew."""
        self.successes += 1
        self.again(name)

    def failed(self, name: str, *, spared: bool) -> int:
        """Note a failure of a message; return how many were not charged so far."""
        if self._first.setdefault(name, self.successes) < self.successes:
            self._tries[name] += spared
        return self._tries[name]

    def again(self, name: str) -> None:
        """Forget a message that somebody has put back after it had died, or that the broker delays: it begins anew."""
        self._first.pop(name, None)
        del self._tries[name]


class World:
    """State of everything."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.profile = PROFILES[case.profile]
        self.able = self.profile.capabilities(grows=case.auto)
        self.all = messages(
            case.messages,
            ordering=case.ordering,
            expires=case.expires,
            torn=case.torn,
            # Another broker's ids are those of other messages.
            distinct=self.profile.strong and not case.budget.get("move"),
            by_bytes=True,
        )
        self.unsent = list(self.all)
        self.delay = LONG_DELAY if case.scheduled else DELAY
        self.defer = LONG_DEFER if case.scheduled else DEFER
        self.truth = Truth(self.all, RETRIES + 1, shared=case.ledger)
        if not self.profile.strong:
            dated = (each.kin for each in self.all if each.created is not None or case.unique_ids)
            self.truth.relaxation.alike.update(dated)
        # True if the broker delays the message itself, and keeps notes on it.
        self.native = case.scheduled and self.profile.delays == "native"
        hasty = bool(case.budget.get("hasty"))
        self.broker = QuorumBroker(self.profile, self.all, self.truth, skew=case.skew, hasty=hasty)
        self.ledger = SimLedger() if case.ledger else None
        # Messages that a consumer of another process has.
        self.theirs: list[Message] = []
        self.handlers: list[SimDelivery] = []
        self.epoch, self.up, self.now, self.step = 0, False, 0.0, 0
        # When the connection began, and which messages it has delivered.
        self.began = 0.0
        self.brought, self.known = set[str](), set[str]()  # and to this process
        self.budget = Counter(case.budget)
        self.takebacks = Takebacks(self)
        self.outcomes = case.outcomes
        # Messages open when a process died; and whether the next dispatch must be exclusive.
        self.suspects: set[str] = set()
        self.beside = BesideSuccesses()
        self.alone = False
        self.crashed = False
        # Messages that handlers had when the connection was lost.
        self.open: set[Hashable] = set()
        # Dead letters that a killed broker forgot; of them, those whose verdict died with a process.
        self.forgotten: set[str] = set()
        self.unknown: set[str] = set()
        self.log: list[str] = []
        self.tell = False
        self.process = self._process(range(1, case.consumers + 1))
        self._connect()

    def _process(self, numbers: range) -> Process:
        process = Process(
            self.broker,
            self._dispatched,
            ordering=self.case.ordering,
            ledger=self.ledger,
            unique_ids=self.case.unique_ids,
            most_aside=self.case.most_aside,
            scheduled=self.case.scheduled,
            breaker=self.case.breaker,
            auto=self.case.auto,
        )
        for number in numbers:
            process.open(number)
        return process

    def enabled(self) -> list[Action]:
        """Return all possible next actions."""
        return choices(self)

    # The actions.

    def do(self, action: Action) -> bool:
        """Do one action; return True if it was possible. Raises Violation."""
        self.step += 1
        who = self.takebacks if action[0] in ("takeback", "notice", "learn") else self
        done = getattr(who, f"_do_{action[0]}")(*action[1:]) is not False
        while self.process.stopped:
            # Above the maximum of messages set aside its consumer stops, as it must; the others continue.
            self._close(self.process.stopped.pop(), "stops consumer")
        return done

    def note(self, who: str, text: str) -> None:
        """Write one line of the story."""
        if self.tell:
            self.log.append(f"{self.step:3} {self.now:6.1f} s  {who:12} {text}")

    def feed(self, number: int, event: Event) -> bool:
        return self.process.feed(number, event, self.now, epoch=self.epoch if self.up else None)

    def _named(self, found: list[Message], name: str) -> Message | None:
        return next((message for message in found if message.name == name), None)

    def _do_send(self, name: str) -> bool:
        if not self.unsent or self.unsent[0].name != name:
            return False
        message = self.unsent.pop(0)
        message.sent = self.step
        self.broker.queue.append(message)
        self.note(
            "producer", f"sends {name} (id {message.key!r}, body {message.body!r}, created {message.created})"
        )
        return True

    def _do_deliver(self, name: str, consumer: int) -> bool:
        found = self._named(self.broker.queue, name)
        able = self.broker.may_deliver(consumer) and found is not None and self.broker.has_told(found)
        if not self.up or found is None or not able:
            return False
        self._unrecognized(found)
        self.brought.add(name)
        if self.native and self.ledger is None and name not in self.known:
            self.truth.noted(found, noted_count(found))
        self.known.add(name)
        delivery = self.broker.delivery(consumer, self.epoch, found)
        self.note("broker", f"delivers {name} to consumer {consumer}{', marked' if found.mark else ''}")
        self.feed(consumer, Arrived(consumer, [delivery]))
        return True

    def _unrecognized(self, message: Message) -> None:
        """Find out what cannot be known of a delivered message. Quoted: rows of the decision table."""
        name, truth, nameless = message.name, self.truth, self.broker.nameless(message)
        for each in self.handlers:
            # "no id: fresh"; and a closed consumer is not waited for.
            if each.message.kin == message.kin and (nameless or each.consumer in self.process.closed):
                each.heard = False
        # "poisoned and confirmed: poison again, in the first 60 s of the connection".
        gone = truth.was_settled(message) or name in self.forgotten
        # And "within 60 s of the loss".
        late = gone and truth.is_safe(name) and (self.now - self.began > RETURN or truth.past(message))
        late = self.broker.is_past(message, self.now) or late
        # A ledger recognises a message without id by its bytes, until its dead letter is confirmed; notes come along.
        afresh = (
            nameless
            and (self.ledger is None or gone)
            and not (self.native and all_noted(message, truth, DELAY / 2))
        )
        if self.now - self.began > RETURN:
            truth.late(message)
        if late or afresh or name in self.unknown:
            truth.forget(message)
            if nameless:
                # "No id, released: known by its bytes and the redelivered flag".
                truth.believe(message, truth.kept[message.kin])
            message.copied_as = None
        elif nameless:
            truth.ledger_only(message)
        # "First come takes the record, the other is fresh."
        kin = self.epoch > 1 and truth.size[message.kin] > 1
        again = kin or bool(truth.successes[message.kin])
        if self.ledger is None and (afresh or late or again or truth.moved or name in truth.elsewhere):
            # "nothing is known: the broker's count is believed"; also of one that is handled again after a success.
            truth.believe(message, message.count)
        unsure = (
            again or late or afresh or nameless or self.crashed or name in truth.elsewhere | truth.dropped
        )
        if self.profile.quorum and unsure:
            truth.believe(message, noted_count(message))
        if message.headers and (again or late or afresh):
            # "Its count comes from its headers": after a success too.
            truth.believe(message, int(message.headers["redeliveryCount"]))
        if gone:
            # Its dead letter, or its copy, was confirmed, which removed it.
            self.suspects.discard(name)
        self.unknown.discard(name)

    def _do_begin(self, consumer: int) -> bool:
        engine = self.process.engines.get(consumer)
        if engine is None or not free(self, consumer):
            return False
        before, does = len(self.handlers), False
        if engine.load.suspects and not self.handlers:
            self.alone = True
            does = self.feed(consumer, Alone())
            self.alone = False
        while len(self.handlers) == before and self.feed(consumer, Wanted()):
            does = True
        # In blocking order all wait for a suspect, and that one waits for all running handlers.
        if not does and engine.load.ready() and not engine.load.full and not engine.load.suspects:
            raise Violation(
                f"idle: consumer {consumer} has {engine.load.ready()} ready and room, and begins none"
            )
        return does

    def _dispatched(self, delivery: SimDelivery) -> None:
        message = delivery.message
        if not self.up or delivery.epoch != self.epoch:
            raise Violation(f"epoch: {message.name} is begun for a connection that is gone")
        if delivery in self.broker.aside:
            raise Violation(f"aside: {message.name} is begun, and was set aside")
        # Handlers of a closed consumer are not waited for.
        closed = [each for each in self.handlers if each.consumer in self.process.closed]
        for each in closed:
            each.heard = each.heard and each.message.kin != message.kin
        running = [each.message for each in self.handlers if each.heard and each not in closed]
        self.truth.begins(message, self.now, running)
        if message.name in self.suspects and self.truth.size[message.kin] == 1 and not self.alone:
            raise Violation(f"beside: {message.name} was open when a process died, and does not run alone")
        if (first := out_of_order(self, delivery)) is not None:
            raise Violation(f"order: {message.name} is begun before {first.name}")
        if self.profile.quorum:
            self.truth.counted(message, 0 if delivery.record is None else delivery.record.count)
        message.copied_as = None
        self.handlers.append(delivery)
        self.note("application", f"begins {message.name}")

    def _do_end(self, name: str, epoch: int, outcome: str) -> bool:
        found = [each for each in self.handlers if each.message.name == name and each.epoch == epoch]
        if not found:
            return False
        delivery = found[0]
        self.handlers.remove(delivery)
        message = delivery.message
        old = "" if self.up and epoch == self.epoch else " (its connection is gone)"
        self.note("application", f"{SAYS[outcome]} with {name}{old}")
        truth, heard = self.truth, self._heard(delivery)
        if outcome != "release":
            self.suspects.discard(name)
        event: Event = Released(delivery)
        if outcome == "ok":
            self.beside.succeeded(name)
            truth.succeeded(message, self.step, heard=heard and delivery.consumer in self.process.engines)
            event = Succeeded(delivery)
        elif outcome in ("fail", "trip"):
            return self._fails(delivery, heard=heard, outage=outcome == "trip")
        elif outcome == "poison":
            truth.condemned(message, heard=heard)
            event = Poisoned(delivery, Cause(f"of {name}"))
        elif outcome == "defer":
            truth.postponed(message, self.now + self.defer, heard=heard)
            event = Deferred(delivery, self.defer, Cause("later"))
        self.feed(delivery.consumer, event)
        return True

    def _fails(self, delivery: SimDelivery, *, heard: bool, outage: bool) -> bool:
        """End a handler by a failure. A spared message is parked like a deferred one; this checks that it may be."""
        message: Message = delivery.message
        weight: Weight = "outage" if outage else "maybe"
        engine = self.process.engines.get(delivery.consumer) or self.process.closed[delivery.consumer]
        before, count = engine.load.breaker_state, 0 if delivery.record is None else delivery.record.count
        spared = self._will_be_spared(engine, delivery, weight)
        if spared:
            self.note("breaker", f"{message.name} is not charged")
            self.truth.postponed(message, self.now, heard=heard)
        else:
            self.truth.failed_once(message, self.now + self.delay, heard=heard)
        self.feed(delivery.consumer, Failed(delivery, Cause(f"of {message.name}"), weight=weight))
        record = delivery.record
        if spared and not outage and "closed" == before == engine.load.breaker_state:
            raise Violation(
                f"spared: {message.name} failed, and is not charged although the breaker is closed"
            )
        if spared and (record is None or record.count > count):
            raise Violation(f"charged: {message.name} is charged although the breaker spares it")
        # The record of an unheard one is not that of the message any more; and kin may have each other's.
        alone = heard and self.truth.size[message.kin] == 1
        if alone and (outage or self.case.ordering != "blocking"):
            self._bounded(delivery, spared=spared)
        return True

    def _bounded(self, delivery: SimDelivery, *, spared: bool) -> None:
        """Check that uncharged failures beside successes have a bound. In strict order only named ones count.

        A message that the broker delays between two charged failures comes back as one that has not failed beside any
        success: there the bound is for each of its charged failures.
        """
        tries = self.beside.failed(delivery.message.name, spared=spared)
        if tries > BREAKER.uncharged and not self.broker.nameless(delivery.message):
            raise Violation(
                f"for ever: {delivery.message.name} is tried {tries} times uncharged beside successes"
            )
        if self.case.scheduled and not spared:
            self.beside.again(delivery.message.name)

    def _will_be_spared(self, engine: Engine, delivery: SimDelivery, weight: Weight) -> bool:
        """Return True if the breaker spares a failure, as a copy of the breaker answers."""
        real = engine.state.gate.circuit
        if real is None:
            return False
        circuit = copy(real)
        circuit._past, circuit._before = deepcopy(real._past), set(real._before)
        rounds = real._rounds
        circuit._rounds = replace(rounds, tries=set(rounds.tries), overdue=set(rounds.overdue))
        record = Record() if delivery.record is None else delivery.record.apart()
        if record.failed_at is not None and record.failed_at[0] is real:
            record.failed_at = circuit, record.failed_at[1]
        return circuit.failed(delivery, record, weight, self.now)

    def _heard(self, delivery: SimDelivery) -> bool:
        """Return True if a handler's result is charged: not if its consumer has closed, and another has the message."""
        if not delivery.heard or delivery.consumer in self.process.engines:
            return delivery.heard
        kin = delivery.message.kin
        return all(each.message.kin != kin for mine in self.broker.unsettled.values() for each in mine)

    def _do_broker(self, error: TransportError | None = None) -> bool:
        """Read what was written, up to the first command that is answered."""
        while self.up and self.broker.wire:
            kind = self.broker.wire[0][0]
            self.broker.read(self.now, self.step, error if kind != "accept" else None)
            if kind != "accept":
                return True
        return False

    def _do_refuse(self) -> bool:
        self.budget["refuse"] -= 1
        return self._do_broker(TransportError("refused"))

    def _do_ripe(self, name: str) -> bool:
        """Make the broker deliver a delayed copy from now on: when it is due, or early if it delays nothing."""
        if name not in self.broker.delayed:
            return False
        if self.broker.delayed[name][0] > self.now:
            self.budget["hasty"] -= 1
        self.broker.ripen(name)
        self.note("broker", f"has held {name}")
        return True

    def _do_redrive(self, name: str) -> bool:
        """Put a dead letter back as an operator, on a broker that keeps its id."""
        found = self._named(self.all, name)
        if found is None or self.truth.gone.get(name) != "dead":
            return False
        self.budget["redrive"] -= 1
        self.broker.redriven(found, self.now, self.step)
        self.beside.again(found.name)
        for delivery in self.handlers if self.profile.strong else ():
            # Its number is a new one now.
            delivery.heard = delivery.heard and delivery.message is not found
        self.forgotten.discard(name)
        self.note("somebody", f"puts {name} back, which was dead")
        return True

    def _do_answer(self) -> bool:
        if not self.broker.answers:
            return False
        delivery, error = self.broker.answers.pop(0)
        if error is None and delivery.state == "settling":  # or nothing waits for it
            self.truth.confirmed(delivery.message, self.now)
        if delivery.consumer in self.process.engines:
            self.feed(delivery.consumer, Confirmed(delivery, error))
        return True

    def _read(self, many: int) -> None:
        for _ in range(min(many, len(self.broker.wire))):
            self.broker.read(self.now, self.step)

    def _do_cut(self, read: int, how: str = "") -> bool:
        if not self.up:
            return False
        self.budget["cut"] -= 1
        self._read(read)
        self.note("network", f"is cut; the broker has read {read} of what was written; {how or 'marked'}")
        self._lose(mark=self.profile.marks == "all" or not how)
        return True

    def _do_kill(self, read: int) -> bool:
        """Kill the broker: it forgets its last work."""
        if not self.up or self.broker.would_forget(self.now) is None:
            return False
        self.budget["kill"] -= 1
        self._read(read)
        message = self.broker.killed()
        if self.truth.again[message.kin]:
            self.forgotten.add(message.name)
            if self.crashed:
                # No process knows its verdict any more, and the ledger had removed it.
                self.unknown.add(message.name)
        self.note("broker", f"is killed and started; it has forgotten what became of {message.name}")
        self._lose(mark=message.mark)
        return True

    def _lose(self, *, mark: bool) -> None:
        self.up = False
        self.open = {each.message.kin for each in self.handlers}
        if self.now - self.began > RETURN:
            self.truth.outlived(self.brought)
        self.truth.recalled(self.now)
        unsettled = [each for mine in self.broker.unsettled.values() for each in mine]
        for each in self.broker.vain:
            each.final = "accept"
        # Taken back, and not known to the library yet.
        untold = [each for _, gone in (*self.broker.notices, *self.broker.settled) for each in gone]
        self.truth.relaxation.lost([*unsettled, *untold, *self.broker.vain])
        self.broker.lose(mark=mark)
        for number in self.process.engines:
            self.feed(number, ConnectionLost(self.epoch, CUT))

    def _do_close(self, number: int) -> bool:
        """Close a consumer, and open another one of the same connection in its place."""
        if not self.up or number not in self.process.engines:
            return False
        self.budget["close"] -= 1
        self._close(number, "closes consumer")
        new = max([*self.process.engines, *self.process.closed]) + 1
        self.process.open(new)
        self.feed(new, Connected(self.epoch, self.able, self._address(), self.began))
        return True

    def _close(self, number: int, what: str) -> None:
        self.note("application", f"{what} {number}")
        self.feed(number, Drained())
        while any(delivery.consumer == number for _, delivery in self.broker.wire):
            self._read(1)
        self.feed(number, ConnectionLost(self.epoch, CUT, closed=True))
        process = self.process
        process.closed[number] = process.engines.pop(number)
        self.broker.close(number)
        here = {each.message.kin for mine in self.broker.unsettled.values() for each in mine}
        for delivery in self.handlers:
            # Another consumer has it already, and waits no longer.
            delivery.heard &= delivery.consumer != number or delivery.message.kin not in here

    def _do_crash(self, read: int) -> bool:
        """Kill the process and start it again; its ledger has the attempts it had begun."""
        if self.ledger is None or not self.handlers:
            return False
        self.budget["crash"] -= 1
        self.note("application", "dies with " + ", ".join(each.message.name for each in self.handlers))
        alone = len(self.handlers) == 1
        for delivery in self.handlers:
            self.suspects.add(delivery.message.name)
            if alone:
                # Kin share an entry, and so do two handlers of one message: it may have been charged already.
                kin = delivery.message.kin
                sure = delivery.heard and self.truth.size[kin] == 1 and not self.truth.maybe[kin]
                self.truth.failed_once(delivery.message, self.now + self.delay, heard=sure)
        self.handlers.clear()
        self.crashed = True
        self.unknown |= self.forgotten
        self.ledger.died(self.now)
        self._begin_again(read)
        self.truth.process_died()
        for message in self.all:
            # The next process makes names of its own.
            message.copied_as = None
        self._connect()
        return True

    def _begin_again(self, read: int) -> None:
        """End the process, and start another one."""
        self._read(read)
        self.truth.relaxation.begun_again()
        self.broker.lose(mark=self.profile.marks == "all")
        last = max([*self.process.engines, *self.process.closed])
        for number in list(self.broker.unsettled):
            self.broker.close(number)
        self.process = self._process(range(last + 1, last + 1 + self.case.consumers))
        self.beside = BesideSuccesses()

    def _do_die(self, read: int) -> bool:
        """Kill the process and start another one without a ledger: only what the broker keeps is known."""
        self.budget["die"] -= 1
        self.note("application", "dies with " + ", ".join(each.message.name for each in self.handlers))
        self.handlers.clear()
        self.crashed = True
        self.unknown |= self.forgotten
        self._begin_again(read)
        self.known.clear()
        for message in self.all:
            self.truth.noted_only(message, noted_count(message), noted_due(message))
        self._connect()
        return True

    def _do_up(self, where: str = "") -> bool:
        if self.up:
            return False
        if where:
            self.budget["move"] -= 1
            self.broker.shift = 1 - self.broker.shift
            self.truth.moved = self.profile.strong
            # Its ids are of its own: nothing is known of what comes from there.
            self.beside = BesideSuccesses()
            for message in self.all if self.profile.strong else ():
                # "at another address the broker's ids are others": none is known by its number.
                self.truth.forget(message)
            for delivery in self.handlers if self.profile.strong else ():
                delivery.heard = False
        self._connect()
        return True

    def _address(self) -> str:
        return f"broker {self.broker.shift}"

    def _connect(self) -> None:
        self.epoch += 1
        self.up = True
        if self.epoch > 1:
            self.now += 0.1
            self.note("library", f"is connected again, to {self._address()}")
        self.began = self.now
        self.brought.clear()
        self.process.connected(self._address())
        for number in self.process.engines:
            self.feed(number, Connected(self.epoch, self.able, self._address()))

    def _do_wait(self) -> bool:
        at = next_time(self)
        if at is None:
            return False
        self.takebacks.catch_up()
        while self.up and self.broker.wire and self.broker.wire[0][0] in UNANSWERED:
            # A broker that reads nothing for so long misses its heart-beats.
            self._read(1)
        self.now = max(self.now, at) + 1e-6
        self.note("time", "passes")
        for number in list(self.process.engines):
            self.feed(number, Tick())
            if self.up and free(self, number):
                self._do_begin(number)
        return True

    def _do_other(self, what: str, name: str) -> bool:
        """Give a message to a consumer of another process, which settles or releases it."""
        found = self._named(self.broker.queue if what == "take" else self.theirs, name)
        if found is None:
            return False
        self.note("another", f"process: {what} {name}")
        if what == "take":
            self.budget["other"] -= 1
            self.broker.queue.remove(found)
            self.theirs.append(found)
            self.truth.elsewhere.add(name)
            self.truth.relaxation.taken_elsewhere(found.kin)
            return True
        self.theirs.remove(found)
        if what == "fail":
            self.truth.failed_once(found, self.now + self.delay, heard=False)
            self.broker.failed_elsewhere(found, self.now, self.delay)
        elif what == "ok":
            # A success there is not known to this process: its failures stay charged.
            self.truth.successes[found.kin].append(self.step)
            self.truth.accepted(found, self.step)
        else:
            found.mark = True
            found.count += self.profile.counts
            self.broker.queue.insert(0, found)
        return True

    def finish(self) -> None:
        """End everything without further failures; nothing may be left. Raises Violation."""
        self.budget.clear()
        self.outcomes = ("ok",)
        idle: Action | None = None
        for _ in range(500):
            can = [action for action in self.enabled() if action[0] != "other" or action[1] == "ok"]
            # A ready message that cannot begin now can do so after something else has happened.
            can = [action for action in can if action != idle]
            if can:
                well = (
                    "up",
                    "notice",
                    "learn",
                    "send",
                    "end",
                    "answer",
                    "broker",
                    "ripe",
                    "deliver",
                    "other",
                    "begin",
                )
                chosen = next((action for action in can if action[0] in well), can[0])
                idle = None if self.do(chosen) else chosen
                continue
            if (many := len(self.broker.wire)) > 0:
                self._read(many)
                if any(action[0] == "deliver" for action in self.enabled()):
                    # There was no room for it before.
                    continue
            left, held = leftovers(self)
            if not left:
                return
            if not held:
                raise Violation(f"stuck: {left} neither accepted nor dead, and nothing can happen any more")
            # Released where the broker takes nothing back: kept until the end.
            self._lose(mark=False)
        raise Violation("no end: 500 steps, and it still goes on")
