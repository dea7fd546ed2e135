"""The simulator finds the faults that it is for, and none in the correct engine."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.matrix import named, parts
from tests.simulator.__main__ import main
from tests.simulator.explore import (
    case_of,
    every_schedule,
    kind_of,
    random_case,
    replay,
    saved,
    shrunk,
    story,
    wander,
)
from tests.simulator.world import Case
from tests.tiers import amount

from redelivery.core.consumer_state import ConsumerState
from redelivery.core.known_records import KnownRecords
from redelivery.core.message_history import MessageHistory
from redelivery.core.pending_confirms import SetAsides

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from redelivery.core.delivery import Delivery, Record

SCHEDULES = amount("REDELIVERY_SCHEDULES", quick=60, ci=10_000, full=100_000, all_of=("schedules", 100_000))
SAME_ID = Case("rabbitmq-amqp", "AA'", consumers=1, workers=2)


def any_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the old rule: the id alone identifies a message."""

    def of(self: KnownRecords, key: Any, digest: bytes, *, strong: bool) -> Sequence[Record]:
        del digest, strong
        return [record for records in self._records.get(key, {}).values() for record in records]

    monkeypatch.setattr(KnownRecords, "of", of)
    monkeypatch.setattr("tests.simulator.sim_delivery.SimDelivery.digest", lambda _: b"")
    monkeypatch.setattr("tests.simulator.sim_delivery.SimDelivery.dated", True)


def never_consumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the old rule: a match does not use up the record."""
    any_digest(monkeypatch)
    monkeypatch.setattr(
        "redelivery.core.accepts_in_doubt.AcceptsInDoubt.take", lambda self, key, _: key in self
    )


def overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the old rule: the newest copy replaces the one that waits."""
    any_digest(monkeypatch)
    plain = MessageHistory.known

    def known(self: MessageHistory, delivery: Delivery, age: float) -> Record | None:
        for _, record in self._records:
            record.copy = None
        return plain(self, delivery, age)

    monkeypatch.setattr(MessageHistory, "known", known)


def found(case: Case, kind: str, most: int = 6000) -> str:
    """Return the story of the first schedule that breaks an invariant of this kind."""
    for seed in range(most):
        broken, schedule, _ = wander(case, random.Random(seed))
        if broken is not None and kind_of(broken) == kind:
            small = shrunk(case, schedule)
            assert len(small) <= len(schedule)
            return story(case, small)
    raise AssertionError(f"no {kind} in {most} schedules")


@pytest.mark.parametrize(
    ("variant", "rule", "kind"),
    [
        ("A: a prefetched message is accepted for its namesake", any_digest, "loss"),
        ("B: what was accepted once is accepted for ever", never_consumed, "loss"),
        ("C: the right copy hangs", overwritten, "stuck"),
        ("D: a failure is charged to the other", any_digest, "false dead letter"),
    ],
)
def test_the_old_rules_are_found_out(
    monkeypatch: pytest.MonkeyPatch, variant: str, rule: Callable[[pytest.MonkeyPatch], None], kind: str
) -> None:
    """Each way to lose one of two messages with one id is found, shortened, and printed."""
    rule(monkeypatch)
    told = found(SAME_ID, kind)
    assert f"==> {kind}: " in told, variant


TORN = Case(
    "artemis-stomp", "AB", outcomes=("ok", "fail", "poison"), torn=True, budget={"cut": 2}
)  # fmt: skip


def forgetting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget messages that were set aside over a lost connection."""
    plain = ConsumerState.unsettled
    monkeypatch.setattr(
        ConsumerState, "unsettled", lambda my: [each for each in plain(my) if each not in my.aside]
    )


def unbounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set aside any number of messages."""
    plain = SetAsides.__init__

    def begin(self: SetAsides, state: ConsumerState, maximum: int) -> None:
        plain(self, state, maximum + 1)

    monkeypatch.setattr(SetAsides, "__init__", begin)


@pytest.mark.parametrize(
    ("case", "rule", "kind"),
    [
        (TORN, forgetting, "aside"),
        (replace(TORN, messages="AA*", most_aside=1), unbounded, "bound"),
    ],
)
def test_faults_of_what_is_set_aside_are_found_out(
    monkeypatch: pytest.MonkeyPatch, case: Case, rule: Callable[[pytest.MonkeyPatch], None], kind: str
) -> None:
    """A message that is handled although it was set aside is found, and one more than allowed."""
    rule(monkeypatch)
    assert f"==> {kind}: " in found(case, kind)


@pytest.mark.ci("thousands of steps: 0.3 s each")
@pytest.mark.parametrize("most", [1, 100])
def test_what_cannot_be_copied_is_set_aside_in_the_end(most: int) -> None:
    """On no schedule such a message is handled again, acknowledged, or blocks the other; the bound is kept."""
    aside = 0
    for seed in range(300):
        case = replace(TORN, messages="AA*A'" if seed % 2 else "AB", most_aside=most, consumers=1 + seed % 2)
        broken, schedule, world = wander(case, random.Random(seed))
        assert broken is None, story(case, shrunk(case, schedule))
        aside += bool(world.broker.aside)
    assert aside > 50


@pytest.mark.parametrize("seeds", parts(SCHEDULES, 1000), ids=named)
def test_nothing_is_found_at_random(seeds: range) -> None:
    """No schedule of any pair, set of messages, order, ledger, crash or cut breaks an invariant."""
    for seed in seeds:
        rnd = random.Random(seed)
        case = random_case(rnd)
        broken, schedule, _ = wander(case, rnd)
        assert broken is None, story(case, shrunk(case, schedule))


def test_nothing_is_found_in_all_short_schedules() -> None:
    """Every schedule of six actions with two messages of one id ends well."""
    schedules = 0
    for schedule, broken in every_schedule(SAME_ID, 6):
        schedules += 1
        assert broken is None, story(SAME_ID, schedule)
    assert schedules > 100


def test_a_finding_is_saved_and_replayed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A finding can be printed again, also with the correct engine, where it ends well."""
    with monkeypatch.context() as patch:
        any_digest(patch)
        options = ["--profile", "rabbitmq-amqp", "--messages", "AA'", "--save", str(tmp_path)]
        assert main(options) == 1
    assert "FOUND " in capsys.readouterr().out
    (path,) = tmp_path.iterdir()
    assert main(["--replay", str(path)]) == 1
    assert "==> None" in capsys.readouterr().out


def test_a_case_is_written_down_whole() -> None:
    """The case and the schedule that are read equal those that were written."""
    rnd = random.Random(1)
    case = random_case(rnd)
    _, schedule, _ = wander(case, rnd)
    assert case_of(saved(case, schedule)) == (case, schedule)
    assert replay(*case_of(saved(case, schedule)))[0] is None


def test_the_command_ends_well(capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints how much it has seen."""
    assert main(["--schedules", "20"]) == 0
    assert main(["--depth", "3", "--profile", "artemis-stomp"]) == 0
    out = capsys.readouterr().out
    assert "20 schedules" in out
    assert out.count("failures: none") == 2
