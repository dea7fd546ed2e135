"""Mutation study: `python -m tests.mutants` plants known faults, one at a time, and reports which test finds each.

The study runs in a temporary copy of the tree. Progress goes to stderr, the table to stdout. `--help` has the options
and the exit codes.
"""

from __future__ import annotations

import queue
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mutants import arguments, recorded
from tests.mutants.faults import AREAS, faults
from tests.mutants.trial import SURVIVED, Result, Run, Tree

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from tests.mutants.faults import Fault


def as_text(results: Sequence[Result]) -> str:
    """Return the table of faults, and the totals by area."""
    lines = [
        f"{each.id}  {each.area:<9}  {each.verdict:<10}  {each.seconds:>6.1f} s  {each.tier:<5}  {each.test}"
        for each in results
    ]
    lines += ["", "| area | faults | killed | survived |", "|---|---|---|---|"]
    for area in (*AREAS, "all"):
        of = [each for each in results if area in (each.area, "all")]
        alive = [each.id for each in of if each.verdict == SURVIVED]
        if of:
            lines.append(f"| {area} | {len(of)} | {len(of) - len(alive)} | {' '.join(alive)} |")
    return "\n".join(lines)


def summary(results: Sequence[Result], before: Mapping[str, Result], tier: str, undrawn: int) -> str:
    """Return how many faults were killed, each survivor with its recorded killer, and the faults without a result.

    `undrawn`: the number of faults that fitted the options, and were not drawn.
    """
    alive = [each.id for each in results if each.verdict == SURVIVED]
    killed = len(results) - len(alive)
    percent = f" ({100 * killed / len(results):.0f} %)" if results else ""
    lines = [f"{killed} of {len(results)} killed{percent} by tests of the tier {tier}"]
    what = {fault.id: fault.what for fault in faults()}
    lines += [f"survived: {name}: {what[name]} {_killer(before.get(name))}" for name in alive]
    if undrawn:
        lines.append(f"{undrawn} more faults fitted the options, and were not drawn")
    if left := recorded.untried({**before, **{each.id: each for each in results}}):
        lines.append(f"not tried yet: {' '.join(left)}")
    return "\n".join(lines)


def _killer(result: Result | None) -> str:
    if result is None or result.verdict == SURVIVED:
        return "No killer is recorded."
    return f"Recorded killer, of {'the tier ' + result.tier if result.tier else 'an unknown tier'}: {result.test}"


def tried(chosen: Sequence[Fault], trees: Sequence[Tree], known: Mapping[str, Result]) -> Iterator[Result]:
    """Try all faults, one in each tree at a time; yield the results in the order of the faults."""
    free: queue.SimpleQueue[Tree] = queue.SimpleQueue()
    for tree in trees:
        free.put(tree)

    def one(fault: Fault) -> Result:
        tree = free.get()
        try:
            return tree.try_out(fault, known[fault.id].test if fault.id in known else "")
        finally:
            free.put(tree)

    with ThreadPoolExecutor(len(trees)) as threads:
        yield from threads.map(one, chosen)


def study(
    chosen: Sequence[Fault], options: argparse.Namespace, before: Mapping[str, Result]
) -> tuple[list[Result], Run]:
    """Try the faults. Return their results, and the end of a run of their killers without a fault."""
    results: list[Result] = []
    records = dict(before)
    with tempfile.TemporaryDirectory(prefix="redelivery-mutants-") as folder:
        trees = [
            Tree(Path(folder, str(number)), options.limit, tier=options.tier)
            for number in range(min(options.jobs, len(chosen)))
        ]
        for result in tried(chosen, trees, {} if options.afresh else before):
            results.append(result)
            done = f"{len(results)}/{len(chosen)}"
            print(f"{done} {result.id} {result.verdict} {result.test}", file=sys.stderr, flush=True)
            recorded.put(records, result, options.tier)
            if options.save:
                recorded.write(records)
        # Also files that could not be collected.
        tests = sorted({each.test for each in results if each.test})
        return results, trees[0].run(tests, limits=5) if tests else Run("passed")


def main(given: Sequence[str] | None = None) -> int:
    """Run the study; return the exit code."""
    options, files = arguments.read(given)
    before = recorded.stored()
    chosen, undrawn = arguments.chosen(options, files, before)
    results, sound = study(chosen, options, before) if chosen else ([], Run("passed"))
    print(recorded.as_json(results) if options.output == "json" else as_text(results))
    text = summary(results, before, options.tier, undrawn)
    print(text, file=sys.stderr if options.output == "json" else sys.stdout)
    if sound.end != "passed":
        print(f"{sound.test}: {sound.end} without a fault, so it kills nothing", file=sys.stderr)
        return 2
    alive = [each for each in results if each.verdict == SURVIVED]
    return int(any(not recorded.killed_above(before.get(each.id), options.tier) for each in alive))


if __name__ == "__main__":
    sys.exit(main())
