"""Fuzzing: `python -m tests.fuzz` feeds mutated inputs to the code that reads them, and reports faults.

Progress goes to stderr if that is a terminal, results to stdout. A run can be repeated: each input is made from the
seed and its number.
Exit codes: 0 no finding, 1 findings, 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fuzz.campaign import Campaign
from tests.fuzz.catalogue import targets
from tests.fuzz.child import run_in_child
from tests.fuzz.minimise import minimised

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.fuzz.campaign import Outcome
    from tests.fuzz.target import Target
    from tests.fuzz.trial import Finding

__all__ = ["main"]


def arguments(given: Sequence[str] | None, known: Mapping[str, Target]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser("python -m tests.fuzz", description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add(
        "--target",
        action="append",
        choices=sorted(known),
        metavar="NAME",
        help="only this target; may be repeated",
    )
    add("--inputs", type=int, default=1_000_000, help="inputs of each target (default 1000000)")
    add("--minutes", type=float, default=float("inf"), help="end each target after this number of minutes")
    add("--seed", type=int, default=1, help="seed of the mutations (default 1)")
    add(
        "--save",
        type=Path,
        metavar="DIR",
        help="where findings are saved (default: in the system's temporary folder)",
    )
    add("--list", action="store_true", help="list the targets, and end")
    return parser.parse_args(given)


class _Progress:
    """A line on stderr, each second."""

    def __init__(self) -> None:
        self._start = self._next = time.monotonic()
        self._first: int | None = None

    def show(self, campaign: Campaign, number: int) -> None:
        """Write how many inputs of a campaign were tried."""
        now = time.monotonic()
        if now < self._next or not sys.stderr.isatty():
            return
        self._next = now + 1
        rate = number / max(now - self._start, 0.001)
        line = f"\r{campaign.target.name}: {number:,} of {campaign.last:,}, {rate:,.0f}/s "
        print(line, end="", file=sys.stderr, flush=True)


def _run(target: Target, options: argparse.Namespace) -> Outcome:
    campaign = Campaign(target, options.seed, options.inputs, options.minutes * 60)
    progress = _Progress()
    if target.isolated:
        (outcome,) = run_in_child([campaign], progress.show)
    else:
        outcome = campaign.run(lambda number: progress.show(campaign, number))
    if sys.stderr.isatty():
        print("\r", end="", file=sys.stderr, flush=True)
    return outcome


def _save(folder: Path, target: Target, finding: Finding) -> Path:
    """Write the input of a finding as found, and as short as possible; return the file of the short one."""
    name = f"{finding.kind}-{hashlib.sha256(finding.place.encode()).hexdigest()[:8]}"
    path = folder / target.name / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".found").write_bytes(finding.data)
    path.write_bytes(minimised(target, finding).data)
    return path


def main(given: Sequence[str] | None = None, known: Mapping[str, Target] | None = None) -> int:
    """Fuzz; return the exit code."""
    known = targets() if known is None else known
    options = arguments(given, known)
    chosen = [known[name] for name in options.target or known]
    if options.list:
        for target in chosen:
            print(f"{target.name}{'  (in child processes)' if target.isolated else ''}")
        return 0
    folder = options.save or Path(tempfile.gettempdir(), "redelivery-fuzz")
    found = False
    for target in chosen:
        outcome = _run(target, options)
        rate = outcome.inputs / max(outcome.seconds, 0.001)
        print(
            f"{target.name}: {outcome.inputs:,} inputs, {rate:,.0f}/s, slowest {outcome.slowest * 1000:.1f} ms "
            f"({len(outcome.slowest_input):,} bytes), peak {outcome.peak_mb:.0f} MiB, "
            f"{len(outcome.findings)} findings",
            flush=True,
        )
        for fault, finding in outcome.findings.items():
            found = True
            path = _save(folder, target, finding)
            print(
                f"  {finding.kind} ({outcome.repeated[fault]} times): {finding.what}\n    {path}", flush=True
            )
    return int(found)


if __name__ == "__main__":
    sys.exit(main())
