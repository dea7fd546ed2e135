"""Speed of the engine alone: arrive, dispatch, succeed, accept; with the delivery, a policy map and a schedule.

    python -m benchmarks.engine [--messages 400000] [--rounds 5]

Prints messages per second for each ordering, the median of the rounds: without a breaker, and with one that stays
closed, interleaved; and how much more time a message takes with it.
"""

from __future__ import annotations

import argparse
import statistics
import time

from redelivery.core.breaker import Breaker
from redelivery.core.capabilities import Capabilities
from redelivery.core.dead_lettering.routing import DeadLetterRouting
from redelivery.core.delivery import Delivery
from redelivery.core.engine import Engine
from redelivery.core.events import Arrived, Connected, Succeeded, Wanted
from redelivery.core.policy.policy_map import RedeliveryPolicyMap
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy

CHUNK = 64  # messages that a read of a socket brings
CAPABILITIES = Capabilities(broker="none")


def run(ordering: str, messages: int, breaker: Breaker | None) -> float:
    """Return messages per second."""
    engine = Engine(
        1,
        policies=RedeliveryPolicyMap(
            {"orders.>": RedeliveryPolicy(), "topic://prices.*": RedeliveryPolicy()}
        ),
        dead_letters=DeadLetterRouting(),
        breaker=breaker,
        ordering=ordering,  # type: ignore[arg-type]  # one of the three, from main()
    )
    engine.feed(Connected(1, CAPABILITIES), 0.0)
    feed, wanted, clock = engine.feed, Wanted(), time.monotonic
    body = b"x" * 256
    started = time.perf_counter()
    for _ in range(messages // CHUNK):
        feed(Arrived(1, [Delivery(1, 1, body) for _ in range(CHUNK)]), clock())
        while commands := feed(wanted, clock()):
            feed(Succeeded(commands[0].delivery), clock())  # type: ignore[union-attr]  # a Dispatch
    return messages / (time.perf_counter() - started)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    for ordering in ("non_blocking", "blocking", "per_group"):
        off: list[float] = []
        closed: list[float] = []
        for _ in range(arguments.rounds):
            off.append(run(ordering, arguments.messages, None))
            closed.append(run(ordering, arguments.messages, Breaker()))
        more = statistics.median(a / b for a, b in zip(off, closed, strict=True)) - 1
        print(
            f"{ordering:13} {statistics.median(off):10,.0f}/s  ({min(off):,.0f} to {max(off):,.0f})", end=""
        )
        print(f"; with a closed breaker {statistics.median(closed):10,.0f}/s, {more:+.1%} time a message")


if __name__ == "__main__":
    main()
