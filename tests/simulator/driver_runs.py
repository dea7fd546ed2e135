"""Schedules of whole connections: random ones by seed; a failing one is shortened, printed, saved and replayed."""

from __future__ import annotations

import random
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.simulator.drivers import DriverCase, DriverWorld, driver_case, namesakes
from tests.simulator.explore import cut_down
from tests.simulator.truth import Violation

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator, Sequence

    from tests.simulator.drivers import Action

__all__ = [
    "DriverRun",
    "driver_case_of",
    "driver_story",
    "run_drivers",
    "saved_drivers",
    "shrunk_drivers",
    "wander_drivers",
]

WEIGHTS = {
    "receive": 4,
    "session": 6,
    "end": 4,
    "handle": 4,
    "send": 4,
    "wait": 2,
    "cut": 1,
    "lose": 1,
    "refuse": 1,
    "reopen": 1,
}
LENGTH = 40


@dataclass(frozen=True)
class DriverRun:
    """One schedule: what broke, what was done, and what was seen on the way."""

    case: DriverCase
    broken: str | None
    schedule: list[Action]
    seen: Counter[str]


def run_drivers(case: DriverCase, schedule: Sequence[Action] | random.Random) -> DriverRun:
    """Go through a schedule, or through a random one; then end without further failures."""
    done: list[Action] = []
    given = None if isinstance(schedule, random.Random) else iter(schedule)
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        if case.weak:
            namesakes(patch)
        folder = stack.enter_context(tempfile.TemporaryDirectory()) if case.ledger else ""
        world = DriverWorld(case, Path(folder).as_posix())
        broken = None
        try:
            for action in given if given is not None else _wandering(world, schedule):
                done.append(action)
                world.do(action)
            world.finish()
        except Violation as violated:
            broken = str(violated)
        finally:
            world.close()
    return DriverRun(case, broken, done, world.seen)


def _wandering(world: DriverWorld, rnd: Any) -> Iterator[Action]:
    """Draw the next action, after each one was done."""
    for _ in range(LENGTH):
        kinds: dict[str, list[Action]] = {}
        for action in world.choices():
            kinds.setdefault(action[0], []).append(action)
        kind = rnd.choices(list(kinds), [WEIGHTS[name] for name in kinds])[0]
        yield rnd.choice(kinds[kind])


def wander_drivers(seed: int) -> DriverRun:
    """Go through one random schedule of one random configuration."""
    return run_drivers(driver_case(seed), random.Random(seed))


def shrunk_drivers(run: DriverRun) -> DriverRun:
    """Shorten a failing schedule; an action that is no longer possible does nothing."""
    schedule = cut_down(run.schedule, lambda shorter: run_drivers(run.case, shorter).broken)
    return run_drivers(run.case, schedule)


def driver_story(run: DriverRun) -> str:
    """Return a schedule as text."""
    lines = [" ".join(str(part) for part in action) for action in run.schedule]
    return "\n".join([str(run.case), *lines, f"    ==> {run.broken}"])


def saved_drivers(run: DriverRun) -> dict[str, Any]:
    """Return a schedule in a form that can be saved and replayed."""
    return {"drivers": asdict(run.case), "schedule": [list(action) for action in run.schedule]}


def driver_case_of(data: dict[str, Any]) -> tuple[DriverCase, list[Action]]:
    """Return the case and the schedule that `saved_drivers` has written."""
    return DriverCase(**data["drivers"]), [tuple(action) for action in data["schedule"]]
