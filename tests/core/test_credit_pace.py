"""The credit `auto`: small for slow handlers, and as large as a fixed one for fast handlers."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.bench import Bench
from tests.core.credit_world import FLOW, WINDOW, CreditWorld
from tests.core.model import Letter
from tests.matrix import some
from tests.tiers import amount

from redelivery.core.commands import Credit
from redelivery.core.credit import CreditPace

if TYPE_CHECKING:
    from tests.core.model import Arrival

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Command

# Seconds to the broker, each way.
AWAY = (0.01, 0.05, 0.2, 0.25, 0.3, 0.5)
BOTH = pytest.mark.parametrize("able", [FLOW, WINDOW])


def looked(pace: CreditPace, *looks: tuple[float, int, int, int]) -> list[int]:
    """Return the credit after each look: the time, and settled messages, waits and ready messages by then."""
    credits_ = []
    for look in looks:
        pace.look(*look)
        credits_.append(pace.credit)
    return credits_


def test_the_first_message_begins_the_time() -> None:
    """The time starts with the first message: an hour before it, with an empty queue, does not count."""
    pace = CreditPace(6)
    assert looked(pace, (3600.0, 1, 0, 0), (3600.1, 101, 50, 0)) == [6, 100]


def test_half_a_second_of_work_where_workers_wait() -> None:
    """If workers wait, the credit grows to half a second of work in steps of four times; otherwise to a twentieth."""
    assert looked(CreditPace(6), (0.0, 0, 0, 0), (0.5, 48, 4, 0)) == [6, 24]
    assert looked(CreditPace(6), (0.0, 0, 0, 0), (1.2, 48, 4, 0)) == [6, 20]
    assert looked(CreditPace(6), (0.0, 0, 0, 0), (0.05, 48, 4, 0)) == [6, 96]
    assert looked(CreditPace(6), (0.0, 0, 0, 0), (0.5, 48, 3, 0)) == [6, 6]
    assert looked(CreditPace(6), (0.0, 0, 0, 0), (0.05, 48, 3, 0)) == [6, 48]


def test_from_2_500_a_second_on_it_is_the_most() -> None:
    """From 2,500 messages a second on the credit is the largest, 0.4 s of work, although no handler waited."""
    assert looked(CreditPace(6), (0.0, 0, 0, 0), (0.1, 249, 0, 0)) == [6, 124]
    assert looked(CreditPace(6), (0.0, 0, 0, 0), (0.1, 250, 0, 0)) == [6, 1000]


def test_less_than_double_is_not_worth_it() -> None:
    """The credit grows by less than double only in the last step, to the largest one."""
    assert looked(CreditPace(6), (0.0, 0, 0, 0), (0.22, 48, 3, 0)) == [6, 6]
    assert looked(CreditPace(6), (0.0, 0, 0, 0), (2.0, 48, 48, 0)) == [6, 12]
    assert looked(CreditPace(900), (0.0, 0, 0, 0), (0.72, 1800, 1800, 0)) == [900, 1000]


def test_a_rate_of_a_moment_says_nothing() -> None:
    """Fewer messages than eight turns, or less than a fiftieth of a second, do not change the credit."""
    assert looked(CreditPace(6), (0.0, 0, 0, 0), (0.1, 47, 47, 0), (0.019, 400, 400, 0)) == [6, 6, 6]


def test_it_shrinks_where_more_is_here_than_is_done_in_half_a_second() -> None:
    """The credit shrinks if more is here than half a second of work; not for an empty queue, or without flow."""
    for shrinks, ready, expected in ((True, 900, 6), (True, 6, 1000), (False, 900, 1000)):
        pace = CreditPace(6)
        pace.restart(shrinks=shrinks)
        assert looked(pace, (0.0, 0, 0, 0), (0.01, 256, 256, 0), (0.06, 2000, 256, 0)) == [6, 6, 1000]
        assert looked(pace, (1.2, 2010, 256, ready)) == [expected]


def test_a_new_connection_begins_small() -> None:
    """A new connection starts with a small credit, and measures from its first message."""
    pace = CreditPace(6)
    assert looked(pace, (0.0, 0, 0, 0), (0.1, 512, 0, 0)) == [6, 1000]
    pace.restart(shrinks=True)
    assert (pace.credit, pace.due_at) == (6, 1)
    assert looked(pace, (9.0, 1, 0, 0), (9.1, 101, 50, 0)) == [6, 100]


def test_an_application_that_keeps_messages_gets_more() -> None:
    """An application with half of its credit unsettled gets four times as much, up to the largest credit."""
    pace = CreditPace(16, 100)
    grown = [(pace.held(running), pace.credit) for running in (7, 8, 31, 32, 100)]
    assert grown == [(False, 16), (True, 64), (False, 64), (True, 100), (False, 100)]


@BOTH
@pytest.mark.parametrize("handler", [0.01, 0.1])
def test_slow_handlers_keep_a_small_credit(able: Capabilities, handler: float) -> None:
    """Two workers of 10 or 100 ms keep their first credit, and never wait."""
    world = CreditWorld(able, messages=2000, handler=lambda _: handler)
    world.run()
    assert len(world.done) == 2000
    assert world.most_unsettled == 6
    assert world.rate() >= 0.99 * 2 / handler


@pytest.mark.ci("a second of fast handlers, step by step: 0.5 s each")
@BOTH
@pytest.mark.parametrize(("handler", "away"), [(1e-4, 0.001), (1e-4, 0.02), (0.0005, 0.005)])
def test_fast_handlers_do_what_they_do_with_a_fixed_credit(
    able: Capabilities, handler: float, away: float
) -> None:
    """After one second the rate is that of a credit of 1,000, or of as much as the workers can use."""
    world = CreditWorld(able, messages=40_000, handler=lambda _: handler, away=away)
    world.run(20)
    ideal = min(2 / handler, 1000 / (2 * away))
    assert world.rate(after=1.0) >= 0.9 * ideal


@BOTH
def test_a_distant_broker_is_no_reason_to_wait(able: Capabilities) -> None:
    """With 10 ms of work and 100 ms of round trip, the credit becomes what the workers need, half a second at most."""
    world = CreditWorld(able, messages=2000, away=0.05)
    world.run()
    assert world.rate(after=4.0) >= 0.9 * 200
    assert world.most_unsettled <= 100


@BOTH
@pytest.mark.parametrize(
    ("away", "handler"),
    some(product(AWAY, (0.002, 0.05, 0.1)), [(0.05, 0.002), (0.25, 0.05), (0.5, 0.1)], spread=True),
)
def test_a_slow_link_does_not_keep_the_credit_small(able: Capabilities, away: float, handler: float) -> None:
    """Behind 10 to 500 ms each way, within 10 s, the rate is four fifths of that with a fixed credit of 200."""
    world = CreditWorld(able, messages=20_000, handler=lambda _: handler, away=away)
    world.run(20)
    assert world.rate(after=10.0) >= 0.8 * min(2 / handler, 200 / (2 * away))


def test_a_trickle_of_messages_is_no_slow_link() -> None:
    """A queue to which a slow producer sends has a second of work here at most, and its workers wait."""
    pace = CreditPace(6)
    assert looked(pace, *((float(second), 20 * second, 20 * second, 0) for second in range(60)))[-1] == 6
    trickle = ((60.0 + second, 1180 + 100 * second, 1180 + 100 * second, 0) for second in range(60))
    assert looked(pace, *trickle)[-1] <= 100


def test_a_doubling_that_gains_nothing_is_the_last() -> None:
    """Two turns of a trickle take as long as those of a slow link; the rate does not follow the credit, which stays."""
    pace = CreditPace(6)
    assert looked(pace, (0.0, 0, 0, 0), (1.5, 12, 12, 0), (4.0, 36, 36, 0), (6.5, 60, 60, 0)) == [
        6,
        12,
        12,
        12,
    ]
    assert looked(pace, (7.0, 65, 65, 0), (8.5, 90, 90, 0)) == [12, 24]


@BOTH
def test_a_satisfied_slow_link_keeps_its_credit(able: Capabilities) -> None:
    """A turn of a slow link, which arrives at once, is no reason to shrink: workers would wait for the next one."""
    world = CreditWorld(able, messages=2_000, handler=lambda _: 0.05, away=0.3)
    world.run(20)
    grown = world.credit
    world.run(15)
    assert world.credit >= grown


def test_handlers_that_become_slow_get_less_where_credit_flows() -> None:
    """Handlers that slow down to 10 ms first finish the present messages without new credit; then it is small."""
    world = CreditWorld(FLOW, messages=6000, handler=lambda number: 10e-6 if number < 3000 else 0.01)
    world.run(1.0)
    assert world.credit == 1000
    world.run(8.0)
    assert world.unsettled <= 110
    world.run()
    assert len(world.done) == 6000


@BOTH
def test_parked_messages_keep_no_others_out(able: Capabilities) -> None:
    """If 500 messages fail at once, all others are handled before the first of them is due."""
    world = CreditWorld(able, messages=1000, fails=frozenset(range(500)))
    world.run(50)
    assert len(world.done) == 500
    world.run()
    assert len(world.done) == 1000


@pytest.mark.parametrize("able", [FLOW, WINDOW])
def test_an_application_that_keeps_messages_gets_as_many_on_the_next_connection(able: Capabilities) -> None:
    """The credit starts small on the next connection, and grows with the messages the application has unsettled."""
    bench = Bench(able=able, credit=1000, max_parked=1000, pace=CreditPace(16))
    held_then_settled(bench, bench.commands, 200)
    bench.lose()
    held_then_settled(bench, bench.connect(), 200)


def held_then_settled(bench: Bench, granted: list[Command], number: int) -> None:
    """Take so many messages, with the credit granted meanwhile; then settle them."""
    allowed = 0 if bench.able.flow else 16
    held: list[Arrival] = []
    while len(held) < number:
        allowed += sum(each.messages for each in granted if isinstance(each, Credit))
        assert allowed, f"no message arrives with {len(held)}"
        bench.arrive(*[Letter(1000 * bench.epoch + len(held) + each) for each in range(allowed)])
        granted, allowed = bench.commands, 0
        while (delivery := bench.want()) is not None:
            held.append(delivery)
            granted += bench.commands
        granted += bench.commands
    for each in held:
        bench.succeed(each)


@settings(max_examples=amount(quick=15, ci=50, full=150), deadline=None)
@given(
    able=st.sampled_from([FLOW, WINDOW]),
    workers=st.integers(1, 5),
    seconds=st.lists(st.sampled_from([0.0, 1e-5, 1e-4, 1e-3, 0.01, 0.3]), min_size=1, max_size=4),
    away=st.sampled_from([1e-4, 1e-3, 0.02]),
    fails=st.frozensets(st.integers(0, 399), max_size=100),
    max_parked=st.sampled_from([1, 5, 160, 1000]),
)
def test_nothing_stands_still(
    able: Capabilities,
    workers: int,
    seconds: list[float],
    away: float,
    fails: frozenset[int],
    max_parked: int,
) -> None:
    """Whatever handlers take, and however many fail, every message is handled, within the broker's limit."""
    world = CreditWorld(
        able,
        messages=400,
        workers=workers,
        handler=lambda number: seconds[number * len(seconds) // 400],
        away=away,
        fails=fails,
        max_parked=max_parked,
    )
    world.run()
    assert len(world.done) == 400
    assert world.most_unsettled <= 1000 + max_parked
