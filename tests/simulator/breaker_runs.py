"""Random runs of one engine with a breaker, in virtual time, and the invariants that hold in each.

A run has bad messages, which always fail or get a verdict of their handler, and good ones; or an outage, in which
everything fails for a while, or all but one message; or hours in which a few bad messages are tried beside good ones.
Some handlers are slow: they outlast a round's patience. Some brokers limit how long a message is held, or give no ids;
some programs have a consumer for every few results. The breaker is small, so that everything happens within some dozens
of messages. The same messages run without a breaker, too: what that run does is what the breaker may delay, and for how
long.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import ceil, inf
from typing import TYPE_CHECKING, Any

from tests.core.breaker_world import BreakerWorld

from redelivery.core.breaker import PATIENCE
from redelivery.core.commands import Accept

if TYPE_CHECKING:
    import random

    from tests.core.breaker_world import Mail

    from redelivery.core.commands import Command

__all__ = ["BreakerRun", "broken", "random_run"]

# Seconds. A good message waits so much longer at most while the bad ones fit into what may be parked; and in any case.
MINUTE, ELEVEN = 60.0, 660.0
# `Breaker.maximum_open` of the runs, in seconds; tries beside successes with which a named outage of `NAMED` ends.
LONGEST, ENOUGH = 1800.0, 20
# Number of rounds within which as many bad messages are passed as a run has.
ROUNDS = 10
# Share of the outages in which one message succeeds.
SUCCESS = 0.3
# A run ends when one message has been tried so often: it would be for ever.
MANY = 2000
# Share of the outages by named failures after which the messages are discarded.
DISCARDED = 0.4
# Duration of a slow handler, in seconds: longer than `PATIENCE`.
SLOW = 600.0
# Duration of an ordinary one: most take no time.
SECONDS = (0.01, 0.01, 0.01, 1.0, 5.0)
# What becomes of the bad messages of one run. `own`, `poison`, `discard` and `defer` are decisions of their handler.
KINDS = (
    ("maybe",),
    ("outage",),
    ("maybe", "outage"),
    (*["maybe"] * 12, "outage"),
    ("outage", *["discard"] * 8),
    ("outage", "poison"),
    ("outage", "own", "own", "own"),
    ("outage", "defer", "defer", "defer"),
    ("maybe", "own", "discard", "defer"),
)
# Results after which a message is parked; and failures that may be spared.
PARKED, SPARED = frozenset({"maybe", "outage", "own", "defer"}), frozenset({"maybe", "outage"})
# Longest outages that dead-letter nothing: below Breaker.maximum_unnamed, and some of Breaker.maximum_open.
UNNAMED, NAMED = 580.0, 1500.0
BROKERS: tuple[dict[str, Any], ...] = (
    {},
    {"flow": True},
    {"flow": True, "release": True},
    {"flow": True, "release": True, "release_counts": True},
    # RabbitMQ: it takes a message back after half an hour.
    {"flow": True, "release": True, "max_hold": 1800.0},
    {"release": True, "grows": True, "release_counts": True, "max_hold": 1800.0},
)


@dataclass(frozen=True)
class BreakerRun:
    """Events of one run: a scenario of `BreakerWorld`, without its handler."""

    bad: dict[str, str]
    """Name and result of each bad message."""
    batches: tuple[tuple[float, str], ...]
    """Time and names of what arrives."""
    outage: tuple[float, float, str] | None
    """Begin, end and weight of an outage; None: the good messages always succeed."""
    seconds: float
    """Duration of a handler."""
    rest: dict[str, Any]
    """The other fields of the scenario."""
    timely: bool = True
    """False: how late the good messages are is not compared."""
    lucky: str | None = None
    """A message that succeeds in the outage."""
    fine: str = "success"
    """Result of the good messages: they succeed, or their handler discards them."""
    slow: frozenset[str] = frozenset()
    """Messages whose handlers take `SLOW`."""

    @property
    def most_parked(self) -> int:
        """Number of messages that may be parked."""
        return int(self.rest["consumer"]["maxParked"])

    @property
    def at_once(self) -> int:
        """Number of handlers that may run at once."""
        consumer = self.rest["consumer"]
        return min(int(consumer["workers"]), int(consumer["credit"]))

    @property
    def deliveries(self) -> int:
        """Number of charged deliveries that the policy allows."""
        return int(self.rest["policy"]["maximumRedeliveries"]) + 1


class _World(BreakerWorld):
    """Plays a run; notes when each message was accepted, and the uncharged failures of each beside successes."""

    def __init__(self, run: BreakerRun, *, on: bool) -> None:
        arrivals = [{"at": at, "names": names} for at, names in run.batches]
        scenario = {**run.rest, "messages": arrivals, "handler": []}
        super().__init__(scenario if on else {**scenario, "breaker": "off"})
        self._run = run
        self.accepted_at: dict[str, float] = {}
        self.uncharged: Counter[str] = Counter()
        # Number of successes; and how many there were when a message failed for the first time.
        self._successes = 0
        self._first: dict[str, int] = {}

    def rule(self, name: str) -> dict[str, Any]:
        weight = self._run.bad.get(name)
        outage = None if name == self._run.lucky else self._run.outage
        if weight is None and outage is not None and outage[0] <= self.now < outage[1]:
            weight = outage[2]
        seconds = SLOW if name in self._run.slow else self._run.seconds
        return {"result": weight or self._run.fine, "seconds": seconds, "delay": 1.0}

    def say(self, what: str, *details: Any) -> None:
        """Keep no log."""

    def finish(self, mail: Mail) -> None:
        name, result = mail.name, self.rule(mail.name)["result"]
        before = self.charges[name]
        super().finish(mail)
        if result == "success":
            self._successes += 1
        elif result in SPARED and self._first.setdefault(name, self._successes) < self._successes:
            self.uncharged[name] += self.charges[name] == before
        if self.calls[name] > MANY:
            self.scenario["until"] = self.now

    def carry_out(self, command: Command) -> None:
        super().carry_out(command)
        if isinstance(command, Accept):
            self.accepted_at.update((str(each.message_id), self.now) for each in command.deliveries)


def broken(run: BreakerRun) -> str | None:
    """Play a run; return which invariant it breaks, or None."""
    on = _World(run, on=True)
    on.run()
    most = run.rest["breaker"]["uncharged"]
    for name, uncharged in on.uncharged.items():
        if uncharged > most:
            return (
                f"for ever: {name} was tried {uncharged} times uncharged beside successes; {most} are allowed"
            )
        if on.charges[name] > run.deliveries:
            return (
                f"for ever: {name} was charged {on.charges[name]} times; the policy allows {run.deliveries}"
            )
    if run.outage is not None:
        # Unnamed failures beside a success are charged, and named ones after so many tries.
        may_die = run.lucky is not None and (run.outage[2] == "maybe" or most < ENOUGH)
        return f"outage: {on.dead[0]} is dead" if on.dead and not may_die else _unhandled(run, on)
    if not run.timely:
        return None
    off = _World(run, on=False)
    off.run()
    return _late(run, on, off)


def _unhandled(run: BreakerRun, on: _World) -> str | None:
    left = set(on.calls) - set(on.accepted_at) - set(run.bad) - set(on.dead)
    return f"left: {min(left)} is not handled after the outage" if left else None


def _bound(run: BreakerRun, on: _World) -> float:
    """Return how many seconds later than without a breaker a message may be handled that is not released."""
    parked = [result for result in run.bad.values() if result in PARKED]
    fits = len(parked) <= run.most_parked
    bound = MINUTE if fits else ELEVEN
    named, policy = parked.count("outage"), run.rest["policy"]
    room = run.most_parked if fits else max(1, run.most_parked - named)
    if not fits:
        # Named ones keep their part of the room when the others are charged: these pass in more groups than without.
        groups = ceil((len(parked) - named) / room) - ceil(len(parked) / run.most_parked)
        bound += max(0, groups) * policy["maximumRedeliveries"] * policy["redeliveryDelay"]
    if not fits and 2 * named >= run.most_parked:
        # The user's word that a service is down: its messages may keep most of the room, for `maximum_open`; and those
        # that come later again, if it has been closed for ten minutes since a success.
        bound += run.rest["breaker"]["maximum_open"] * sum(names.startswith("b") for _, names in run.batches)
    # Bad messages are passed within some rounds of tries, and each of them lasts as long as a handler. They are tried
    # once more than without a breaker; those that do not fit, once more again when failures are charged.
    bound += (ROUNDS + (1 if fits else 2) * len(parked) / run.at_once) * run.seconds
    # A message is deferred for a second, a hundred times; the room may be full of such messages several times.
    bound += 100.0 * ceil(parked.count("defer") / room)
    # Each run of a slow handler may keep a round until its patience ends; or the last free worker, or the whole credit.
    free = run.at_once > len(run.slow) and run.rest["consumer"]["ordering"] == "non_blocking"
    return bound + (PATIENCE if free else SLOW) * sum(on.calls[name] for name in run.slow)


def _late(run: BreakerRun, on: _World, off: _World) -> str | None:
    """Compare when the messages are handled with the run without a breaker."""
    bound = _bound(run, on)
    # The broker puts a released message behind all others.
    others = len(off.calls) * run.seconds / run.at_once
    for name, at in off.accepted_at.items():
        late = on.accepted_at.get(name, inf) - at
        if late > bound + others * (name in on.returned):
            return f"late: {name} is handled {late:.0f} s later than without a breaker"
    return None


def _rest(rnd: random.Random, failures: int, parked: int, until: float) -> dict[str, Any]:
    return {
        "breaker": {
            "failures": failures,
            "messages": rnd.randint(1, failures),
            "named": rnd.choice([2, 3, 3]),
            "uncharged": rnd.choice([0, 1, 5, 20]),
            "maximum_open": LONGEST,
        },
        "policy": {
            "maximumRedeliveries": rnd.choice([0, 1, 3, 6]),
            "redeliveryDelay": rnd.choice([0.1, 1.0, 1.0, 7.0]),
        },
        "consumer": {
            "workers": rnd.choice([1, 1, 2, 4]),
            "maxParked": parked,
            "credit": rnd.choice([2, 20, 1000]),
            "ordering": rnd.choice(["non_blocking", "non_blocking", "per_group"]),
        },
        "capabilities": rnd.choice(BROKERS),
        "keyed": rnd.random() < 0.7,
        "until": until,
    }


def random_run(rnd: random.Random) -> BreakerRun:
    """Draw a run."""
    kind = rnd.random()
    return _outage(rnd) if kind < 0.3 else _hours(rnd) if kind < 0.4 else _mixture(rnd)


def _hours(rnd: random.Random) -> BreakerRun:
    """A few bad messages beside good ones, for hours; the next consumer may take their place at any result."""
    many, step = rnd.randint(1, 6), rnd.choice([5.0, 20.0, 60.0, 200.0])
    bad = {f"b{n}": rnd.choice(["maybe", "outage", "outage"]) for n in range(many)}
    good = [(step * n, f"g{n}") for n in range(int(4 * 3600 / step))]
    rest = _rest(rnd, rnd.randint(2, 6), 8, 6 * 3600.0)
    rest["consumer"]["workers"] = 1
    if rnd.random() < 0.5:
        rest["renews"] = rnd.choice([1, 1, 2, 5])
    return BreakerRun(bad, ((0.0, f"b0..b{many - 1}"), *good), None, 0.01, rest, timely=False)


def _mixture(rnd: random.Random) -> BreakerRun:
    failures, parked = rnd.randint(2, 6), rnd.choice([4, 8, 8, 16, 30])
    kinds = rnd.choice(KINDS)
    # A message is deferred a hundred times: with slow handlers they would be all that the workers do.
    seconds = 0.01 if "defer" in kinds else rnd.choice(SECONDS)
    bad, batches, at, good, count = dict[str, str](), list[tuple[float, str]](), 0.0, 0, 0
    for _ in range(rnd.randint(1, 4)):
        many = rnd.randint(0, rnd.choice([3, 3, 8, 8, 30, 60]))
        for _ in range(many):
            bad[f"b{count}"] = rnd.choice(kinds)
            count += 1
        if many:
            batches.append((at, f"b{count - many}..b{count - 1}"))
        fine = rnd.choice([0, 1, 1, 3, 12])
        at += rnd.choice([0.0, 0.0, 0.3, 5.0, 30.0])
        if fine:
            batches.append((at, f"g{good}..g{good + fine - 1}"))
        good += fine
        at += rnd.choice([0.0, 0.0, 1.0, 20.0, 90.0])
    step = rnd.choice([0.2, 2.0, 20.0])
    for _ in range(rnd.choice([1, 3, 3, 20])):
        at += step
        batches.append((at, f"g{good}"))
        good += 1
    rest = _rest(rnd, failures, parked, at + ELEVEN + 5 * LONGEST)
    names = [f"g{n}" for n in range(good)]
    names += [name for name in bad if bad[name] != "defer"] if rnd.random() < 0.5 else []
    slow = frozenset(rnd.sample(names, min(len(names), rnd.choice([0, 0, 1, 2]))))
    rest["until"] += len(slow) * 20_000.0
    if slow and rnd.random() < 0.5:
        # Workers are left for the others.
        rest["consumer"].update(workers=4, credit=20, ordering="non_blocking")
    return BreakerRun(bad, tuple(batches), None, seconds, rest, slow=slow)


def _outage(rnd: random.Random) -> BreakerRun:
    """Everything fails for a while; only what a policy of two redeliveries and more survives until it opens."""
    weight = rnd.choice(["maybe", "outage"])
    lasts = rnd.uniform(0.0, rnd.choice([60.0, 60.0, 60.0, UNNAMED if weight == "maybe" else NAMED]))
    has_success = rnd.random() < SUCCESS
    if has_success and weight == "outage":
        lasts = rnd.uniform(0.0, NAMED)
    rest = _rest(rnd, rnd.randint(2, 6), rnd.choice([4, 16, 30]), lasts + 100.0)
    rest["policy"] = {"maximumRedeliveries": rnd.choice([2, 6]), "redeliveryDelay": rnd.choice([1.0, 7.0])}
    # So many that the row is complete before any of them has failed twice.
    least = rest["breaker"]["failures"] if weight == "maybe" else 1
    rest["consumer"]["maxParked"] = max(rest["consumer"]["maxParked"], least)
    batches = [
        (0.0, f"g0..g{least - 1}"),
        (rnd.uniform(0.0, lasts), f"g{least}..g{least + rnd.randint(0, 30)}"),
    ]
    # It succeeds in the second batch: with it in the first one, the row might not be complete.
    lucky = f"g{least}" if has_success else None
    seconds, fine = 0.01, "success"
    if weight == "outage" and not has_success and rnd.random() < DISCARDED:
        # Nothing succeeds after the outage: as many handlers run at once nevertheless as without a breaker.
        seconds, fine, many = rnd.choice([0.01, 1.0, 5.0, 5.0]), "discard", rnd.randint(1, 80)
        at_once = rest["consumer"]["workers"] = rnd.choice([1, 4, 8])
        at_once = min(at_once, rest["consumer"]["credit"])
        batches[1] = (batches[1][0], f"g{least}..g{least + many - 1}")
        rest["until"] += seconds * (ROUNDS + (least + many) / at_once)
    if lucky is not None:
        rest["breaker"]["uncharged"] = rnd.choice([0, 5, ENOUGH, ENOUGH])
        rest["until"] = lasts + 4000.0
    return BreakerRun({}, tuple(batches), (0.0, lasts, weight), seconds, rest, lucky=lucky, fine=fine)
