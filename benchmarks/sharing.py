"""Shares of several processes on one queue, and the cost of a credit at full speed, on one broker, interleaved.

    python -m benchmarks.sharing [--pair artemis-stomp] [--option redelivery.credit=16] [--rounds 3] [--json FILE]

Four scenes, each with a prefilled queue, 256 B, non-persistent:

| scene | processes | workers of each | work | result |
|---|---|---|---|---|
| one | 1 | 1 | none | messages a second |
| four | 4 | 1 | none | messages a second, of all four |
| even | 4 | 2 | 10 ms | each process's share, and the rate compared with eight workers that never wait |
| late | 4 | 2 | 10 ms | the same, but the first process begins two seconds before the others |

Each `--option` is a variant; the defaults are no option, `redelivery.credit=1000` and `redelivery.credit=16`. Each
round runs all variants. A rate is measured from the first handled message to the last. "later" leaves out the first
second, or the first third of the messages if that is shorter, in which a window may grow. It also leaves out the last
twentieth, in which some of the processes have no messages left. Shares count from the moment at which the last process
begins; the largest distance from an even share is printed. Prints medians, the smallest and the largest figure, ratios
to `redelivery.credit=1000` if that is a variant, and the load of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
from bisect import bisect_left
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from integration.brokers import BROKERS, Broker
from integration.peers import PAIRS

from benchmarks.ledger import prefill

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HERE = Path(__file__).parent
FULL = "redelivery.credit=1000"
VARIANTS = ("", FULL, "redelivery.credit=16")


@dataclass(frozen=True, slots=True)
class Scene:
    """One scene. `late`: seconds by which the first process begins before the others; `work`: ms of each message."""

    name: str
    processes: int
    workers: int
    work: float = 0.0
    late: float = 0.0

    @property
    def at_work(self) -> bool:
        """True if the scene measures shares, not the highest rate."""
        return self.work > 0

    def ideal(self, messages: int) -> float:
        """Return the messages a second that its workers can handle, for this number of messages; with `work` only."""
        alone = 1000 / self.work * self.workers
        first = min(messages, alone * self.late)
        return messages / (
            self.late * first / (alone * self.late or 1) + (messages - first) / (alone * self.processes)
        )


SCENES = (Scene("one", 1, 1), Scene("four", 4, 1), Scene("even", 4, 2, 10.0), Scene("late", 4, 2, 10.0, 2.0))


@dataclass(frozen=True, slots=True)
class Ended:
    """Output of one process: seconds of the machine's monotonic clock."""

    began: float
    times: list[float]


@dataclass(frozen=True, slots=True)
class Found:
    """One run: `rate` and `later` in messages a second, `spread` as a part of an even share, `load` of the machine."""

    pair: str
    variant: str
    scene: str
    round: int
    rate: float
    later: float
    shares: tuple[int, ...]
    spread: float
    ideal: float | None
    load: float


