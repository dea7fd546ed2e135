"""Mutation study: `python -m tests.mutants` plants known faults, one at a time, and reports which test finds each.

The study runs in a temporary copy of the tree. Progress goes to stderr, the table to stdout.
Exit codes: 0 all faults were killed, 1 some survived, 2 wrong arguments or tests that fail without a fault.
"""

from __future__ import annotations

import argparse
import json
import queue
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mutants.faults import AREAS, faults
from tests.mutants.trial import SURVIVED, Result, Tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.mutants.faults import Fault

RESULTS = Path(__file__).parent / "results.json"


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        "python -m tests.mutants", description=(__doc__ or "").partition("\n")[0]
    )
    add = parser.add_argument
    add("--only", default="", metavar="ID,...", help="only these faults")
    add("--area", action="append", choices=AREAS, help="only the faults of this area; may be repeated")
    add(
        "--jobs",
        type=int,
        default=1,
        help="number of faults at the same time, each in a copy of its own (default 1)",
    )
    add("--limit", type=float, default=150, help="seconds that one run of tests may take (default 150)")
    add("--output", choices=["text", "json"], default="text", help="form of the result on stdout")
    add("--afresh", action="store_true", help=f"do not try the test in {RESULTS.name} first")
    add("--save", action="store_true", help=f"write the results to {RESULTS.name}, after each fault")
    options = parser.parse_args(given)
    options.only = {each for each in options.only.split(",") if each}
    if unknown := options.only - {fault.id for fault in faults()}:
        parser.error(f"--only: there is no fault {', '.join(sorted(unknown))}")
    return options


def stored() -> dict[str, Result]:
    """Return the results of earlier runs, by fault."""
    if not RESULTS.exists():
        return {}
    return {each["id"]: Result(**each) for each in json.loads(RESULTS.read_text(encoding="utf-8"))}


def as_json(results: Iterable[Result]) -> str:
    """Return the results as a JSON list, one a line."""
    return "[\n" + ",\n".join(json.dumps(each.as_dict()) for each in results) + "\n]"


def as_text(results: Sequence[Result]) -> str:
    """Return the table of faults, and the totals by area."""
    lines = [
        f"{each.id}  {each.area:<9}  {each.verdict:<10}  {each.seconds:>6.1f} s  {each.test}"
        for each in results
    ]
    lines += ["", "| area | faults | killed | survived |", "|---|---|---|---|"]
    for area in (*AREAS, "all"):
        of = [each for each in results if area in (each.area, "all")]
        alive = [each.id for each in of if each.verdict == SURVIVED]
        if of:
            lines.append(f"| {area} | {len(of)} | {len(of) - len(alive)} | {' '.join(alive)} |")
    return "\n".join(lines)


def tried(chosen: Sequence[Fault], trees: Sequence[Tree], known: dict[str, Result]) -> Iterator[Result]:
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


def main(given: Sequence[str] | None = None) -> int:
    """Run the study; return the exit code."""
    options = arguments(given)
    chosen = [
        fault
        for fault in faults()
        if (not options.only or fault.id in options.only) and (not options.area or fault.area in options.area)
    ]
    known = stored()
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="redelivery-mutants-") as folder:
        trees = [Tree(Path(folder, str(number)), options.limit) for number in range(options.jobs)]
        for result in tried(chosen, trees, {} if options.afresh else known):
            results.append(result)
            done = f"{len(results)}/{len(chosen)}"
            print(f"{done} {result.id} {result.verdict} {result.test}", file=sys.stderr, flush=True)
            if options.save:
                known[result.id] = result
                RESULTS.write_text(
                    as_json(known[fault.id] for fault in faults() if fault.id in known) + "\n",
                    encoding="utf-8",
                )
        tests = sorted({each.test for each in results if "::" in each.test})
        end, test = trees[0].run(tests, limits=5) if tests else ("passed", "")
    print(as_json(results) if options.output == "json" else as_text(results))
    if end != "passed":
        print(f"{test}: {end} without a fault, so it kills nothing", file=sys.stderr)
        return 2
    return int(any(each.verdict == SURVIVED for each in results))


if __name__ == "__main__":
    sys.exit(main())
