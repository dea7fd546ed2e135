"""The table of a delivery's states: each row happens; that nothing else does is checked in every test."""

from __future__ import annotations

import ast
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest
from tests.core.bench import CAUSE, CONFIRMED_FORWARD, NATIVE, Bench
from tests.core.model import WALL_OFFSET, Arrival, Letter

from redelivery.core.capabilities import Capabilities
from redelivery.core.commands import Forward, Stop
from redelivery.core.dead_lettering.routing import DeadLetterRouting
from redelivery.core.delivery import State
from redelivery.core.events import Confirmed, Drained, Poisoned, Released, Succeeded, Tick
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy
from redelivery.core.transitions import TRANSITIONS, enter
from redelivery.errors import AdapterError

if TYPE_CHECKING:
    from tests.transitions import Transitions

ROOTS = [Path(__file__).parents[2] / folder for folder in ("client", "adapters")]
KEEPS = Capabilities("model", poison_persistent=True, poison_non_persistent=True)
"""A broker that takes nothing back before the consumer closes."""
ONCE = RedeliveryPolicy(maximum_redeliveries=0)


class GivesUp(DeadLetterRouting):
    """A route that sends one copy, and stops the consumer when that was refused."""

    def command(self, delivery: Any, record: Any, *known: Any) -> Any:
        found = super().command(delivery, record, *known)
        return Stop(AdapterError("refused")) if record.tries else found


def _fails_and_is_remembered() -> None:
    bench, letter = Bench(), Letter(0)
    bench.fail(bench.run(letter))
    bench.lose()
    bench.connect()
    assert bench.again(letter).state == "parked"
    bench.now += 61
    assert bench.want() is not None


def _second_delivery(
    policy: RedeliveryPolicy | None = None, able: Capabilities = NATIVE
) -> tuple[Bench, Arrival, Arrival]:
    """Return a delivery of a lost connection, and the second one that waits for its handler."""
    bench, letter = Bench(policy=policy, able=able), Letter(0)
    first = bench.run(letter)
    bench.lose()
    bench.connect()
    second = bench.again(letter)
    assert second.state == "waiting"
    return bench, first, second


def _second_deliveries() -> None:
    bench, first, second = _second_delivery()
    bench.fail(first)
    assert (first.state, second.state) == ("lost", "parked")
    bench, first, second = _second_delivery()
    bench.succeed(first)
    assert second.state == "settled"
    bench, first, second = _second_delivery(ONCE)
    bench.fail(first)
    assert second.state == "settling"
    bench, first, second = _second_delivery()
    bench.lose()
    assert second.state == "lost"
    bench, first, second = _second_delivery(able=KEEPS)
    bench.feed(Released(first))
    assert second.state == "held"


def _poison() -> None:
    bench, letter = Bench(able=CONFIRMED_FORWARD), Letter(0)
    delivery = bench.run(letter)
    bench.feed(Poisoned(delivery, CAUSE))
    bench.feed(Confirmed(delivery, AdapterError("full")))
    bench.now += 1
    assert isinstance(bench.feed(Tick())[0], Forward)
    bench.lose()
    bench.connect()
    second = bench.again(letter)
    assert second.state == "settling"
    bench.feed(Confirmed(second))


def _gives_up() -> None:
    bench = Bench(able=CONFIRMED_FORWARD, dead_letters=GivesUp())
    delivery = bench.run(Letter(0))
    bench.feed(Poisoned(delivery, CAUSE))
    bench.feed(Confirmed(delivery, AdapterError("full")))
    bench.now += 1
    assert isinstance(bench.feed(Tick())[0], Stop)
    assert (delivery.state, bench.want()) == ("held", None)
    bench.lose()
    assert delivery.state == "lost"


def _accepted_before() -> None:
    bench, letter = Bench(), Letter(0)
    bench.feed(Succeeded(bench.run(letter)))
    bench.lose()
    bench.connect()
    assert bench.again(letter).state == "settled"


def _expires() -> None:
    bench = Bench()
    delivery = bench.run(Letter(0, expires_at=bench.now + 30 + WALL_OFFSET))
    bench.fail(delivery)
    bench.now += 61
    assert bench.want() is None
    assert delivery.state == "settling"


def _ends(able: Capabilities, state: State) -> None:
    bench = Bench(able=able)
    bench.fail(bench.run(Letter(0)))
    running = bench.run(Letter(1))
    ready = bench.arrive(Letter(2))[0]
    bench.feed(Drained())
    bench.feed(Released(running))
    assert {running.state, ready.state} == {state}


def _ends_with_release() -> None:
    _ends(replace(NATIVE, flow=True), "settled")


def _ends_without() -> None:
    _ends(KEEPS, "held")


def _loses() -> None:
    bench = Bench()
    bench.arrive(Letter(0))
    bench.lose()


WALKS = [
    _fails_and_is_remembered, _second_deliveries, _poison, _gives_up, _accepted_before, _expires, _loses,
    _ends_with_release, _ends_without,
]  # fmt: skip


def test_each_row_happens(transitions: Transitions) -> None:
    """A few walks through the engine make every transition of the table."""
    transitions.seen.clear()
    for walk in WALKS:
        walk()
    assert {(row.before, row.after) for row in TRANSITIONS} - transitions.seen == set()


def test_the_table_knows_each_state_and_no_other() -> None:
    """Every state is reached, but for the first one, and all but the last ones are left."""
    assert {row.after for row in TRANSITIONS} == {*get_args(State)} - {"ready"}
    assert {row.before for row in TRANSITIONS} == {*get_args(State)} - {"settled", "lost"}
    pairs = [(row.before, row.after) for row in TRANSITIONS]
    assert len(pairs) == len(set(pairs))


def test_a_transition_that_is_not_in_the_table_fails_a_test(transitions: Transitions) -> None:
    """What is settled stays settled: said where it happens, and at the end of the test, on another thread too."""
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
    """Nothing but `enter` assigns a delivery's state, after the constructors."""
    writers = {
        f"{path.parent.name}/{path.name} {function.name}"
        for root in ROOTS
        for path in root.rglob("*.py")
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and node.attr == "state" and isinstance(node.ctx, ast.Store)
    }
    makers = ("core/delivery.py", "redelivery_stomp/delivery.py", "redelivery_amqp/delivery.py")
    others = {"stream/journal.py __init__"}  # the state of Spark's log
    assert writers == {f"{path} __init__" for path in makers} | others | {"core/transitions.py enter"}
