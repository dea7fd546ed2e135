"""Processor time of a message in this library alone: what a broker sent is fed to it, without a broker or a network.

    python -m benchmarks.fed [--protocol both] [--rounds 24] [--before FOLDER] [--json FILE]

`benchmarks.consume_fed` is a round: a process that consumes the recording four times, and prints the smallest time. It
fails unless every message was handled once and acknowledged once. The figure is the smallest of the rounds: other work
on the machine only adds to it. Linux only.

`--before` compares this checkout with another one, which need not have this program:

    git worktree add ../before REVISION
    python -m benchmarks.fed --before ../before

Both run interleaved, in alternating order. The ratio is that of the smallest times: this one to the other.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.checkouts import HERE, alternating, checkout, output
from benchmarks.replay import PROTOCOLS, recording

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["main"]


def interpreter() -> str:
    """Return the interpreter, and whether it was built with profile-guided optimisation: that is 15 %."""
    optimised = "--enable-optimizations" in str(sysconfig.get_config_var("CONFIG_ARGS"))
    how = "with" if optimised else "without"
    return (
        f"{platform.python_implementation()} {platform.python_version()}, built {how} --enable-optimizations"
    )


def number(text: str) -> int:
    """Return a number of rounds, for argparse."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text} is no number of rounds: use 1 or more")
    return int(text)


def measure(protocol: str, checkouts: Mapping[str, Path], rounds: int) -> dict[str, list[float]]:
    """Run all rounds of one protocol; print and return the times of each checkout, in µs a message."""
    found: dict[str, list[float]] = {name: [] for name in checkouts}
    messages = 0
    for turn, name in alternating(checkouts, range(rounds)):
        measured = output(checkouts[name], "benchmarks.consume_fed", protocol)
        if measured["libraries"] != [str(checkouts[name])]:
            raise SystemExit(f"measured {measured['libraries']} instead of {checkouts[name]}")
        messages = measured["messages"]
        found[name].append(measured["cpu_us"])
        done = f"round {turn + 1} of {rounds}, {protocol} {name}"
        print(f"  {done:32} {measured['cpu_us']:6.2f} µs", file=sys.stderr, flush=True)
    for name, times in found.items():
        spread = f"(median {statistics.median(times):.2f}, {rounds} rounds of {messages:,} messages)"
        print(f"{protocol:5} {name:6} {min(times):6.2f} µs of processor time a message {spread}", flush=True)
    if len(found) > 1:
        ratio = min(found["now"]) / min(found["before"])
        print(f"{protocol:5} ratio  {ratio:.3f}: {ratio - 1:+.1%} time a message", flush=True)
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--protocol", choices=(*PROTOCOLS, "both"), default="both")
    parser.add_argument("--rounds", type=number, default=24)
    parser.add_argument("--before", type=checkout, metavar="FOLDER", help="another checkout of this library")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the time of every round here, too")
    given = parser.parse_args(argv)
    if sys.platform != "linux":
        parser.error("it needs Linux: sockets that keep the limits of messages")
    protocols = PROTOCOLS if given.protocol == "both" else (given.protocol,)
    for protocol in protocols:
        if not recording(protocol).exists():
            parser.error(f"there is no recording of {protocol}: make it with python -m benchmarks.record")
    if given.json and not given.json.absolute().parent.is_dir():
        parser.error(f"{given.json} cannot be written: its folder does not exist")
    checkouts = {"now": HERE} if given.before is None else {"before": given.before, "now": HERE}
    print(interpreter(), flush=True)
    found = {protocol: measure(protocol, checkouts, given.rounds) for protocol in protocols}
    if given.json:
        given.json.write_text(json.dumps({"interpreter": interpreter(), "cpu_us": found}, indent=1))


if __name__ == "__main__":
    main()
