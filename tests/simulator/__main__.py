"""Explore schedules of the engine under an adversarial broker.

`python -m tests.simulator --minutes 30` goes on as long as one likes; `--schedules N` ends after so many; `--depth N`
goes through all schedules of one case instead; `--replay FILE` tells a saved one. Exit status 1: something was found.
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

from tests.simulator.drivers import wander_drivers
from tests.simulator.explore import (
    case_of,
    every_schedule,
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
    add("--save", type=Path, metavar="FOLDER", help="write what was found to this folder")
    add("--replay", type=Path, metavar="FILE", help="tell the story of a saved schedule")
    return parser.parse_args(given)


class Findings:
    """One failure of each kind, cut down and told."""

    def __init__(self, folder: Path | None) -> None:
        self.kinds: Counter[str] = Counter()
        self._folder = folder

    def add(self, case: Case, schedule: list[Action], broken: str) -> None:
        """Take one in; tell it if it is the first of its kind."""
        kind = kind_of(broken)
        self.kinds[kind] += 1
        if self.kinds[kind] > 1:
            return
        small = shrunk(case, schedule)
        print(
            f"FOUND {kind}: {len(schedule)} actions, cut down to {len(small)}\n{story(case, small)}",
            flush=True,
        )
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / f"{kind.replace(' ', '-')}.json"
            path.write_text(json.dumps(saved(case, small)), encoding="utf-8")


def connections(options: argparse.Namespace) -> int:
    """Go through random schedules of whole connections, until one breaks."""
    logging.disable(logging.CRITICAL)
    started, schedules, found = time.monotonic(), 0, None
    while found is None and time.monotonic() - started < options.minutes * 60:
        if options.schedules is not None and schedules >= options.schedules:
            break
        seed = options.seed + schedules
        schedules += 1
        found = wander_drivers(seed)
        if found is not None:
            actions: list[Action] = []
            wander_drivers(seed, tell=actions.append)
            print(f"FOUND with seed {seed}: {found}\n{actions}")
    took = time.monotonic() - started
    print(
        f"{schedules:,} schedules of whole connections, {took:.1f} s, {schedules / took:,.0f}/s, seed {options.seed}"
    )
    return 1 if found else 0


def main(given: Sequence[str] | None = None) -> int:
    """Explore, and say what was found."""
    options = arguments(given)
    if options.drivers:
        return connections(options)
    if options.replay is not None:
        print(story(*case_of(json.loads(options.replay.read_text(encoding="utf-8")))))
        return 1
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
    return 1 if found.kinds else 0


if __name__ == "__main__":
    sys.exit(main())
