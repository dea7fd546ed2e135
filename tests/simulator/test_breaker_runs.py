"""The breaker in random runs: no message is tried for ever, and none waits long for bad ones."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from tests.matrix import named, parts
from tests.simulator.__main__ import main
from tests.simulator.breaker_runs import broken, random_run
from tests.tiers import amount

from redelivery.core import breaker
from redelivery.core.breaker import Circuit
from redelivery.core.consumer_state import ConsumerState
from redelivery.core.source_memory import SourceMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.core.message_history import MessageHistory

RUNS = amount("REDELIVERY_BREAKER_RUNS", quick=40, ci=600, full=10_000, all_of=("schedules", 2000))
# Runs within which each planted fault must be found.
MOST = 700


@pytest.mark.parametrize("seeds", parts(RUNS, 200), ids=named)
def test_no_run_breaks_an_invariant(seeds: range) -> None:
    """Tries beside successes are bounded, good messages late by a minute or eleven at most; an outage kills none."""
    for seed in seeds:
        run = random_run(random.Random(seed))
        assert (found := broken(run)) is None, f"seed {seed}: {found}\n{run}"


def test_the_command_goes_through_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """`--breaker` prints how many runs there were, and what was found."""
    assert main(["--breaker", "--schedules", "3"]) == 0
    assert "3 runs of a breaker" in capsys.readouterr().out


def no_growth(patch: pytest.MonkeyPatch) -> None:
    """Restore the old rule: each round tries one message."""
    patch.setattr(breaker, "GROWTH", 1)


def no_bound(patch: pytest.MonkeyPatch) -> None:
    """Restore the old rule: uncharged tries beside successes have no bound."""
    patch.setattr(Circuit, "_beside_successes", lambda *_: False)


def never_over(patch: pytest.MonkeyPatch) -> None:
    """Leave it open for as long as nothing succeeds."""
    patch.setattr(Circuit, "over", lambda *_: False)


def charged_in_outages(patch: pytest.MonkeyPatch) -> None:
    """Charge what fails while it is open."""
    plain: Any = Circuit.failed
    patch.setattr(
        Circuit, "failed", lambda my, *given: plain(my, *given) and not (my.tries and my.since < given[-1])
    )


def no_pause(patch: pytest.MonkeyPatch) -> None:
    """Spend the uncharged tries beside successes at once: a named outage with a success in it outlasts them."""
    patch.setattr(Circuit, "pause", lambda my, *_, **__: my._shortest)


def each_for_itself(patch: pytest.MonkeyPatch) -> None:
    """Count only a consumer's own successes, and know no message that another one has released."""
    share = ConsumerState.share

    def alone(my: ConsumerState, history: MessageHistory) -> None:
        history.source = SourceMemory()
        share(my, history)

    patch.setattr(ConsumerState, "share", alone)


def no_ids_no_memory(patch: pytest.MonkeyPatch) -> None:
    """Forget messages without an id when they are released."""
    patch.setattr(SourceMemory, "known", lambda *_: None)


def serial(patch: pytest.MonkeyPatch) -> None:
    """Restore the old rule: a decision of the handler proves nothing, and one message is tried at a time."""
    patch.setattr(Circuit, "decided", lambda my, delivery, *_, **__: my.ended(delivery))


def one_named_is_an_outage(patch: pytest.MonkeyPatch) -> None:
    """Restore the old rule: a few named failures keep the breaker open for as long as an outage of a service."""
    patch.setattr(Circuit, "_mostly_named", lambda _: True)


def no_patience(patch: pytest.MonkeyPatch) -> None:
    """Wait for each try of a round, however long its handler takes."""
    patch.setattr(breaker, "PATIENCE", 1e9)


@pytest.mark.ci("half a minute for each fault, where its first run is another by now")
@pytest.mark.parametrize(
    ("fault", "kind", "first"),
    [
        (no_growth, "late", 86),
        (no_bound, "for ever", 2),
        (never_over, "late", 2),
        (charged_in_outages, "outage", 21),
        (no_pause, "outage", 522),
        (no_patience, "late", 65),
        (each_for_itself, "for ever", 36),
        (no_ids_no_memory, "for ever", 47),
        (serial, "left", 39),
        (one_named_is_an_outage, "late", 178),
    ],
    ids=lambda value: value.__name__ if callable(value) else str(value),
)
def test_a_planted_fault_is_found(
    monkeypatch: pytest.MonkeyPatch, fault: Callable[[pytest.MonkeyPatch], None], kind: str, first: int
) -> None:
    """Some run breaks the invariant that the fault is about. `first`: where it was found, which is looked at first."""
    fault(monkeypatch)
    found = (broken(random_run(random.Random(seed))) for seed in [*range(first, MOST), *range(first)])
    assert any(each is not None and each.startswith(kind) for each in found)
