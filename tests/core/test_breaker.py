"""The breaker: golden scenarios in virtual time, its rules one by one, and invariants under any order of results."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.breaker_world import BreakerWorld, Mail
from tests.matrix import some
from tests.tiers import amount

from redelivery.core.breaker import FORGET, OWN, PATIENCE, RESULTS, Breaker, Circuit, Weight
from redelivery.core.delivery import Delivery, Record
from redelivery.core.report import Counters
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

SCENARIOS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "breaker_scenarios.json").read_text(encoding="utf-8")
)["scenarios"]


LONG = {
    "default_mixture_90", "default_mixture_99", "default_outage_flow", "default_outage_release_counted",
    "default_thirteen_hours", "default_thirteen_hours_told", "default_two_hundred_and_fifty", "mixture_90",
    "default_thousand_bad", "default_two_thousand_bad", "one_good_in_a_thousand", "outage_default",
    "outage_default_flow", "outage_eight_minutes_8_workers", "outage_off", "stop_after_twelve_hours",
    "told_mixture_90", "told_mixture_half",
}  # fmt: skip
CASES = some(
    SCENARIOS,
    [scenario for scenario in SCENARIOS if scenario["name"] not in LONG],
    why="thousands of messages, or twelve hours: 0.2 to 2.6 s each",
)


@pytest.mark.parametrize("scenario", CASES, ids=lambda scenario: scenario["name"])
def test_a_scenario_comes_out_as_written(scenario: dict[str, Any]) -> None:
    """Calls, charges, dead letters, times and states of each golden scenario are as recorded."""
    world = BreakerWorld(scenario)
    found = world.run()
    assert {name: found[name] for name in scenario["expect"]} == scenario["expect"]
    if "log" in scenario:
        assert world.log == scenario["log"]


def test_what_is_given_back_in_order_is_handled_in_order() -> None:
    """In strict order, messages that were released while the breaker was open are handled in order of arrival."""
    scenario = next(each for each in SCENARIOS if each["name"] == "held_for_long_blocking")
    world = BreakerWorld(scenario)
    world.run()
    assert world.done == [f"m{n}" for n in range(1, 11)]


def test_messages_without_room_do_no_work_while_it_is_open() -> None:
    """Messages that a round has left, with no room to park them, are no work: a run that ends by itself ends."""
    scenario: dict[str, Any] = {
        "messages": [{"at": 0, "names": "m1..m20"}],
        "consumer": {"workers": 2, "maxParked": 6},
        "handler": [{"result": "outage"}],
        "until": 300,
    }
    world = BreakerWorld(scenario)
    world.run()
    load = world.engine.load
    assert world.engine.state.gate.circuit is not None
    assert (world.engine.state.gate.circuit.left > 0, load.full, load.running) == (True, True, 0)
    assert (load.working, load.ready()) == (0, 0)
    assert load.waiting == 20


# The circuit alone.


class Alone(Circuit):
    """Circuit of the only consumer of its source; it counts the successes, as an engine does."""

    def __init__(self, rules: Breaker) -> None:
        super().__init__(rules)
        self.counts = Counters()
        self.source.join(self.counts)

    def succeeded(self, delivery: Delivery, now: float, running: Iterable[Delivery]) -> None:
        self.counts.accepted += 1
        super().succeeded(delivery, now, running)


def circuit(**rules: Any) -> Circuit:
    return Alone(Breaker(**{"failures": 4, "messages": 2, "reopen": 2, "ramp": 3, **rules}))


def mail(name: str = "m1") -> Mail:
    found = Mail(1, name, None, redelivered=False)
    found.record = Record()
    return found


def fail(breaker: Circuit, each: Mail, now: float, weight: Weight = "maybe") -> bool:
    assert each.record is not None
    return breaker.failed(each, each.record, weight, now)


def opened(breaker: Circuit, now: float = 0.0) -> list[Mail]:
    mails = [mail(f"m{n}") for n in range(4)]
    assert [fail(breaker, each, now) for each in mails] == [False, False, False, True]
    return mails


def test_it_opens_after_a_row_of_failures_of_enough_messages() -> None:
    """The breaker opens with the last failure of the row, which is the first one spared."""
    breaker = circuit()
    opened(breaker)
    assert (breaker.state, breaker.most, breaker.spared) == ("open", 0, 1)


def test_one_message_alone_never_opens_it() -> None:
    """A message that fails alone is charged each time, however often."""
    breaker, only = circuit(), mail()
    assert not any(fail(breaker, only, float(n)) for n in range(50))


def test_a_success_ends_the_row() -> None:
    """Failures before a success do not count together with those after it."""
    breaker = circuit()
    for n in range(3):
        fail(breaker, mail(f"m{n}"), 0.0)
    breaker.succeeded(mail("other"), 1.0, [mail(f"r{n}") for n in range(0)])
    assert [fail(breaker, mail(f"n{n}"), 2.0) for n in range(4)] == [False, False, False, True]


def test_a_message_that_fails_between_successes_is_at_fault_itself() -> None:
    """A message that fails between successes of others is charged from then on, and does not count for an outage."""
    breaker, bad = circuit(), mail("bad")
    fail(breaker, bad, 0.0)
    breaker.succeeded(mail("other"), 1.0, [mail(f"r{n}") for n in range(0)])
    assert not fail(breaker, bad, 2.0)
    assert bad.record is not None
    assert bad.record.failed_at == (breaker, OWN)
    assert breaker.failures == 0
    assert not fail(breaker, bad, 3.0, "outage")


def test_a_named_failure_is_evidence_only_right_after_a_success() -> None:
    """A service may go down for good after a success: a message that failed between two is not charged for that."""
    breaker, bad = circuit(named=3), mail("bad")
    assert fail(breaker, bad, 0.0, "outage")
    breaker.succeeded(mail("other"), 1.0, ())
    assert not fail(breaker, bad, 2.0, "outage")
    assert breaker.failures == 0
    assert all(fail(breaker, bad, 3.0 + n, "outage") for n in range(3))
    assert breaker.state == "open"


def test_a_told_failure_is_spared_from_the_first() -> None:
    """A failure registered as an outage is spared while the breaker is closed; three in a row open it."""
    breaker = circuit(named=3)
    assert [fail(breaker, mail(f"m{n}"), 0.0, "outage") for n in range(3)] == [True, True, True]
    assert breaker.state == "open"


def test_an_error_about_a_value_is_charged_in_each_state() -> None:
    """Weight `own` is charged whether the breaker is closed, open, probing or in its ramp."""
    breaker = circuit()
    assert not fail(breaker, mail(), 0.0, "own")
    opened(breaker)
    assert not fail(breaker, mail(), 0.0, "own")
    probe = mail("probe")
    breaker.dispatched(probe, 2.0)
    assert not fail(breaker, probe, 2.0, "own")
    # The handler has decided: more messages may be tried at once.
    assert (breaker.state, breaker.admits(2.0)) == ("open", True)
    breaker.succeeded(mail("other"), 3.0, [mail(f"r{n}") for n in range(0)])
    assert not fail(breaker, mail(), 3.0, "own")


def test_probes_are_doubled_up_to_the_longest() -> None:
    """The time until the next probe is 1, 2, 4, 8, 10 and again 10 s."""
    breaker, now, waited = circuit(), 0.0, []
    opened(breaker)
    for _ in range(6):
        waited.append(breaker.until - now)
        now = breaker.until
        assert breaker.left or not breaker.admits(now - 0.001)
        probe = mail()
        breaker.dispatched(probe, now)
        fail(breaker, probe, now)
    assert waited == [1, 2, 4, 8, 10, 10]


def test_the_ramp_lets_one_more_for_each_success() -> None:
    """After n successes n + 1 messages run at a time; the last success of the ramp closes the breaker."""
    breaker = circuit()
    opened(breaker)
    most = []
    for n in range(3):
        breaker.succeeded(mail("other"), 2.0 + n, [mail(f"r{n}") for n in range(0)])
        most.append((breaker.state, breaker.most))
    assert most == [("ramp", 2), ("ramp", 3), ("closed", float("inf"))]


def test_failures_in_the_ramp_open_it_again() -> None:
    """A few failures in the ramp open the breaker, with the first delay; one less does not, at each opening."""
    breaker = circuit(reopen=2)
    opened(breaker)
    for n in range(3):
        breaker.succeeded(mail("other"), 2.0 + n, ())
        assert fail(breaker, mail("a"), 2.0 + n)
        assert breaker.state == "ramp"
        assert fail(breaker, mail("b"), 2.0 + n)
        assert (breaker.state, breaker.until) == ("open", 3.0 + n)


def tried(breaker: Circuit, now: float, most: int = 10_000) -> int:
    """Dispatch as many as the breaker admits at once; all of them fail. Return their number."""
    mails = [mail(f"t{n}") for n in range(most)]
    taken = 0
    while taken < most and breaker.admits(now):
        breaker.dispatched(mails[taken], now)
        taken += 1
    for each in mails[:taken]:
        fail(breaker, each, now)
    return taken


def test_rounds_grow() -> None:
    """A round tries 1, 4, 16, 64, 256 messages that were not yet tried, and a thousand are passed within a minute."""
    breaker = circuit()
    rounds: list[int] = []
    opened(breaker)
    while sum(rounds) < 1000:
        now = breaker.until
        rounds.append(tried(breaker, now))
        assert not breaker.admits(now)
    assert rounds == [1, 4, 16, 64, 256, 1024]
    assert now == 35.0


def decided(breaker: Circuit, now: float, most: int = 10_000) -> int:
    """Dispatch as many as the breaker admits at once, not only untried ones; their handlers decide. Return how many."""
    mails = [mail(f"d{n}") for n in range(most)]
    taken = 0
    while taken < most and breaker.admits(now) and (breaker.retries or now >= breaker.until):
        breaker.dispatched(mails[taken], now)
        taken += 1
    for each in mails[:taken]:
        breaker.decided(each, now, waits=False)
    return taken


def test_rounds_of_decisions_follow_at_once_and_grow() -> None:
    """Tries that are discarded delay no round, and the next one may try more messages that were tried before."""
    breaker = circuit()
    opened(breaker)
    now = breaker.until
    assert [decided(breaker, now) for _ in range(4)] == [1, 4, 16, 64]
    # One failure: the outage lasts. One message is tried again, and more untried ones.
    bad, other = mail("bad"), mail("other")
    for each in (bad, other):
        breaker.dispatched(each, now)
    assert breaker.retries == 254
    assert fail(breaker, bad, now)
    assert breaker.retries == 0
    breaker.decided(other, now, waits=False)
    assert breaker.until == now + 2
    assert decided(breaker, breaker.until) == 1
    assert breaker.next_tries == 4**6


def test_a_round_with_a_failure_waits_also_if_a_decision_ends_it() -> None:
    """The next round counts from the last failure of this one."""
    breaker = circuit()
    opened(breaker)
    tried(breaker, breaker.until)
    now = breaker.until
    first, second = mail("m"), mail("d")
    for each in (first, second):
        breaker.dispatched(each, now)
    fail(breaker, first, now)
    breaker.decided(second, now + 1, waits=False)
    assert (breaker.state, breaker.until) == ("open", now + 4)


def test_a_decision_is_a_step_of_the_ramp() -> None:
    """A message that is discarded in the ramp lets one more run; the breaker closes."""
    breaker = circuit(ramp=3)
    opened(breaker)
    breaker.succeeded(mail("good"), 1.0, ())
    breaker.decided(mail("d"), 2.0, waits=False)
    assert (breaker.state, breaker.most) == ("ramp", 3)
    breaker.decided(mail("d"), 3.0, waits=False)
    assert breaker.state == "closed"


def test_a_decision_is_no_success() -> None:
    """A message that fails before and after another is discarded is spared: that proves nothing against it."""
    breaker, bad = circuit(uncharged=0), mail("bad")
    opened(breaker)
    assert fail(breaker, bad, 1.0)
    breaker.decided(mail("d"), 2.0, waits=False)
    assert (breaker.state, fail(breaker, bad, 3.0)) == ("open", True)


def test_ten_minutes_of_decisions_end_an_opening() -> None:
    """When nothing has failed for ten minutes, the next decision closes the breaker."""
    breaker = circuit(maximum_open=None, named=1)
    fail(breaker, mail("n"), 0.0, "outage")
    fail(breaker, mail("n"), 100.0, "outage")
    breaker.decided(mail("d"), 100.0 + FORGET, waits=False)
    assert breaker.tries
    breaker.decided(mail("d"), 100.1 + FORGET, waits=False)
    assert breaker.state == "closed"


def test_a_delayed_copy_is_no_other_message() -> None:
    """A copy notes when its original failed last: in the same row of failures both count as one message."""
    breaker = circuit(failures=8, messages=2)
    assert not any(fail(breaker, copy_of(mail("m"), failed=1.0 + n), 2.0 + n) for n in range(50))
    # Of an earlier row: it has not failed in this one.
    breaker = circuit(failures=2, messages=2)
    assert not fail(breaker, mail("m"), 100.0)
    assert fail(breaker, copy_of(mail("n"), failed=50.0), 101.0)


def copy_of(each: Mail, failed: float) -> Mail:
    """Return a delivery as the copy of one that failed then."""
    assert each.record is not None
    each.record.last_failure = failed
    return each


def test_what_a_round_leaves_is_for_messages_that_come() -> None:
    """A round without enough untried messages lets those try that come before the next round."""
    breaker = circuit()
    opened(breaker)
    for _ in range(3):
        tried(breaker, breaker.until)
    assert tried(breaker, breaker.until, most=3) == 3
    assert (breaker.state, breaker.left) == ("open", 61)
    late = mail("late")
    now = breaker.until - 5
    assert breaker.admits(now)
    breaker.dispatched(late, now)
    assert (breaker.state, breaker.left, breaker.until) == ("open", 60, now + 5)
    assert fail(breaker, late, now)
    assert (breaker.state, breaker.until) == ("open", now + 5)


def test_the_size_of_rounds_is_kept_when_it_opens_again() -> None:
    """After a success and new failures the next round is as large as it would have been."""
    breaker = circuit(reopen=1)
    opened(breaker)
    for _ in range(3):
        tried(breaker, breaker.until)
    breaker.succeeded(mail("other"), 20.0, ())
    fail(breaker, mail("bad"), 20.0)
    assert breaker.until == 21.0
    assert tried(breaker, 21.0) == 64


def test_an_unnamed_failure_beside_successes_is_charged_while_it_is_open() -> None:
    """A message that fails, and fails again although another one succeeded in the round, is charged."""
    breaker, bad = circuit(), mail("bad")
    opened(breaker)
    breaker.dispatched(bad, 1.0)
    assert fail(breaker, bad, 1.0)
    breaker.dispatched(mail("good"), 3.0)
    breaker.succeeded(mail("good"), 3.0, ())
    assert not fail(breaker, bad, 4.0)
    # No other success since: no evidence.
    assert fail(breaker, bad, 5.0)


def test_an_outage_that_is_proven_charges_nobody_for_it() -> None:
    """A message that failed in the outage succeeds: then the failures of others in it are no evidence."""
    breaker, bad = circuit(), mail("bad")
    first, *_ = opened(breaker)
    breaker.dispatched(bad, 1.0)
    fail(breaker, bad, 1.0)
    breaker.succeeded(first, 3.0, ())
    assert fail(breaker, bad, 4.0)


@pytest.mark.parametrize("most", [0, 1, 20])
def test_named_failures_beside_successes_are_bounded(most: int) -> None:
    """After another message has succeeded, so many named failures of a message are spared as the rules say."""
    breaker, bad = circuit(uncharged=most, ramp=1000, named=1), mail("bad")
    assert fail(breaker, bad, 0.0, "outage")
    # Nothing has succeeded: the time alone is the bound.
    assert all(fail(breaker, bad, 1.0 + n, "outage") for n in range(50))
    spared = 0
    for n in range(50):
        breaker.succeeded(mail(f"g{n}"), 100.0 + n, ())
        spared += fail(breaker, bad, 100.5 + n, "outage")
    assert spared == most


def test_a_message_that_is_spared_beside_successes_waits_longer_and_longer() -> None:
    """A message with a named exception waits 1 s to 5 minutes beside successes: twenty tries outlive an hour."""
    breaker, record = circuit(), Record()
    waits = []
    for record.uncharged in range(20):
        waits.append(breaker.pause(record, named=True))
    assert waits[:10] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    assert sum(waits) > 3600
    # Unnamed ones are tried until they are charged: others may wait for their room.
    assert breaker.pause(record, named=False) == 10


def test_openings_are_one_until_most_results_are_successes() -> None:
    """Unnamed failures charge after the longest time since the first opening, and do not open it meanwhile."""
    breaker = circuit(maximum_unnamed=60, ramp=1, reopen=1)
    opened(breaker)
    for n in range(5):
        breaker.succeeded(mail("other"), 10.0 * n + 2, ())
        assert breaker.state == "closed"
        opened(breaker, 10.0 * n + 3)
    assert not fail(breaker, mail("late"), 60.0)
    assert (breaker.state, breaker.charging) == ("closed", True)
    breaker.succeeded(mail("other"), 61.0, ())
    assert not breaker.charging
    assert not any(fail(breaker, mail(f"x{n}"), 62.0) for n in range(400))
    for _ in range(RESULTS // 2):
        breaker.succeeded(mail("other"), 63.0, ())
    assert breaker.alert
    assert not any(fail(breaker, mail(f"y{n}"), 64.0) for n in range(4))
    for _ in range(RESULTS // 2 + 1):
        breaker.succeeded(mail("other"), 65.0, ())
    opened(breaker, 66.0)
    assert not breaker.over(66.0 + 59)


def test_named_failures_open_it_after_the_unnamed_end() -> None:
    """After the end by unnamed failures, named ones open it once they are most, and are spared; 12 hours are left."""
    breaker = circuit(maximum_unnamed=60, named=3)
    opened(breaker)
    fail(breaker, mail("late"), 60.0)
    assert all(fail(breaker, mail(f"n{n}"), 61.0, "outage") for n in range(5))
    assert not breaker.tries
    assert fail(breaker, mail("n5"), 61.0, "outage")
    assert breaker.tries
    assert fail(breaker, mail("n"), 3600.0, "outage")


def test_a_few_named_failures_among_unnamed_ones_do_not_open_it_after_the_longest_time() -> None:
    """While unnamed failures do not open it, a few bad messages with a named exception among them do not, either."""
    breaker = circuit(maximum_unnamed=60, maximum_open=600, named=3)
    opened(breaker)
    fail(breaker, mail("late"), 60.0)
    for n in range(10):
        assert all(fail(breaker, mail(f"n{k}"), 61.0 + n, "outage") for k in range(3))
        assert not any(fail(breaker, mail(f"m{n}"), 61.5 + n) for n in range(4))
    assert breaker.state == "closed"
    # They wait, and the longer time, in which nothing has succeeded, is their bound.
    assert breaker.pause(Record(), named=True) == 300
    assert not fail(breaker, mail("n"), 600.0, "outage")


def test_a_named_outage_after_one_of_twelve_hours_is_a_new_one() -> None:
    """After the longest time, a success and ten minutes without an opening begin anew: named failures are spared."""
    breaker = circuit(maximum_open=60, named=3)
    assert all(fail(breaker, mail(f"m{n}"), 0.0, "outage") for n in range(3))
    assert not fail(breaker, mail("late"), 60.0, "outage")
    assert not fail(breaker, mail("later"), 61.0 + FORGET, "outage")
    good = 62.0 + FORGET
    breaker.succeeded(mail("other"), good, ())
    assert all(fail(breaker, mail(f"n{n}"), good + 1, "outage") for n in range(3))
    assert breaker.over(good + 2)
    assert not fail(breaker, mail("bad"), good + 2, "outage")
    breaker.succeeded(mail("other"), good + 3, ())
    assert breaker.alert
    later = good + 4 + FORGET
    assert all(fail(breaker, mail(f"y{n}"), later, "outage") for n in range(3))
    assert breaker.state == "open"
    assert not breaker.over(later + 59)
    assert fail(breaker, mail("y"), later + 59, "outage")


def test_a_ramp_that_a_quiet_queue_never_ends_is_over_after_a_while() -> None:
    """When nothing has failed often for ten minutes after a success in the ramp, the next opening is a new one."""
    breaker = circuit(maximum_open=3600, named=1, reopen=2)
    assert fail(breaker, mail("m"), 0.0, "outage")
    breaker.succeeded(mail("m"), 300.0, ())
    assert breaker.state == "ramp"
    assert fail(breaker, mail("n"), 300.0 + FORGET, "outage")
    assert breaker.state == "ramp"
    later = 300.5 + FORGET
    assert fail(breaker, mail("y"), later, "outage")
    assert breaker.tries
    assert fail(breaker, mail("y"), later + 3599, "outage")


def test_an_opening_after_a_while_is_a_new_one() -> None:
    """When it has been closed for ten minutes, its time counts anew, and so do the rounds."""
    breaker = circuit(maximum_unnamed=60, ramp=1)
    opened(breaker)
    for _ in range(3):
        tried(breaker, breaker.until)
    breaker.succeeded(mail("other"), 20.0, ())
    opened(breaker, 21.0 + FORGET)
    assert not breaker.over(21.0 + FORGET + 59)
    assert tried(breaker, breaker.until) == 1


def test_a_hung_probe_makes_room_after_a_minute() -> None:
    """A probe whose handler never ends does not delay the next probe for ever."""
    breaker = circuit()
    opened(breaker)
    breaker.dispatched(mail("hung"), 1.0)
    assert not breaker.admits(1.0 + PATIENCE - 1)
    assert breaker.admits(1.0 + PATIENCE)


def test_rounds_grow_when_tries_fail_after_more_than_a_minute() -> None:
    """Handlers that fail by a long time-out are passed in growing rounds, too; one that hangs keeps rounds small."""
    breaker = circuit()
    opened(breaker)
    tries = [mail(f"t{n}") for n in range(3)]
    for n, each in enumerate(tries):
        breaker.dispatched(each, 1.0 + n * PATIENCE)
    assert fail(breaker, tries[0], 91.0)
    assert breaker.next_tries == 1
    assert fail(breaker, tries[1], 151.0)
    breaker.dispatched(mail("t3"), 1.0 + 3 * PATIENCE)
    assert breaker.left == 3


def test_hung_handlers_do_not_stop_the_ramp() -> None:
    """Handlers that never end allow one more dispatch each minute in the ramp."""
    breaker = circuit()
    opened(breaker)
    breaker.succeeded(mail("other"), 2.0, [mail(f"r{n}") for n in range(5)])
    assert breaker.most == 7
    assert not breaker.admits(2.0 + PATIENCE - 1)
    assert breaker.admits(2.0 + PATIENCE)
    breaker.dispatched(mail(), 2.0 + PATIENCE)
    assert breaker.most == 8
    assert not breaker.admits(2.0 + PATIENCE)


def test_a_blocking_consumer_opens_only_by_told_failures() -> None:
    """In strict order only the head can be tried: failures not registered as outages are charged in every state."""
    breaker = Circuit(Breaker(failures=4, messages=1, named=2), blocking=True)
    assert not any(fail(breaker, mail(), 0.0) for _ in range(9))
    assert [fail(breaker, mail(), 1.0, "outage") for _ in range(2)] == [True, True]
    assert breaker.state == "open"
    assert not fail(breaker, mail(), 2.0)


def test_probes_of_several_processes_spread() -> None:
    """With a random source the time until a probe varies by a tenth in both directions."""

    class Most:
        def random(self) -> float:
            return 1.0

    breaker = Circuit(Breaker(failures=4, messages=2), random=Most())  # type: ignore[arg-type]
    opened(breaker)
    assert breaker.until == pytest.approx(1.1)


def test_after_the_longest_time_open_failures_are_charged_until_a_success() -> None:
    """With `charge`, the breaker closes after its longest time, and charges all failures until a success."""
    breaker = circuit(maximum_open=60, named=1)
    fail(breaker, mail("first"), 0.0, "outage")
    assert not fail(breaker, mail("late"), 60.0, "outage")
    assert (breaker.state, breaker.charging) == ("closed", True)
    assert not any(fail(breaker, mail(f"x{n}"), 61.0, "outage") for n in range(20))
    breaker.succeeded(mail("other"), 62.0, ())
    assert not breaker.charging
    assert fail(breaker, mail("y"), 63.0, "outage")


def test_the_longest_time_counts_from_the_first_opening() -> None:
    """A success does not start the longest time again, if the breaker opens again before it was closed."""
    breaker = circuit(maximum_open=60)
    opened(breaker)
    breaker.succeeded(mail("other"), 50.0, ())
    for n in range(2):
        fail(breaker, mail(f"n{n}"), 51.0)
    assert breaker.state == "open"
    assert not breaker.over(59.0)
    assert breaker.over(60.0)


def test_a_named_failure_makes_the_longer_time_count() -> None:
    """If most failures are named, it is an outage of a service; unnamed ones are charged after their time."""
    breaker = circuit(maximum_unnamed=60, maximum_open=600)
    opened(breaker)
    assert all(fail(breaker, mail(f"n{n}"), 1.0, "outage") for n in range(6))
    assert not fail(breaker, mail("m"), 61.0)
    assert fail(breaker, mail("n"), 62.0, "outage")
    assert breaker.tries
    assert not fail(breaker, mail("n"), 600.0, "outage")
    assert breaker.state == "closed"


@pytest.mark.parametrize("many", [1, 3])
def test_a_few_named_failures_do_not_make_the_longer_time_count(many: int) -> None:
    """Among as many unnamed failures, named ones are spared, but the breaker closes after the shorter time."""
    breaker = circuit(maximum_unnamed=60, maximum_open=3600)
    opened(breaker)
    assert all(fail(breaker, mail(f"n{n}"), 1.0, "outage") for n in range(many))
    assert fail(breaker, mail("n"), 60.0, "outage")
    assert (breaker.state, breaker.charging) == ("closed", True)
    assert not fail(breaker, mail("m"), 61.0)
    assert fail(breaker, mail("n"), 62.0, "outage")


@pytest.mark.parametrize("waits", [False, True])
def test_what_waits_for_its_own_sake_is_no_outage_of_a_service(*, waits: bool) -> None:
    """Deferred messages and value errors take room as unnamed failures do; what is discarded takes none."""
    breaker = circuit(maximum_unnamed=60, maximum_open=3600, named=1)
    assert all(fail(breaker, mail(f"n{n}"), 1.0, "outage") for n in range(3))
    for n in range(4):
        breaker.decided(mail(f"d{n}"), 2.0, waits=waits)
    assert fail(breaker, mail("n"), 61.0, "outage")
    assert breaker.tries != waits


def test_named_failures_do_not_make_the_longer_time_count_for_ever() -> None:
    """Ten minutes after the last named failure the time of the unnamed ones counts again, and the breaker closes."""
    breaker = circuit(maximum_unnamed=60, maximum_open=3600, named=1)
    opened(breaker)
    assert all(fail(breaker, mail(f"n{n}"), 1.0, "outage") for n in range(9))
    assert not fail(breaker, mail("m"), FORGET, "maybe")
    assert breaker.tries
    assert not fail(breaker, mail("m"), 1.0 + FORGET, "maybe")
    assert (breaker.state, breaker.charging) == ("closed", True)
    assert fail(breaker, mail("n"), 2.0 + FORGET, "outage")


def test_it_stops_only_if_nothing_has_succeeded() -> None:
    """With `stop`, an opening in which messages have succeeded ends by charging, not by stopping the consumer."""
    breaker = circuit(maximum_unnamed=60, at_maximum="stop", reopen=1)
    opened(breaker)
    assert breaker.stops
    breaker.succeeded(mail("other"), 2.0, ())
    fail(breaker, mail("bad"), 3.0)
    assert not breaker.stops
    assert not fail(breaker, mail("late"), 61.0)
    assert breaker.state == "closed"


ANY = st.lists(
    st.tuples(
        st.sampled_from(["success", "maybe", "outage", "own", "ended", "go", "lost"]),
        st.integers(0, 5),
        st.floats(0.0, 30.0),
    ),
    max_size=120,
)


@settings(max_examples=amount(quick=30, ci=100, full=300))
@given(ANY, st.booleans())
def test_no_order_of_results_stops_it_for_ever(steps: list[tuple[str, int, float]], blocking: bool) -> None:
    """After any order of results, one message may be dispatched within a minute; a value's error is never spared."""
    breaker = Circuit(
        Breaker(failures=3, messages=2, named=2, reopen=2, ramp=2, maximum_open=300), blocking=blocking
    )
    mails, now = [mail(f"m{n}") for n in range(6)], 0.0
    for what, which, passed in steps:
        now += passed
        each = mails[which]
        match what:
            case "success":
                breaker.succeeded(mail("other"), now, [mail(f"r{n}") for n in range(which)])
            case "ended":
                breaker.ended(each)
            case "lost":
                breaker.lost()
            case "go":
                if breaker.state != "closed" and breaker.admits(now):
                    breaker.dispatched(each, now)
            case _:
                spared = fail(breaker, each, now, what)  # type: ignore[arg-type]
                assert not (spared and what == "own")
                assert not (spared and breaker.charging)
                assert not (spared and blocking and what == "maybe")
        assert breaker.most >= 1 or breaker.admits(now + PATIENCE)
        assert breaker.alert or breaker.state == "closed"


