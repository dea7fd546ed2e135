"""The second level of the simulator: whole connections over the embedded broker."""

from __future__ import annotations

import json
import logging
import random
from typing import TYPE_CHECKING

import pytest
from tests.matrix import named, parts
from tests.simulator.__main__ import main
from tests.simulator.driver_runs import driver_case_of, run_drivers, saved_drivers, wander_drivers
from tests.simulator.drivers import DriverCase, driver_case
from tests.simulator.test_simulator import any_digest
from tests.tiers import amount

from redelivery.errors import TransportError
from redelivery.session import Session
from redelivery_memory.messages import MemoryDelivery
from redelivery_memory.server import MemoryServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

    Fault = Callable[[pytest.MonkeyPatch], None]

SCHEDULES = amount("REDELIVERY_DRIVER_SCHEDULES", quick=40, ci=200, full=1000, all_of=("schedules", 400))


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Silence the log: thousands of lost connections are thousands of lines."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seeds", parts(SCHEDULES, 100), ids=named)
def test_nothing_is_found_in_whole_connections(seeds: range) -> None:
    """In cuts, lost accepts, refusals, closes, waits and two consumers nothing is lost, run twice at once, or left."""
    found = {seed: broken for seed in seeds if (broken := wander_drivers(seed).broken) is not None}
    assert found == {}


def test_the_old_rule_is_found_out_in_whole_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """If an id were proof, a message would be lost for its namesake, and the simulator finds it."""
    any_digest(monkeypatch)
    monkeypatch.setattr(MemoryDelivery, "digest", lambda _: b"")
    case = DriverCase(weak=True)
    assert any(
        (run_drivers(case, random.Random(seed)).broken or "").startswith("loss") for seed in range(200)
    )


def test_the_command_goes_through_whole_connections(capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints how many schedules it has seen."""
    assert main(["--drivers", "--schedules", "5"]) == 0
    assert "5 schedules" in capsys.readouterr().out


def test_a_finding_is_cut_down_saved_and_replayed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A finding of whole connections can be printed again, also with the correct library, where it ends well."""
    with monkeypatch.context() as patch:
        any_digest(patch)
        patch.setattr(MemoryDelivery, "digest", lambda _: b"")
        assert main(["--drivers", "--seed", "1", "--save", str(tmp_path)]) == 1
    assert "FOUND " in capsys.readouterr().out
    (path,) = tmp_path.iterdir()
    assert len(json.loads(path.read_text(encoding="utf-8"))["schedule"]) < 40
    assert main(["--replay", str(path)]) == 1
    assert "==> None" in capsys.readouterr().out


def test_a_schedule_is_the_same_when_it_is_replayed() -> None:
    """The case and the schedule that are read equal those that were written, and the run is the same."""
    run = wander_drivers(3)
    again = run_drivers(*driver_case_of(json.loads(json.dumps(saved_drivers(run)))))
    assert (again.case, again.schedule, again.seen) == (driver_case(3), run.schedule, run.seen)


def test_each_feature_is_there() -> None:
    """Sessions of both modes, listeners, ledgers and delayed copies all occur."""
    cases = [driver_case(seed) for seed in range(SCHEDULES)]
    for has in ("weak", "listener", "ledger", "scheduled"):
        assert sum(getattr(case, has) for case in cases) > SCHEDULES / 20
    for mode in ("client", "transacted"):
        assert sum(case.session == mode for case in cases) > SCHEDULES / 10


def halved(patch: pytest.MonkeyPatch) -> None:
    """Make the broker carry out the sends of a transaction that it refuses."""
    plain = MemoryServer._commit

    def commit(self: MemoryServer, link: Any, command: Any) -> Any:
        if self.faults.sends:
            for message in command.messages:
                self._take(message)
        return plain(self, link, command)

    patch.setattr(MemoryServer, "_commit", commit)


def unanswered(patch: pytest.MonkeyPatch) -> None:
    """Count a commit without an answer as done."""
    plain = Session._conclude

    def conclude(self: Session, attempt: Any, error: Any) -> None:
        plain(self, attempt, None if isinstance(error, TransportError) else error)

    patch.setattr(Session, "_conclude", conclude)


def kept_sends(patch: pytest.MonkeyPatch) -> None:
    """Keep messages sent before a rollback: the next commit sends them."""
    plain = Session._roll_back

    def roll_back(self: Session, charge: Any) -> None:
        sends = list(self._state._sends)
        plain(self, charge)
        self._state._sends.extend(sends)

    patch.setattr(Session, "_roll_back", roll_back)


def acknowledging(patch: pytest.MonkeyPatch) -> None:
    """Accept messages that are to be recovered."""
    patch.setattr(Session, "_recover", Session._acknowledge)


@pytest.mark.ci("faults planted in sessions, to test the simulator: 0.9 s")
@pytest.mark.parametrize(
    ("fault", "mode", "kind"),
    [
        (halved, "transacted", "transaction"),
        (unanswered, "transacted", "transaction"),
        (kept_sends, "transacted", "transaction"),
        (acknowledging, "client", "loss"),
    ],
)
def test_faults_of_sessions_are_found_out(
    monkeypatch: pytest.MonkeyPatch, fault: Fault, mode: str, kind: str
) -> None:
    """A transaction that is half done, and a recovered message that is accepted, are found."""
    fault(monkeypatch)
    case = DriverCase(session=mode)
    assert any((run_drivers(case, random.Random(n)).broken or "").startswith(kind) for n in range(300))
