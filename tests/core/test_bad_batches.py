"""Bad messages in one go with good ones behind them, and outages, by default options in virtual time."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import pytest
from tests.core.breaker_world import BreakerWorld
from tests.matrix import some

from redelivery.core.commands import Accept

if TYPE_CHECKING:
    from tests.core.breaker_world import Mail

    from redelivery.core.commands import Command

FLOW = {"flow": True, "release": True}
# Good messages come so many seconds apart.
APART = 20.0


class World(BreakerWorld):
    """Messages b… always fail, others while an outage lasts; notes when each good one was accepted."""

    def __init__(self, scenario: dict[str, Any], weight: str, outage: float = 0.0) -> None:
        super().__init__({"handler": [], "consumer": {"workers": 4}, **scenario})
        self.weight, self.outage = weight, outage
        # Messages with this letter succeed in the outage, too.
        self.always = "-"
        # These fail by a named exception.
        self.named: set[str] = set()
        self.accepted_at: dict[str, float] = {}
        self.uncharged = 0

    def rule(self, name: str) -> dict[str, Any]:
        fails = name.startswith("b") or (self.now < self.outage and not name.startswith(self.always))
        weight = "outage" if name in self.named else self.weight
        return {"result": weight if fails else "success", "seconds": 0.01}

    def say(self, what: str, *details: Any) -> None:
        """Keep no log."""

    def finish(self, mail: Mail) -> None:
        before = self.charges[mail.name]
        super().finish(mail)
        self.uncharged += self.charges[mail.name] == before and mail.name.startswith("b")

    def carry_out(self, command: Command) -> None:
        super().carry_out(command)
        if isinstance(command, Accept):
            self.accepted_at.update((str(each.message_id), self.now) for each in command.deliveries)


def good(count: int) -> list[dict[str, Any]]:
    """Return the arrivals of good messages; the first comes with the bad ones."""
    return [{"at": APART * n, "names": f"g{n}"} for n in range(count)]


def lateness(world: World, count: int) -> list[float]:
    """Return after which time each of these good messages was accepted."""
    return [world.accepted_at.get(f"g{n}", inf) - APART * n for n in range(count)]


def late(bad: int, *, on: bool, weight: str = "maybe", flow: bool = False) -> list[float]:
    """Return how late each of 40 good messages is, which come with bad ones and after them."""
    scenario: dict[str, Any] = {
        "messages": [{"at": 0.0, "names": f"b1..b{bad}"}, *good(40)],
        "until": 3000.0,
        "capabilities": FLOW if flow else {},
        "breaker": {} if on else "off",
    }
    world = World(scenario, weight)
    world.run()
    return lateness(world, 40)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "case",
    some(
        [
            (bad, weight, flow, 60.0 if bad <= 1000 else 660.0)
            for bad in (250, 1000, 2000, 5000, 20_000)
            for weight in ("maybe", "outage")
            for flow in (False, True)
            if (weight == "maybe" or bad <= 1000) and not (flow and bad > 5000)
        ],
        [(1000, "maybe", False, 60.0)],
        why="thousands of bad messages: 1 to 60 s each",
    ),
)
def test_good_messages_behind_bad_ones_are_not_late(case: tuple[int, str, bool, float]) -> None:
    """Each is a minute later at most than without a breaker if the bad ones may be parked, else eleven minutes."""
    bad, weight, flow, longest = case
    with_it, without = (
        late(bad, on=True, weight=weight, flow=flow),
        late(bad, on=False, weight=weight, flow=flow),
    )
    assert max(a - b for a, b in zip(with_it, without, strict=True)) <= longest


@pytest.mark.parametrize("first", [1, 150])
@pytest.mark.parametrize("many", [1, 3, 20, 60])
def test_a_few_named_failures_among_unnamed_ones_do_not_stop_good_messages(first: int, many: int) -> None:
    """Named failures among more unnamed bad messages than may be parked: good ones wait eleven minutes."""
    scenario = {
        "messages": [{"at": 0.0, "names": "b1..b400"}, *good(80)],
        "consumer": {"workers": 4, "maxParked": 160},
    }
    world = World({**scenario, "until": 3000.0}, "maybe")
    world.named = {f"b{n}" for n in range(first, first + many)}
    world.run()
    assert max(lateness(world, 80)) < 660
    assert len(world.dead) >= 400 - many


@pytest.mark.parametrize("result", ["discard", "poison", "own", "defer"])
def test_decisions_of_handlers_do_not_stop_good_messages(result: str) -> None:
    """Behind a named outage of a moment and slow handlers that only decide, a good message is hardly later."""
    ends = list[float]()
    for on in (True, False):
        scenario: dict[str, Any] = {
            "messages": [{"at": 0.0, "names": "m1..m3 b1..b200 g0"}],
            "consumer": {"workers": 16},
            "until": 1000.0,
            "handler": [
                {"names": "m1..m3", "result": "outage", "seconds": 5},
                {"names": "b1..b200", "result": result, "delay": 600, "seconds": 5},
                {"result": "success", "seconds": 5},
            ],
            "breaker": {} if on else "off",
        }
        world = Decided(scenario)
        world.run()
        ends.append(world.accepted_at["g0"])
    assert ends[0] - ends[1] < 40


class Decided(BreakerWorld):
    """Plays the scenario's own handler; notes when each message was accepted."""

    def __init__(self, scenario: dict[str, Any]) -> None:
        super().__init__(scenario)
        self.accepted_at: dict[str, float] = {}

    def carry_out(self, command: Command) -> None:
        super().carry_out(command)
        if isinstance(command, Accept):
            self.accepted_at.update((str(each.message_id), self.now) for each in command.deliveries)


