"""Table of a delivery's states: each row happens; every test checks that no other transition does."""

from __future__ import annotations

import ast
import itertools
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest
from tests.core.bench import CAUSE, CONFIRMED_FORWARD, NATIVE, Bench, routed
from tests.core.model import WALL_OFFSET, Arrival, Letter

from redelivery.core.breaker import Breaker
from redelivery.core.capabilities import Capabilities
from redelivery.core.commands import Accept, SetAside, Stop
from redelivery.core.dead_lettering.routing import DeadLetterRouting
from redelivery.core.delivery import Record, State
from redelivery.core.events import (
    Alone,
    Arrived,
    Committed,
    Confirmed,
    ConnectionLost,
    Deferred,
    Discarded,
    Drained,
    Failed,
    Known,
    Paused,
    Poisoned,
    Released,
    Resumed,
    Succeeded,
    TakenBack,
    Tick,
    Wanted,
)
from redelivery.core.ledger_entry import Entry
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy
from redelivery.core.transitions import TRANSITIONS, enter
from redelivery.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.transitions import Transitions

    from redelivery.core.events import Event

ROOTS = [Path(__file__).parents[2] / folder for folder in ("client", "adapters")]
KEEPS = Capabilities("model", poison_persistent=True, poison_non_persistent=True)
"""Broker that takes nothing back before the consumer closes."""
ONCE = RedeliveryPolicy(maximum_redeliveries=0)


class Stops(DeadLetterRouting):
    """Route that stops the consumer at once."""

    def command(self, *_: Any) -> Any:
        return Stop(AdapterError("there is no way out"))


class GivesUp(DeadLetterRouting):
    """Route that sends one copy, and stops the consumer when it was refused."""

    def command(self, delivery: Any, record: Any, *known: Any) -> Any:
        found = super().command(delivery, record, *known)
        return Stop(AdapterError("refused")) if record.tries else found


class SetsAside(DeadLetterRouting):
    """Route that cannot copy."""

    def command(self, delivery: Any, *_: Any) -> Any:
        return SetAside(delivery, AdapterError("it cannot be copied"))


class DropsLater(DeadLetterRouting):
    """Route that sends one copy, and drops the message when it was refused."""

    def command(self, delivery: Any, record: Any, *known: Any) -> Any:
        return Accept((delivery,)) if record.tries else super().command(delivery, record, *known)