def main() -> None:
    """Measure and print."""
    given = _arguments()
    pairs = [each for each in PAIRS if not given.pair or "-".join(each) in given.pair]
    scenes = [each for each in SCENES if not given.scene or each.name in given.scene]
    variants: Sequence[str] = given.option or VARIANTS
    every: list[Found] = []
    for name, protocol in pairs:
        with BROKERS[name]() as broker:
            found: list[Found] = []
            for turn in range(-given.warm_up, given.rounds):
                for scene in scenes if turn >= 0 else SCENES[:1]:
                    messages = given.shared if scene.at_work else given.messages
                    # Each variant is the first in some round: a broker that has warmed up helps the later ones.
                    for variant in (*variants[turn % len(variants) :], *variants[: turn % len(variants)]):
                        one = measure(broker, protocol, scene, variant, messages, turn)
                        print(f"  {_line([one])}", file=sys.stderr, flush=True)
                        found += [one] if turn >= 0 else []
        report(found, scenes, variants)
        every += found
        if given.json:
            given.json.write_text(json.dumps([asdict(each) for each in every], indent=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pair", choices=["-".join(each) for each in PAIRS], action="append")
    parser.add_argument("--scene", choices=[each.name for each in SCENES], action="append")
    parser.add_argument(
        "--option", action="append", help='a variant: options of the URI joined by "&"; "" for none'
    )
    parser.add_argument("--messages", type=int, default=60_000, help="without work")
    parser.add_argument("--shared", type=int, default=2000, help="with work")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--warm-up", type=int, default=2, help="rounds before, in which a broker on Java compiles itself"
    )
    parser.add_argument("--json", type=Path, help="write every single run here, too")
    return parser.parse_args()


def measure(
    broker: Broker,
    protocol: str,
    scene: Scene,
    variant: str,
    messages: int,
    turn: int,
    *,
    again: bool = False,
) -> Found:
    """Fill a queue, and let the processes empty it. A run that stops for longer than they wait is repeated, once.

    Raises:
        RuntimeError: A message was handled twice, or never.
    """
    queue = f"bench.{scene.name}.{turn}.{variant.rpartition('=')[2]}{'.again' * again}"
    prefill(broker, protocol, queue, messages)
    uri = broker.uri(protocol=protocol) + (f"&{variant}" if variant else "")
    load = os.getloadavg()[0]
    ended = list(_run(scene, uri, queue))
    times = sorted(at for one in ended for at in one.times)
    if len(times) < messages and not again:
        print(f"  {broker.name} stood still after {len(times)} of {messages}", file=sys.stderr, flush=True)
        return measure(broker, protocol, scene, variant, messages, turn, again=True)
    if len(times) != messages:
        raise RuntimeError(
            f"{broker.name} {protocol} {scene.name} {variant}: {len(times)} handled of {messages}"
        )
    together = max(one.began for one in ended)
    shares = tuple(sum(at >= together for at in one.times) for one in ended)
    even = sum(shares) / len(shares)
    return Found(
        f"{broker.name}-{protocol}", variant, scene.name, turn,
        rate=messages / (times[-1] - times[0]),
        later=_later(times),
        shares=shares,
        spread=max(abs(share - even) for share in shares) / even if even else 0.0,
        ideal=scene.ideal(messages) if scene.at_work else None,
        load=load,
    )  # fmt: skip


def _later(times: Sequence[float]) -> float:
    """Return messages a second, without the time in which a window grows and that in which processes run dry."""
    first = min(len(times) // 3, bisect_left(times, times[0] + 1.0))
    last = len(times) * 19 // 20
    return (last - first) / (times[last] - times[first])


def _run(scene: Scene, uri: str, queue: str) -> Iterator[Ended]:
    """Run the processes, all of which are connected before the first begins; yield the result of each."""
    argv = [
        sys.executable,
        "-m",
        "benchmarks.consume_shared",
        uri,
        queue,
        str(scene.workers),
        str(scene.work),
    ]
    running = [
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE.parent)
        for _ in range(scene.processes)
    ]
    try:
        for one in running:
            assert one.stdout is not None
            if one.stdout.readline() != "ready\n":
                raise RuntimeError(f"a consumer has ended with {one.wait()} before it began")
        for number, one in enumerate(running):
            assert one.stdin is not None
            if number == 1 and scene.late:
                threading.Event().wait(scene.late)
            print(flush=True, file=one.stdin)
        for one in running:
            printed, _ = one.communicate()
            yield Ended(**json.loads(printed))
    finally:
        for one in running:
            one.kill()
            one.wait()


def report(found: Sequence[Found], scenes: Sequence[Scene], variants: Sequence[str]) -> None:
    """Print a line for each variant of each scene of one pair."""
    for scene in scenes:
        full = [one.rate for one in found if (one.scene, one.variant) == (scene.name, FULL)]
        for variant in variants:
            own = [one for one in found if (one.scene, one.variant) == (scene.name, variant)]
            if own:
                beside = (
                    statistics.median(one.rate for one in own) / statistics.median(full) if full else None
                )
                print(_line(own, None if scene.at_work else beside), flush=True)


def _line(own: Sequence[Found], beside: float | None = None) -> str:
    """Return the line of one variant's runs. `beside`: the ratio of its rate to that of credit 1000."""
    first, rates = own[0], [one.rate for one in own]
    text = f"{first.pair:14} {first.scene:5} {first.variant or 'no option':24} {statistics.median(rates):8,.0f}/s"
    if len(own) > 1:
        text += f" ({min(rates):,.0f} to {max(rates):,.0f})"
    if first.ideal is None:
        text += f", later {statistics.median(one.later for one in own):,.0f}/s"
    else:
        part = statistics.median(one.rate for one in own) / first.ideal
        spread = statistics.median(one.spread for one in own)
        shares = " ".join(str(share) for share in sorted(own[-1].shares))
        text += f", {part:.0%} of the ideal; shares up to {spread:.0%} from even, as {shares}"
    if beside is not None:
        text += f", {beside:.2f} of credit 1000"
    return f"{text}; load {min(one.load for one in own):.1f} to {max(one.load for one in own):.1f}"


if __name__ == "__main__":
    main()