# Values in Python.


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ({"failures": -1}, "Breaker.failures must be a whole number from 0"),
        ({"failures": True}, "Breaker.failures must be a whole number"),
        ({"messages": 0}, "Breaker.messages must be a whole number from 1"),
        ({"named": 2.5}, "Breaker.named must be a whole number"),
        ({"probe": 0}, "Breaker.probe must be more than 0 seconds"),
        ({"maximum_probe": "10"}, "Breaker.maximum_probe must be a number of seconds"),
        ({"maximum_open": 0}, "Breaker.maximum_open must be more than 0 seconds"),
        ({"maximum_unnamed": 0}, "Breaker.maximum_unnamed must be more than 0 seconds"),
        ({"uncharged": -1}, "Breaker.uncharged must be a whole number from 0"),
        ({"at_maximum": "stopp"}, "did you mean 'stop'"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(rules: dict[str, Any], text: str) -> None:
    """Each field of `Breaker` is checked by name when it is created."""
    with pytest.raises(ConfigurationError, match=text.replace("(", r"\(")):
        Breaker(**rules)


def test_times_may_be_timedeltas() -> None:
    """A `timedelta` is read back as seconds."""
    made = Breaker(probe=timedelta(seconds=2), maximum_open=timedelta(hours=1))
    assert (made.probe, made.maximum_open) == (2.0, 3600.0)


def test_the_defaults_are_as_documented() -> None:
    """The defaults are 200 failures of 100 messages, 3 registered ones, 10 minutes and 12 hours, then charged."""
    made = Breaker()
    assert (made.failures, made.messages, made.named, made.uncharged) == (200, 100, 3, 20)
    assert (made.maximum_unnamed, made.maximum_open, made.at_maximum) == (600.0, 43200.0, "charge")
    assert (made.probe, made.maximum_probe, made.ramp, made.reopen) == (1.0, 10.0, 8, 3)


@pytest.mark.parametrize(("failures", "messages"), [(0, 1), (1, 1), (4, 2), (5, 3), (200, 100)])
def test_half_as_many_messages_are_enough(failures: int, messages: int) -> None:
    """Without a number of its own, the least number of messages is half of the failures."""
    assert Breaker(failures=failures).messages == messages
