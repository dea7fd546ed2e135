"""Measures windows over STOMP: `python -m integration.measure_windows [--broker NAME] [--only NAME]`.

The source of docs/measured/windows.md, sections a to e: the effect of several subscriptions of one connection to one
queue.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import time
from collections import Counter
from typing import TYPE_CHECKING

from benchmarks.fill import fill

from integration.brokers import STOMP_BROKERS, Broker
from integration.measure_window_kinds import elsewhere, groups, kinds, spread
from integration.stomp_wire import NAMES, Wire, ack, by, drained, end, errors, filled, messages, number

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.stomp_wire import Frame


def sums(broker: Broker) -> None:
    """Print how many unsettled messages n subscriptions have, and which of them gets one more for an ACK."""
    queue = filled(broker, 150, "sums")
    with Wire(broker) as wire:
        found: list[Frame] = []
        for identity, width in (("a", 1), ("b", 2), ("c", 5), ("d", 10), ("e", 40)):
            wire.write(wire.subscribe(queue, identity, width))
            found += wire.quiet()
        print(f"  windows 1, 2, 5, 10, 40: held {by(found)}, sum {len(messages(found))}")
        for identity in "abcde":
            own = [one for one in messages(found) if one.header(b"subscription") == identity.encode()]
            wire.write(ack(own[: max(1, len(own) // 2)]))
            print(f"  ACK of {max(1, len(own) // 2)} of {identity}: +{by(wire.quiet())}")
    queue = filled(broker, 150, "sums")
    with Wire(broker) as wire:
        wire.write(b"".join(wire.subscribe(queue, f"s{n}", 3) for n in range(30)))
        print(f"  30 of 3 in one write: {len(messages(wire.quiet()))} of 90")


def order(broker: Broker) -> None:
    """Print the order in which messages arrive, over all subscriptions of a connection, while they are acknowledged."""
    for how in ("one", "two at once", "second after 200", "ten"):
        queue = filled(broker, 1500, "order")
        with Wire(broker) as wire:
            first = {"one": 1, "two at once": 2, "second after 200": 1, "ten": 10}[how]
            wire.write(b"".join(wire.subscribe(queue, f"s{n}", 10) for n in range(first)))
            seen: list[int] = []
            by_sub: Counter[str] = Counter()
            added = how != "second after 200"
            while more := messages(wire.read(1.0)):
                seen += [number(one) for one in more]
                by_sub.update(one.header(b"subscription").decode() for one in more)
                wire.write(ack(more))
                if not added and len(seen) > 200:
                    added = True
                    wire.write(wire.subscribe(queue, "s1", 10))
        late = sum(1 for one, two in itertools.pairwise(seen) if two < one)
        far = max(
            (top - one for top, one in zip(itertools.accumulate(seen, max), seen, strict=True)), default=0
        )
        print(
            f"  {how}: {len(seen)} came, {late} times one before its predecessor, by {far} at most; {dict(by_sub)}"
        )


def returned(broker: Broker) -> None:
    """Print the messages that one subscription gets after the end of another with unacknowledged ones, in order."""
    for held in ("the first", "the second"):
        queue = filled(broker, 60, "returned")
        with Wire(broker) as wire:
            wire.write(wire.subscribe(queue, "a", 5))
            ours = messages(wire.quiet())
            wire.write(wire.subscribe(queue, "b", 20))
            ours += messages(wire.quiet())
            ends, stays = ("a", "b") if held == "the first" else ("b", "a")
            left = [one for one in ours if one.header(b"subscription").decode() == stays]
            gone = [one for one in ours if one.header(b"subscription").decode() == ends]
            wire.write(end(ends, b"receipt:u\n"))
            wire.quiet()
            wire.write(ack(left))
            seen: list[Frame] = []
            while more := messages(wire.read(1.0)):
                seen += more
                wire.write(ack(more))
            marks = Counter(
                one.header(b"redelivered").decode() for one in seen if number(one) in set(map(number, gone))
            )
            print(
                f"  {held} ended with {[number(one) for one in gone]}: then {[number(one) for one in seen]}, "
                f"of these marked {dict(marks)}"
            )
            wire.write(ack(gone[:1], more=b"receipt:late\n"))
            print(f"  ACK of one of the ended: {errors(wire.quiet()) or 'no ERROR'}")
        print(f"  after the end of the connection: {sorted(map(number, drained(broker, queue)))}")


def churned(broker: Broker) -> None:
    """Print lost and repeated messages while subscriptions begin and end at random."""
    dice = random.Random(4)
    queue = filled(broker, 3000, "churned")
    counts: Counter[int] = Counter()
    handled: Counter[int] = Counter()
    refused: list[str] = []
    with Wire(broker) as wire:
        alive: list[str] = []
        names = itertools.count()
        ours: list[Frame] = []
        ended = 0
        while True:
            if len(alive) < 2 or (len(alive) < 6 and dice.random() < 0.2):
                alive.append(f"s{next(names)}")
                wire.write(wire.subscribe(queue, alive[-1], dice.choice((1, 5, 20))))
            elif ended < 60 and dice.random() < 0.2:
                gone = alive.pop(dice.randrange(len(alive)))
                wire.write(end(gone))
                ours = [one for one in ours if one.header(b"subscription").decode() != gone]
                ended += 1
            more = wire.read(1.5)
            refused += errors(more)
            came = [one for one in messages(more) if one.header(b"subscription").decode() in alive]
            if not more:
                break
            counts.update(number(one) for one in messages(more))
            ours += came
            dice.shuffle(ours)
            now, ours = ours[: len(ours) // 2 + 1], ours[len(ours) // 2 + 1 :]
            handled.update(number(one) for one in now)
            wire.write(ack(now))
    left = Counter(map(number, drained(broker, queue)))
    total = handled + left
    print(
        f"  {ended} ended beside {next(names)} begun: of 3000 {sum(1 for n in range(3000) if not total[n])} never, "
        f"{sum(1 for n in total if handled[n] > 1)} acknowledged twice, {sum(left.values())} left for the next, "
        f"{sum(1 for n in counts if counts[n] > 1)} came twice, ERRORs {dict(Counter(refused))}"
    )


def resubscribed(broker: Broker) -> None:
    """Print the effect of UNSUBSCRIBE and SUBSCRIBE of one id, with another window, in one write, during a flow."""
    if broker.name == "artemis":
        print("  not here: an ACK of a message of the ended one closes the connection (AMQ339018)")
        return
    queue = filled(broker, 6000, "resub")
    handled: Counter[int] = Counter()
    came = turns = 0
    refused: list[str] = []
    held: list[int] = []
    widths = itertools.cycle((50, 5, 200, 20))
    with Wire(broker) as wire:
        wire.write(wire.subscribe(queue, "s", 5))
        ours: list[Frame] = []
        while more := wire.read(1.5):
            refused += errors(more)
            fresh = messages(more)
            came += len(fresh)
            ours += fresh
            keep = 3
            now, ours = ours[:-keep], ours[-keep:]
            if not now:
                now, ours = ours, []
            handled.update(number(one) for one in now)
            wire.write(ack(now))
            if turns < 40 and came > turns * 120:
                turns += 1
                wire.write(end("s") + wire.subscribe(queue, "s", next(widths)))
    left = Counter(map(number, drained(broker, queue)))
    lost = [n for n in range(6000) if not (handled + left)[n]]
    print(
        f"  {turns} turns: {came} came, {sum(1 for n in handled if handled[n] > 1)} handled twice, {len(lost)} never, "
        f"{sum(left.values())} left for the next, ERRORs {dict(Counter(refused))}"
    )
    # How wide is the window afterwards, with the earlier messages still unacknowledged?
    queue = filled(broker, 150, "resub")
    with Wire(broker) as wire:
        wire.write(wire.subscribe(queue, "s", 50))
        first = messages(wire.quiet())
        for width in (5, 30):
            wire.write(end("s") + wire.subscribe(queue, "s", width))
            held.append(len(messages(wire.quiet())))
        wire.write(ack(first[:20]))
        after = wire.quiet()
        print(
            f"  50 held, again with 5: +{held[0]}, with 30: +{held[1]}; ACK of 20 of the first 50: "
            f"+{len(messages(after))} {errors(after)}"
        )
        wire.write(ack(first[20:], b"NACK", b"requeue:true\n" if broker.name == "rabbitmq" else b""))
        print(f"  NACK of the other 30: +{len(messages(wire.quiet()))} {errors(wire.quiet())}")


def begun(broker: Broker) -> None:
    """Print the seconds until a SUBSCRIBE has its RECEIPT, idle and during a flow of messages."""
    for busy in (False, True):
        queue = filled(broker, 3000 if busy else 0, "begun")
        times: list[float] = []
        with Wire(broker) as wire:
            if busy:
                wire.write(wire.subscribe(queue, "first", 100))
            for turn in range(30):
                began = time.perf_counter()
                wire.write(
                    wire.subscribe(queue, f"s{turn}", 5).replace(
                        b"\n\n\0", f"\nreceipt:r{turn}\n\n\0".encode()
                    )
                )
                while True:
                    more = wire.read(5.0)
                    wire.write(ack(messages(more)))
                    if any(one.header(b"receipt-id") == f"r{turn}".encode() for one in more):
                        times.append(time.perf_counter() - began)
                        break
                    if not more or errors(more):
                        print("  no answer", errors(more))
                        return
        shown = [f"{1000 * value:.2f}" for value in (statistics.median(times), max(times))]
        print(
            f"  SUBSCRIBE {'beside a stream' if busy else 'idle'}: median {shown[0]} ms, most {shown[1]} ms"
        )


def rates(broker: Broker, total: int = 40_000, rounds: int = 3) -> None:
    """Print messages a second with a window of 1000 in one to thirty subscriptions, and small windows in one."""
    plans = {"1000": (1, 1000), "2 x 500": (2, 500), "5 x 200": (5, 200), "10 x 100": (10, 100), "30 x 33": (30, 33),
             "1 x 16": (1, 16), "1 x 64": (1, 64), "1 x 250": (1, 250), "16 + 984": (0, 0)}  # fmt: skip
    found: dict[str, list[float]] = {name: [] for name in plans}
    # Artemis counts bytes: a frame of `fill` has about 590.
    for turn in range(-1, rounds):
        for name, (count, width) in plans.items():
            queue = f"w.rate.{next(NAMES)}"
            fill(broker, queue, total)
            with Wire(broker) as wire:
                widths = [width] * count or [16, 984]
                scale = 0.6 if broker.name == "artemis" else 1.0
                wire.write(
                    b"".join(
                        wire.subscribe(queue, f"s{n}", max(1, round(w * scale))) for n, w in enumerate(widths)
                    )
                )
                seen, began = 0, 0.0
                while seen < total:
                    more = wire.read(10.0)
                    assert more, f"{broker.name}, {name}: stands still at {seen} of {total}"
                    began = began or time.perf_counter()
                    seen += len(more)
                    wire.write(ack(more))
                took = time.perf_counter() - began
            if turn >= 0:
                found[name].append(total / took)
    base = statistics.median(found["1000"])
    for name, each in found.items():
        median = statistics.median(each)
        print(f"  {name}: {median:,.0f}/s ({min(each):,.0f} to {max(each):,.0f}), {median / base:.2f}")


MEASURED: tuple[Callable[[Broker], None], ...] = (
    sums, order, returned, churned, resubscribed, groups, elsewhere, spread, kinds, begun, rates,
)  # fmt: skip


def main() -> None:
    """Run each measurement on each broker."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", choices=sorted(STOMP_BROKERS), action="append")
    parser.add_argument("--only", choices=[each.__name__ for each in MEASURED], action="append")
    arguments = parser.parse_args()
    for name in arguments.broker or sorted(STOMP_BROKERS):
        with STOMP_BROKERS[name]() as broker:
            for each in MEASURED:
                if not arguments.only or each.__name__ in arguments.only:
                    print(f"{name}: {each.__name__}: {(each.__doc__ or '').splitlines()[0]}", flush=True)
                    each(broker)


if __name__ == "__main__":
    main()
