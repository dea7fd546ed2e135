"""Random runs of one engine with a breaker, in virtual time, and the invariants that hold in each.

A run has bad messages, which always fail, and good ones; or an outage, in which everything fails for a while, or all
but one message. Some handlers are slow: they outlast a round's patience. The breaker is small, so that everything
happens within some dozens of messages. The same messages run without a breaker, too: what that run does is what the
breaker may delay, and for how long.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import inf
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
# Share of the outages in which one message succeeds.
SUCCESS = 0.3
# Duration of a slow handler, in seconds: longer than `PATIENCE`.
SLOW = 600.0
# Longest outages that dead-letter nothing: below Breaker.maximum_unnamed, and some of Breaker.maximum_open.
UNNAMED, NAMED = 580.0, 1500.0
BROKERS: tuple[dict[str, Any], ...] = (
    {},
    {"flow": True},
    {"flow": True, "release": True},
    {"flow": True, "release": True, "release_counts": True},
)


@dataclass(frozen=True)
class BreakerRun:
    """Events of one run: a scenario of `BreakerWorld`, without its handler."""

    bad: dict[str, str]
    """Name and weight of each bad message."""
    batches: tuple[tuple[float, str], ...]
    """Time and names of what arrives."""
    outage: tuple[float, float, str] | None
    """Begin, end and weight of an outage; None: the good messages always succeed."""
    seconds: float
    """Duration of a handler."""
    rest: dict[str, Any]
    """The other fields of the scenario."""
    lucky: str | None = None
    """A message that succeeds in the outage."""
    slow: frozenset[str] = frozenset()
    """Messages whose handlers take `SLOW`."""

    @property
    def most_parked(self) -> int:
        """Number of messages that may be parked."""
        return int(self.rest["consumer"]["maxParked"])

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
        return {"result": weight or "success", "seconds": seconds}

    def say(self, what: str, *details: Any) -> None:
        """Keep no log."""

    def finish(self, mail: Mail) -> None:
        name, fails = mail.key, self.rule(mail.key)["result"] != "success"
        before = self.charges[name]
        super().finish(mail)
        if not fails:
            self._successes += 1
        elif self._first.setdefault(name, self._successes) < self._successes:
            self.uncharged[name] += self.charges[name] == before

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
    off = _World(run, on=False)
    off.run()
    return _late(run, on, off)


def _unhandled(run: BreakerRun, on: _World) -> str | None:
    left = set(on.calls) - set(on.accepted_at) - set(run.bad) - set(on.dead)
    return f"left: {min(left)} is not handled after the outage" if left else None


def _late(run: BreakerRun, on: _World, off: _World) -> str | None:
    """Compare when the good messages are handled with the run without a breaker."""
    bound = MINUTE if len(run.bad) <= run.most_parked else ELEVEN
    if bound == ELEVEN and "outage" in run.bad.values():
        # The user's word that a service is down: its messages may keep all the room, for `maximum_open`; and those that
        # come later again, if it has been closed for ten minutes since a success.
        bound += run.rest["breaker"]["maximum_open"] * sum(names.startswith("b") for _, names in run.batches)
    # Each run of a slow handler may keep a round until its patience ends; or the last free worker, or the whole credit.
    consumer = run.rest["consumer"]
    at_once = min(consumer["workers"], consumer["credit"])
    free = at_once > len(run.slow) and consumer["ordering"] == "non_blocking"
    bound += (PATIENCE if free else SLOW) * sum(on.calls[name] for name in run.slow)
    for name, at in off.accepted_at.items():
        late = on.accepted_at.get(name, inf) - at
        if late > bound:
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
        "until": until,
    }


def random_run(rnd: random.Random) -> BreakerRun:
    """Draw a run."""
    return _outage(rnd) if rnd.random() < 0.3 else _mixture(rnd)


def _mixture(rnd: random.Random) -> BreakerRun:
    failures, parked = rnd.randint(2, 6), rnd.choice([4, 8, 8, 16, 30])
    named = rnd.choice([("maybe",), ("outage",), ("maybe", "outage")])
    bad, batches, at, good, count = dict[str, str](), list[tuple[float, str]](), 0.0, 0, 0
    for _ in range(rnd.randint(1, 4)):
        many = rnd.randint(0, rnd.choice([3, 3, 8, 8, 30]))
        for _ in range(many):
            bad[f"b{count}"] = rnd.choice(named)
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
    rest = _rest(rnd, failures, parked, at + 3000.0)
    names = [*bad, *(f"g{n}" for n in range(good))]
    slow = frozenset(rnd.sample(names, min(len(names), rnd.choice([0, 0, 0, 1, 2]))))
    rest["until"] += len(slow) * 20_000.0
    return BreakerRun(bad, tuple(batches), None, 0.01, rest, slow=slow)


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
    if lucky is not None:
        rest["breaker"]["uncharged"] = rnd.choice([0, 5, ENOUGH, ENOUGH])
        rest["until"] = lasts + 4000.0
    return BreakerRun({}, tuple(batches), (0.0, lasts, weight), 0.01, rest, lucky)
