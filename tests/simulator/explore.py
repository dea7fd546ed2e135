"""Schedules: all of them to a depth, or random ones by seed; a failing one is shortened and printed as a story."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from tests.simulator.profiles import MESSAGES, PROFILES, UNIQUE
from tests.simulator.truth import Violation
from tests.simulator.world import Case, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.simulator.world import Action

__all__ = [
    "breaks",
    "case_of",
    "cut_down",
    "every_schedule",
    "features",
    "kind_of",
    "random_case",
    "replay",
    "saved",
    "shrunk",
    "story",
    "wander",
]

WEIGHTS = {
    "deliver": 6, "begin": 6, "send": 4, "end": 2, "broker": 3, "answer": 3, "up": 4, "wait": 3, "cut": 1, "kill": 1,
    "ripe": 4, "other": 1, "refuse": 1, "close": 1, "crash": 1, "redrive": 2,
    "takeback": 2, "notice": 6, "learn": 6, "die": 1,
}  # fmt: skip
LENGTH = 60


def kind_of(broken: str) -> str:
    """Return the invariant that a violation breaks."""
    return broken.partition(":")[0]


def breaks(case: Case, kinds: str, schedules: int) -> None:
    """Search for a violation of one of these invariants; AssertionError if that many random schedules have none."""
    for seed in range(schedules):
        broken = wander(case, random.Random(seed))[0]
        if broken is not None and kind_of(broken) in kinds:
            return
    raise AssertionError(f"not found in {schedules} schedules")


def replay(case: Case, schedule: Sequence[Action], *, tell: bool = False) -> tuple[str | None, World]:
    """Do the possible actions of a schedule, then end without further failures. Return what broke, and the world."""
    world = World(case)
    world.tell = tell
    try:
        for action in schedule:
            if action in world.enabled():
                world.do(action)
        world.note("(from here", "everything ends well)")
        world.finish()
    except Violation as broken:
        return str(broken), world
    return None, world


def shrunk(case: Case, schedule: list[Action]) -> list[Action]:
    """Shorten a failing schedule until every action is needed."""
    return cut_down(schedule, lambda shorter: replay(case, shorter)[0])


def cut_down(schedule: list[Action], breaks: Callable[[list[Action]], str | None]) -> list[Action]:
    """Leave actions out while the rest breaks the same invariant."""
    kind = kind_of(breaks(schedule) or "")
    size = len(schedule)
    while size:
        at = 0
        while at < len(schedule):
            shorter = schedule[:at] + schedule[at + size :]
            broken = breaks(shorter)
            if broken is not None and kind_of(broken) == kind:
                schedule = shorter
            else:
                at += size
        size //= 2
    return schedule


def features(case: Case, schedule: Sequence[Action]) -> set[str]:
    """Return the features of a schedule, to be counted: of its case, and the kinds of its actions."""
    has = ("ledger", "torn", "unique_ids", "scheduled", "expires", "breaker", "auto")
    found = {name for name in has if getattr(case, name)}
    found |= {case.profile, case.ordering, f"{case.consumers} consumer(s)"}
    found |= {"elsewhere" if action == ("up", "elsewhere") else str(action[0]) for action in schedule}
    return found | {f"end {action[3]}" for action in schedule if action[0] == "end"}


def story(case: Case, schedule: Sequence[Action]) -> str:
    """Return a failing schedule as text."""
    broken, world = replay(case, schedule, tell=True)
    head = f"{case.profile}, {case.messages}, {case.ordering}, {case.consumers} consumer(s), ledger: {case.ledger}"
    head += ", the broker holds what waits" * case.scheduled
    head += ", with a breaker" * case.breaker
    head += ", credit auto" * case.auto
    return "\n".join([head, *world.log, f"    ==> {broken}"])


def saved(case: Case, schedule: Sequence[Action]) -> dict[str, Any]:
    """Return a schedule in a form that can be saved and replayed."""
    return {"case": asdict(case), "schedule": [list(action) for action in schedule]}


def case_of(data: dict[str, Any]) -> tuple[Case, list[Action]]:
    """Return the case and the schedule that `saved` has written."""
    case = Case(**{**data["case"], "outcomes": tuple(data["case"]["outcomes"])})
    return case, [tuple(action) for action in data["schedule"]]


def wander(case: Case, rnd: random.Random) -> tuple[str | None, list[Action], World]:
    """Go through one random schedule."""
    world, done = World(case), list[tuple[Any, ...]]()
    try:
        for _ in range(LENGTH):
            kinds: dict[str, list[Action]] = {}
            for action in world.enabled():
                kinds.setdefault(action[0], []).append(action)
            if not kinds:
                break
            names = list(kinds)
            kind = rnd.choices(names, [WEIGHTS[name] for name in names])[0]
            action = rnd.choice(kinds[kind])
            done.append(action)
            world.do(action)
        world.finish()
    except Violation as broken:
        return str(broken), done, world
    return None, done, world


def random_case(rnd: random.Random, profile: str | None = None, messages: str | None = None) -> Case:
    """Draw a configuration."""
    ordering: Any = rnd.choice(["non_blocking", "non_blocking", "blocking", "per_group"])
    consumers = rnd.choice([1, 1, 2])
    ledger = rnd.random() < 0.2
    budget = Counter(
        cut=rnd.choice([1, 2, 3, 6]),
        other=rnd.choice([0, 0, 2]),
        refuse=rnd.choice([0, 1]),
        kill=rnd.choice([0, 0, 1]),
        close=rnd.choice([0, 0, 1, 2]),
        crash=rnd.choice([0, 1, 2]) if ledger else 0,
        # A ledger keeps some verdicts for a while.
        redrive=0 if ledger else rnd.choice([0, 0, 1]),
        # A ledger distinguishes the ids of two brokers by their times only.
        move=0 if ledger else rnd.choice([0, 0, 0, 1]),
    )
    messages = messages or rnd.choice(list(MESSAGES))
    profile = profile or rnd.choice(list(PROFILES))
    delays = ordering == "non_blocking" and PROFILES[profile].delays != "none"
    scheduled = delays and rnd.random() < 0.4
    if scheduled:
        budget.update(move=0, hasty=rnd.choice([0, 0, 1]))
    case = Case(
        profile,
        messages,
        ordering=ordering,
        consumers=consumers,
        workers=1 if ordering == "blocking" else rnd.choice([1, 2]),
        outcomes=rnd.choice(
            [("ok",), ("ok", "fail"), ("ok", "fail", "poison"), ("ok", "fail", "defer", "release")]
        ),
        expires=rnd.choice([None, None, None, 1.5]),
        ledger=ledger,
        torn=rnd.random() < 0.25,
        most_aside=rnd.choice([1, 100, 100]),
        scheduled=scheduled,
        unique_ids=messages in UNIQUE and rnd.random() < 0.3,
        budget=dict(budget),
    )
    # Last: the draws before it stay what they were.
    if rnd.random() >= 0.75:
        case = replace(case, breaker=True, outcomes=rnd.choice([case.outcomes, ("ok", "fail", "trip")]))
    case = replace(case, auto=rnd.random() < 0.5)
    return _of_quorum(case, rnd) if PROFILES[case.profile].quorum else case


def _of_quorum(case: Case, rnd: random.Random) -> Case:
    """Draw the features that only a quorum queue has."""
    budget = {**case.budget, "takeback": rnd.choice([0, 1, 2, 3]), "cross": rnd.choice([0, 0, 1])}
    if case.ordering == "non_blocking" and rnd.random() < 0.7:
        case = replace(case, scheduled=True)
        budget.update(move=0, hasty=rnd.choice([0, 0, 1]), die=0 if case.ledger else rnd.choice([0, 0, 1]))
    if case.scheduled:
        case = replace(case, skew=rnd.choice([0.0, 0.0, 2.0, -2.0]))
    return replace(case, budget=budget)


def every_schedule(case: Case, depth: int) -> Iterator[tuple[list[Action], str | None]]:
    """Go through all schedules up to a number of actions; yield each with what broke.

    A world cannot be copied. Therefore each schedule is done from its beginning: the cost is in the depth.
    """
    stack: list[list[Action]] = [[]]
    while stack:
        prefix = stack.pop()
        world = World(case)
        try:
            for action in prefix:
                world.do(action)
            can = world.enabled() if len(prefix) < depth else []
            world.finish()
        except Violation as broken:
            yield prefix, str(broken)
            continue
        stack += [[*prefix, action] for action in can]
        yield prefix, None


def without(case: Case, **budget: int) -> Case:
    """Return the case with another budget."""
    return replace(case, budget={**case.budget, **budget})
