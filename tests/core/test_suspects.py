"""Crash suspects while the breaker is open: which messages are tried before them, and when they are requested."""

from __future__ import annotations

from tests.core.bench import CAUSE, NATIVE, Bench
from tests.core.model import WALL_OFFSET, Letter

from redelivery.core.breaker import Breaker
from redelivery.core.commands import Dispatch, LookUp, Mark
from redelivery.core.events import Alone, Deferred, Known, Wanted
from redelivery.core.ledger_entry import Entry

ONE = Breaker(failures=1, messages=1, named=1)


def test_a_crash_suspect_is_tried_when_nothing_else_is_there() -> None:
    """While the breaker is not closed, an exclusive run is requested only if no other message could be tried."""
    bench = Bench(able=NATIVE, breaker=Breaker(failures=1, messages=1, ramp=9), counted=True)
    (bad,) = bench.arrive(Letter(0))
    bench.feed(Wanted())
    bench.feed(Known(bad, None))
    bench.fail(bad)
    (suspect,) = bench.arrive(Letter(1))
    bench.now += 2
    bench.feed(Wanted())
    bench.feed(Known(suspect, Entry(suspect=True)))
    assert bench.engine.load.suspects == 0
    bench.feed(Wanted())
    bench.feed(Known(bad, Entry(count=1)))
    bench.succeed(bad)
    assert bench.engine.load.breaker_state == "ramp"
    assert bench.engine.load.suspects == 1
    assert [type(each) for each in bench.feed(Alone())][:2] == [Mark, Dispatch]


def test_a_crash_suspect_may_be_the_next_probe() -> None:
    """If only suspects are left while the breaker is open, one is tried when the next probe is due."""
    bench = Bench(able=NATIVE, breaker=ONE, counted=True)
    bad, suspect = bench.arrive(Letter(0, expires_at=bench.now + 0.5 + WALL_OFFSET), Letter(1))
    bench.feed(Wanted())
    bench.feed(Wanted())
    bench.feed(Known(suspect, Entry(suspect=True)))
    bench.feed(Known(bad, None))
    bench.fail(bad)
    assert bench.engine.load.breaker_state == "open"
    assert bench.feed(Alone()) == []
    assert bench.engine.load.next_due() == bench.now + 1
    bench.now += 1
    bench.feed(Wanted())
    # The message has expired.
    assert bad.state == "settling"
    assert bench.feed(Wanted()) == []
    assert bench.engine.load.suspects == 1
    # It waits for its turn, which wakes the worker; the breaker sets no time.
    assert bench.engine.load.next_due() is None
    assert [type(each) for each in bench.feed(Alone())][:2] == [Mark, Dispatch]


def test_a_crash_suspect_beside_a_parked_message_waits_until_that_is_due() -> None:
    """While the breaker is open and a message is parked, the worker is woken when it is due, and tries it first."""
    bench = Bench(able=NATIVE, breaker=ONE, counted=True)
    later, suspect = bench.arrive(Letter(0), Letter(1))
    bench.feed(Wanted())
    bench.feed(Known(later, None))
    bench.feed(Wanted())
    bench.feed(Known(suspect, Entry(suspect=True)))
    bench.feed(Deferred(later, 60.0, CAUSE))
    due = bench.now + 60
    (bad,) = bench.arrive(Letter(2, expires_at=bench.now + 0.5 + WALL_OFFSET))
    bench.feed(Wanted())
    bench.feed(Known(bad, None))
    bench.fail(bad)
    bench.now += 1
    bench.feed(Wanted())
    assert bad.state == "settling"
    assert bench.feed(Wanted()) == []
    assert (bench.engine.load.suspects, bench.engine.load.next_due()) == (0, due)
    bench.now = due
    assert LookUp in [type(each) for each in bench.feed(Wanted())]
    assert later.state == "running"
