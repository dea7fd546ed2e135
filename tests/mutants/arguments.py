"""Command line of the mutation study, and the faults that it chooses."""

from __future__ import annotations

import argparse
import math
import random
from fractions import Fraction
from typing import TYPE_CHECKING

from tests.changed_files import changed_files
from tests.mutants.faults import AREAS, faults
from tests.tiers import TIERS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from tests.mutants.faults import Fault

__all__ = ["chosen", "drawn", "of_files", "read"]

DESCRIPTION = """\
Plant known faults, one at a time in a temporary copy of the project, and report which test finds each.
"""
EPILOG = """\
Without an option of the first group all faults are planted; with several, those that fit all of them.

  python -m tests.mutants --changed origin/main                before a merge
  python -m tests.mutants --fraction 1/10 --seed 20261231      a tenth in one night
  python -m tests.mutants --only C73 --save                    one fault, recorded

Exit codes: 0 all faults were killed, or are killed only by tests of a higher tier, as results.json says;
1 others survived; 2 wrong arguments, or killers that fail, or are not there, without a fault.
"""


def read(given: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """Return the options, and the files that differ from the revision of `--changed`.

    Raises:
        SystemExit: The arguments are wrong.
    """
    parser = _parser()
    options = parser.parse_args(given)
    if unknown := options.only - {fault.id for fault in faults()}:
        parser.error(f"--only: there is no fault {', '.join(sorted(unknown))}")
    try:
        files = sorted(changed_files(options.changed)) if options.changed else []
    except ValueError as error:
        parser.error(f"--changed: {error}")
    return options, files


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m tests.mutants",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_faults(parser.add_argument_group("faults that are planted").add_argument)
    _add_tests(parser.add_argument_group("tests that run").add_argument)
    add = parser.add_argument_group("results").add_argument
    add("--output", choices=["text", "json"], default="text", help="form of the results (default text)")
    add("--save", action="store_true", help="write the results to results.json, after each fault")
    return parser


def _add_faults(add: Callable[..., object]) -> None:
    add("--only", type=_ids, default=set(), metavar="ID,...", help="these faults")
    areas = ", ".join(AREAS)
    add("--area", action="append", choices=AREAS, metavar="AREA", help=f"one of {areas}; may be repeated")
    differ = "faults of files that differ from this revision of git, and faults without a result"
    add("--changed", metavar="REVISION", help=differ)
    share = "this part of the faults, drawn by --seed"
    add("--fraction", type=_share, default=Fraction(1), metavar="1/N", help=share)
    add("--most", type=_count, metavar="N", help="at most this number of them, drawn by --seed")
    add("--seed", default="0", help="the same seed draws the same faults (default 0)")


def _add_tests(add: Callable[..., object]) -> None:
    tiers = "tests of this tier and of the tiers below (default quick)"
    add("--tier", choices=TIERS, default=TIERS[0], help=tiers)
    limit = "time that one run of tests may take (default 150)"
    add("--limit", type=float, default=150, metavar="SECONDS", help=limit)
    add("--afresh", action="store_true", help="do not try the test that results.json names first")
    jobs = "faults at the same time, each in a copy of its own (default 1)"
    add("--jobs", type=int, default=1, metavar="N", help=jobs)


def _ids(text: str) -> set[str]:
    return {each for each in text.split(",") if each}


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text} is no number of faults")
    return int(text)


def _share(text: str) -> Fraction:
    try:
        share = Fraction(text)
    except (ValueError, ZeroDivisionError):
        share = Fraction(0)
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"{text} is no part of 1, such as 1/10")
    return share


def chosen(
    options: argparse.Namespace, files: Collection[str], tried: Collection[str]
) -> tuple[list[Fault], int]:
    """Return the faults that the options choose, and the number of those that fit, but were not drawn.

    `files`: those that differ. `tried`: the faults with a result.
    """
    found = [
        fault
        for fault in faults()
        if (not options.only or fault.id in options.only) and (not options.area or fault.area in options.area)
    ]
    if options.changed:
        found = of_files(found, files, tried)
    share = options.fraction
    if options.most is not None and found:
        share = min(share, Fraction(options.most, len(found)))
    plants = drawn(found, share, options.seed)
    return plants, len(found) - len(plants)


def of_files(found: Sequence[Fault], files: Collection[str], tried: Collection[str]) -> list[Fault]:
    """Return the faults of these files, and those that were not tried."""
    return [fault for fault in found if fault.file in files or fault.id not in tried]


def drawn(found: Sequence[Fault], share: Fraction, seed: str) -> list[Fault]:
    """Return a part of the faults, rounded up, in their order. The same seed draws the same ones."""
    if share == 1:
        return list(found)
    places = random.Random(seed).sample(range(len(found)), math.ceil(len(found) * share))
    return [found[place] for place in sorted(places)]
