"""Explore schedules of the engine under an adversarial broker.

`python -m tests.simulator --minutes 30` runs for that time; `--schedules N` ends after N schedules; `--depth N` goes
through all schedules of one case instead; `--replay FILE` prints a saved one; `--breaker` goes through runs of a
breaker in virtual time. Exit status 1: something was found.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulator.breaker_runs import broken as broken_run
from tests.simulator.breaker_runs import random_run
from tests.simulator.driver_runs import (
    DriverRun,
    driver_case_of,
    driver_story,
    run_drivers,
    saved_drivers,
    shrunk_drivers,
    wander_drivers,
)
from tests.simulator.explore import (
    case_of,
    every_schedule,
    features,
    kind_of,
    random_case,
    saved,
    shrunk,
    story,
    wander,
)
from tests.simulator.profiles import MESSAGES, PROFILES
from tests.simulator.world import Case

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from tests.simulator.world import Action

SHOW = 2.0


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        "python -m tests.simulator", description=(__doc__ or "").partition("\n")[0]
    )
    add = parser.add_argument
    add("--minutes", type=float, default=1.0, help="how long to go on (default 1)")
    add("--schedules", type=int, help="end after so many")
    add("--seed", type=int, default=1, help="of the first schedule (default 1)")
    add("--profile", choices=list(PROFILES), help="one pair of broker and protocol (default: any)")
    add("--messages", choices=list(MESSAGES), help="one set of messages (default: any)")
    add("--kinds", type=int, default=1, help="end after so many kinds of failure (default 1)")
    add("--depth", type=int, help="go through all schedules of so many actions, of one case")
    add(
        "--drivers", action="store_true", help="whole connections over the embedded broker, not engines alone"
    )
    add(
        "--breaker",
        action="store_true",
        help="one engine with a breaker, in virtual time, over minutes and hours",
    )
    add("--save", type=Path, metavar="FOLDER", help="write what was found to this folder")
    add("--replay", type=Path, metavar="FILE", help="tell the story of a saved schedule")
    return parser.parse_args(given)


class Findings:
    """One failure of each kind, shortened and printed."""

    def __init__(self, folder: Path | None) -> None:
        self.kinds: Counter[str] = Counter()
        self._folder = folder

    def add(self, case: Case, schedule: list[Action], broken: str) -> None:
        """Add one; print it if it is the first of its kind."""
        if self._first(kind_of(broken)):
            small = shrunk(case, schedule)
            self._tell(kind_of(broken), len(schedule), len(small), story(case, small), saved(case, small))

    def add_run(self, run: DriverRun) -> None:
        """Add one of whole connections."""
        kind = kind_of(run.broken or "")
        if self._first(kind):
            small = shrunk_drivers(run)
            self._tell(
                kind, len(run.schedule), len(small.schedule), driver_story(small), saved_drivers(small)
            )

    def _first(self, kind: str) -> bool:
        self.kinds[kind] += 1
        return self.kinds[kind] == 1

    def _tell(self, kind: str, actions: int, left: int, told: str, data: dict[str, Any]) -> None:
        print(f"FOUND {kind}: {actions} actions, cut down to {left}\n{told}", flush=True)
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / f"{kind.replace(' ', '-')}.json"
            path.write_text(json.dumps(data), encoding="utf-8")


def connections(options: argparse.Namespace) -> int:
    """Go through random schedules of whole connections."""
    logging.disable(logging.CRITICAL)
    found, seen = Findings(options.save), Counter[str]()
    started, schedules = time.monotonic(), 0
    while time.monotonic() - started < options.minutes * 60 and len(found.kinds) < options.kinds:
        if options.schedules is not None and schedules >= options.schedules:
            break
        run = wander_drivers(options.seed + schedules)
        schedules += 1
        seen.update(run.seen)
        case = run.case
        has = {"weak": case.weak, "listener": case.listener, "ledger": case.ledger, "delayed": case.scheduled}
        seen.update(f"with {name}" for name, there in has.items() if there)
        seen.update([f"session {case.session}"] if case.session else ())
        if run.broken is not None:
            found.add_run(run)
    took = time.monotonic() - started
    print(
        f"{schedules:,} schedules of whole connections, {took:.1f} s, {schedules / took:,.0f}/s, "
        f"seed {options.seed}; failures: {dict(found.kinds) or 'none'}"
    )
    histogram("seen", seen)
    return 1 if found.kinds else 0


def breakers(options: argparse.Namespace) -> int:
    """Go through random runs of a breaker: bad messages, good ones, outages."""
    started, runs, kinds = time.monotonic(), 0, Counter[str]()
    while time.monotonic() - started < options.minutes * 60 and len(kinds) < options.kinds:
        if options.schedules is not None and runs >= options.schedules:
            break
        run = random_run(random.Random(options.seed + runs))
        runs += 1
        if (found := broken_run(run)) is not None:
            kinds[kind_of(found)] += 1
            print(f"FOUND {found}, seed {options.seed + runs - 1}\n{run}", flush=True)
    took = time.monotonic() - started
    print(
        f"{runs:,} runs of a breaker, {took:.1f} s, {runs / took:,.0f}/s, seed {options.seed}; "
        f"failures: {dict(kinds) or 'none'}"
    )
    return 1 if kinds else 0


def histogram(what: str, seen: Counter[str]) -> None:
    """Print how often each feature was seen: a missing one was not tested."""
    print(f"{what}: " + ", ".join(f"{name} {many:,}" for name, many in sorted(seen.items())))


def told(path: Path) -> str:
    """Return the story of a saved schedule."""
    data = json.loads(path.read_text(encoding="utf-8"))
    if "drivers" not in data:
        return story(*case_of(data))
    logging.disable(logging.CRITICAL)
    return driver_story(run_drivers(*driver_case_of(data)))


def main(given: Sequence[str] | None = None) -> int:
    """Explore, and print the findings."""
    options = arguments(given)
    if options.replay is not None:
        print(told(options.replay))
        return 1
    if options.drivers:
        return connections(options)
    if options.breaker:
        return breakers(options)
    return engines(options)


def engines(options: argparse.Namespace) -> int:
    """Go through schedules of engines, at random or all of one case."""
    seen = Counter[str]()
    found = Findings(options.save)
    started = shown = time.monotonic()
    until = started + options.minutes * 60
    schedules = steps = again = 0
    case = Case(options.profile or "rabbitmq-amqp", options.messages or "AA'")
    every = every_schedule(case, options.depth) if options.depth is not None else None
    while (now := time.monotonic()) < until and len(found.kinds) < options.kinds:
        if options.schedules is not None and schedules >= options.schedules:
            break
        if every is not None:
            got = next(every, None)
            if got is None:
                break
            done, broken = got
        else:
            rnd = random.Random(options.seed + schedules)
            case = random_case(rnd, options.profile, options.messages)
            broken, done, world = wander(case, rnd)
            steps += world.step
            again += world.truth.handled_again
            seen.update(features(case, done))
        schedules += 1
        if broken is not None:
            found.add(case, done, broken)
        if now - shown > SHOW and sys.stderr.isatty():
            shown = now
            print(f"\r{schedules:,} schedules, {now - started:.0f} s", end="", file=sys.stderr, flush=True)
    took = time.monotonic() - started
    print(
        f"{schedules:,} schedules, {steps:,} steps, {took:.1f} s, {schedules / took:,.0f}/s, seed {options.seed}; "
        f"handled again {again:,}; failures: {dict(found.kinds) or 'none'}"
    )
    if seen:
        histogram("schedules with", seen)
    return 1 if found.kinds else 0


if __name__ == "__main__":
    sys.exit(main())