class Walk:
    """One message on its way through an engine, up to a situation; then one event."""

    def __init__(self, *, counted: bool, **options: Any) -> None:
        self.bench = Bench(counted=counted, **options)
        self.counted = counted
        self.looked_up = False  # the ledger has not answered yet
        self.letter = Letter(0)

    def arrives(self) -> Arrival:
        """Arrived, and not dispatched."""
        return self.bench.arrive(self.letter)[0]

    def expires(self) -> Arrival:
        """Expired before it is dispatched."""
        self.letter.expires_at = self.bench.now + 30 + WALL_OFFSET
        return self.arrives()

    def is_wanted(self) -> Arrival:
        """Dispatched; with a ledger still looked up."""
        delivery = self.arrives()
        self.bench.want()
        self.looked_up = self.counted
        return delivery

    def is_known(self, entry: Entry | None) -> Arrival:
        """Dispatched, and looked up."""
        delivery = self.is_wanted()
        if self.looked_up and delivery.state == "running":
            self.bench.feed(Known(delivery, entry))
        self.looked_up = False
        return delivery

    def runs(self) -> Arrival:
        """Running in its handler."""
        return self.is_known(None)

    def is_parked(self) -> Arrival:
        """Failed once, and parked."""
        delivery = self.runs()
        self.bench.fail(delivery)
        return delivery

    def expires_parked(self) -> Arrival:
        """Failed once, and expiring before it is due."""
        self.letter.expires_at = self.bench.now + 30 + WALL_OFFSET
        return self.is_parked()

    def is_suspect(self) -> Arrival:
        """Crash suspect."""
        return self.is_known(Entry(suspect=True))

    def expires_suspect(self) -> Arrival:
        """Crash suspect that expires before it may run."""
        self.letter.expires_at = self.bench.now + 30 + WALL_OFFSET
        return self.is_suspect()

    def is_released(self) -> Arrival:
        """Released by its handler; the next one is asked for."""
        delivery = self.runs()
        self.bench.feed(Released(delivery))
        self.bench.want()
        return delivery

    def runs_beside_others(self) -> Arrival:
        """Running in its handler, while two others wait."""
        delivery = self.runs()
        self.bench.arrive(Letter(1), Letter(2))
        return delivery

    def has_failed_beside_others(self) -> Arrival:
        """Failed once, while two others wait."""
        delivery = self.runs_beside_others()
        self.bench.fail(delivery)
        return delivery

    def is_poison(self) -> Arrival:
        """Dead-lettered."""
        delivery = self.runs()
        self.bench.feed(Poisoned(delivery, CAUSE))
        return delivery

    def is_refused(self) -> Arrival:
        """Dead-lettered, but the broker refused the copy."""
        delivery = self.is_poison()
        if delivery.state == "settling":
            self.bench.feed(Confirmed(delivery, AdapterError("full")))
        return delivery

    def waits_for_another(self, *, succeeds: bool = False, poisoned: bool = False) -> Arrival:
        """Redelivered here while another consumer's handler has it from a lost connection; then that handler ends."""
        history, elsewhere = self.bench.engine.state.history, Arrival(self.letter, 0, counts=False)
        record = elsewhere.record = Record()
        elsewhere.consumer = 2
        history.connection_lost(2, [], [], [elsewhere], self.bench.now, 1)
        delivery = self.arrives()
        record.poisoned, record.due = poisoned, None if succeeds or poisoned else self.bench.now + 600
        history.ended(elsewhere, succeeded=succeeds)
        return delivery

    def cut(self, before: Callable[[Walk], Arrival]) -> Arrival:
        """Lose the connection after `before`."""
        delivery = before(self)
        self.bench.lose()
        self.bench.connect()
        return delivery

    def comes_again(self, before: Callable[[Walk], Arrival]) -> Arrival:
        """Redeliver the message after a lost connection."""
        delivery = self.cut(before)
        self.bench.again(self.letter)
        return delivery


SITUATIONS: list[Callable[[Walk], Arrival]] = [
    Walk.arrives, Walk.expires, Walk.is_wanted, Walk.runs, Walk.is_parked, Walk.expires_parked, Walk.is_suspect,
    Walk.expires_suspect, Walk.is_released, Walk.is_poison, Walk.is_refused, Walk.runs_beside_others,
    Walk.has_failed_beside_others,
    lambda walk: walk.cut(Walk.is_wanted),
    lambda walk: walk.cut(Walk.runs),
    lambda walk: walk.comes_again(Walk.is_wanted),
    lambda walk: walk.comes_again(Walk.runs),
    lambda walk: walk.comes_again(Walk.is_parked),
    lambda walk: walk.comes_again(Walk.is_poison),
    Walk.waits_for_another,
    lambda walk: walk.waits_for_another(succeeds=True),
    lambda walk: walk.waits_for_another(poisoned=True),
]  # fmt: skip
BOTH = (False, True)
ABLE = [NATIVE, replace(NATIVE, flow=True), KEEPS, CONFIRMED_FORWARD]
ROUTES = [
    routed(process_expired=False), routed(dead_letter="discard"), Stops(), GivesUp(), DropsLater(),
    DeadLetterRouting(maximum_set_aside=0),
]  # fmt: skip
ENGINES: list[dict[str, Any]] = [
    *({"able": able} for able in ABLE),
    *({"able": able, "policy": ONCE, "maximum_deferrals": 0} for able in ABLE),
    *({"able": CONFIRMED_FORWARD, "dead_letters": route} for route in ROUTES),
    {
        "able": replace(NATIVE, max_hold=60.0),
        "policy": ONCE,
        "maximum_deferrals": 0,
        "dead_letters": SetsAside(),
    },
    {"able": CONFIRMED_FORWARD, "dead_letters": SetsAside()},
    {"able": KEEPS, "max_parked": 1},
    {"able": replace(NATIVE, flow=True, max_hold=60.0), "breaker": Breaker(failures=1, messages=1)},
]