def test_good_messages_pass_as_many_bad_ones_as_may_be_parked() -> None:
    """Named bad messages, which wait for minutes between their tries, may fill all room: good ones pass them."""
    scenario = {
        "messages": [{"at": 0.0, "names": "b1..b8"}, *good(60)],
        "consumer": {"workers": 2, "maxParked": 8},
    }
    world = World({**scenario, "until": 2000.0}, "outage")
    world.run()
    assert max(lateness(world, 60)) < 60


def test_three_bad_messages_beside_good_ones_end() -> None:
    """Three messages with a named exception, beside good ones, are dead after their policy and 20 tries at most."""
    others = [{"at": 1.0 * n, "names": f"g{n}"} for n in range(300)]
    scenario = {
        "messages": [{"at": 0.0, "names": "b1..b3"}, *others],
        "until": 400.0,
        "policy": {"maximumRedeliveries": 1, "redeliveryDelay": 0.1},
    }
    world = World(scenario, "outage")
    world.run()
    assert sorted(world.dead) == ["b1", "b2", "b3"]
    assert world.uncharged <= 3 * 20
    assert max(world.accepted_at[f"g{n}"] - n for n in range(300)) < 15


def test_bad_messages_without_an_id_end_where_the_broker_limits_how_long_they_are_held() -> None:
    """They are released after less than half an hour; their uncharged tries count nevertheless."""
    others = [{"at": 45.0 * n, "names": f"g{n}"} for n in range(400)]
    scenario = {
        "messages": [{"at": 0.0, "names": "b1..b3"}, *others],
        "keyed": False,
        "capabilities": {"release": True, "grows": True, "release_counts": True, "max_hold": 1800.0},
        "until": 18_000.0,
    }
    world = World(scenario, "outage")
    world.run()
    assert (sorted(world.dead), len(world.accepted_at)) == (["b1", "b2", "b3"], 400)
    assert len(world.back) > 3
    # The first failure, 20 uncharged ones, and 7 by the policy.
    assert max(world.calls.values()) <= 28


@pytest.mark.parametrize(
    "case",
    some(
        [(queued, at) for queued in (1, 10, 160) for at in ((1.0,), (300.0,), (5.0, 10.0, 900.0))],
        [(1, (1.0,)), (10, (300.0,))],
        why="an hour of each: up to 1 s",
    ),
)
def test_a_success_in_a_named_outage_costs_no_message(case: tuple[int, tuple[float, ...]]) -> None:
    """A named outage of an hour, in which others succeed up to three times, leaves no dead letter."""
    queued, successes = case
    others = [{"at": at, "names": f"x{n}"} for n, at in enumerate(successes)]
    scenario = {"messages": [{"at": 0.0, "names": f"m1..m{queued}"}, *others], "until": 4500.0}
    world = World(scenario, "outage", outage=3600.0)
    world.always = "x"
    world.run()
    assert (len(world.accepted_at), world.dead) == (queued + len(successes), [])
    assert max(world.charges.values(), default=0) <= 1


@pytest.mark.parametrize(
    "case",
    some(
        [
            *((5000, "maybe", minutes, flow) for minutes in (1, 8) for flow in (False, True)),
            *((queued, "outage", 60, flow) for queued in (1, 10, 160, 5000) for flow in (False, True)),
        ],
        [
            (5000, "maybe", 8, False),
            (1, "outage", 60, False),
            (10, "outage", 60, True),
            (160, "outage", 60, False),
        ],
        why="5,000 messages: 1 to 8 s each",
    ),
)
def test_an_outage_dead_letters_nothing(case: tuple[int, str, int, bool]) -> None:
    """An outage of 8 minutes by exceptions without a name, or of an hour by named ones, leaves no dead letter."""
    queued, weight, minutes, flow = case
    scenario = {
        "messages": [{"at": 0.0, "names": f"m1..m{queued}"}],
        "until": 60.0 * minutes + 300.0,
        "capabilities": FLOW if flow else {},
    }
    world = World(scenario, weight, outage=60.0 * minutes)
    world.run()
    assert (len(world.accepted_at), world.dead) == (queued, [])
    assert world.charges.total() == (199 if weight == "maybe" else 0)