def events(walk: Walk, delivery: Arrival) -> Iterator[Event]:
    """Return every event that can be fed now."""
    bench = walk.bench
    yield from (Wanted(), Tick(), Paused(), Drained(), ConnectionLost(bench.epoch, AdapterError("cut")))
    # A copy that waits for a handler is the latest one.
    unsettled = dict.fromkeys([*bench.engine.state.schedule, delivery, *bench.latest])
    yield TakenBack(1, [*unsettled])
    yield Arrived(1, [Arrival(walk.letter, bench.epoch, counts=bench.able.counts)])
    if delivery.state == "settling":
        yield from (Confirmed(delivery), Confirmed(delivery, AdapterError("full")))
        yield Confirmed(delivery, AdapterError("too large"), final=True)
    if walk.counted:
        yield Alone()
        if delivery.state == "ready":
            yield Resumed(delivery)
    if walk.looked_up and delivery.state == "running":
        for entry in (
            None,
            Entry(suspect=True),
            Entry(count=1, last=bench.now + WALL_OFFSET),
            Entry(poisoned=True),
        ):
            yield Known(delivery, entry)
    else:
        yield from (
            Succeeded(delivery), Failed(delivery, CAUSE), Poisoned(delivery, CAUSE), Discarded(delivery, CAUSE),
            Committed(delivery), Deferred(delivery, 1.0, CAUSE), Released(delivery),
        )  # fmt: skip


def walks() -> Iterator[tuple[Walk, Event]]:
    """Yield every situation with every possible next event, on each kind of broker, before and after the end."""
    for options, counted, situation, ends in itertools.product(ENGINES, BOTH, SITUATIONS, BOTH):
        number, most = 0, 1
        while number < most:
            walk = Walk(counted=counted, **options)
            delivery = situation(walk)
            if ends:
                walk.bench.feed(Drained())
            walk.bench.now += 61
            # Each event belongs to a walk of its own.
            able = [*events(walk, delivery)]
            yield walk, able[number]
            number, most = number + 1, len(able)


@pytest.mark.ci("each event in each situation: 1.3 s")
def test_each_event_of_each_row_happens_and_no_other(transitions: Transitions) -> None:
    """The engine makes the transitions of the table, in every situation with every event."""
    transitions.seen.clear()
    for walk, event in walks():
        walk.bench.feed(event)
    assert {(row.before, row.after, event) for row in TRANSITIONS for event in row.events} == transitions.seen


def test_the_table_knows_each_state_and_no_other() -> None:
    """Every state is entered, and all but the final ones are left."""
    assert {row.after for row in TRANSITIONS} == {*get_args(State)}
    assert {row.before for row in TRANSITIONS} == {*get_args(State)} - {"settled", "lost"}
    pairs = [(row.before, row.after) for row in TRANSITIONS]
    assert len(pairs) == len(set(pairs))


def test_a_transition_that_is_not_in_the_table_fails_a_test(transitions: Transitions) -> None:
    """A settled delivery that changes its state raises at once, and fails the test at its end, on any thread."""
    delivery = Arrival(Letter(0), 1, counts=False)
    enter(delivery, "running")
    enter(delivery, "settled")
    with pytest.raises(AssertionError, match="settled -> running"):
        enter(delivery, "running")

    def hidden() -> None:
        with pytest.raises(AssertionError):
            enter(delivery, "parked")

    thread = threading.Thread(target=hidden)
    thread.start()
    thread.join()
    assert [each.partition(" is")[0] for each in transitions.violations] == [
        "settled -> running",
        "settled -> parked",
    ]
    transitions.violations.clear()


def test_one_place_changes_a_state() -> None:
    """Only `enter` and the constructors assign a delivery's state."""
    writers = {
        f"{path.parent.name}/{path.name} {function.name}"
        for root in ROOTS
        for path in root.rglob("*.py")
        # Reading the text of a file takes a hundredth of the time of parsing it.
        if ".state" in (code := path.read_text(encoding="utf-8"))
        for function in ast.walk(ast.parse(code))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and node.attr == "state" and isinstance(node.ctx, ast.Store)
        # The breaker has a state of its own.
        if path.name != "breaker.py"
    }
    makers = ("core/delivery.py", "redelivery_stomp/delivery.py", "redelivery_amqp/delivery.py")
    # The state of Spark's log, and that of a consumer.
    others = {"stream/journal.py __init__", "core/engine.py __init__"}
    enters = {"core/transitions.py enter", "core/transitions.py enter_all"}
    assert writers == {f"{path} __init__" for path in makers} | others | enters
