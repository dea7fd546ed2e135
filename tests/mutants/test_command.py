"""The command of the mutation study: the faults that it chooses, its results, and its exit code."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from tests.mutants import __main__ as command
from tests.mutants import arguments, recorded
from tests.mutants.faults import Fault, faults
from tests.mutants.trial import KILLED, SURVIVED, Result, Run

if TYPE_CHECKING:
    from pathlib import Path

FIRST, SECOND = faults()[:2]
PASSED = Run("passed")


def result(fault: Fault, tier: str) -> Result:
    """Return a result: killed by a test of this tier, or survived if that is empty."""
    test = f"tests/core/test_it.py::test_{tier}" if tier else ""
    return Result(fault.id, fault.area, KILLED if tier else SURVIVED, test, 1.0, tier)


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty file of results, in place of the project's."""
    path = tmp_path / "results.json"
    monkeypatch.setattr(recorded, "FILE", path)
    return path


def run(monkeypatch: pytest.MonkeyPatch, outcomes: list[Result], *more: str, sound: Run = PASSED) -> int:
    """Run the command with these outcomes of its faults, and of their tests without a fault; return the exit code."""

    class Tree:
        def __init__(self, *_: object, **__: object) -> None: ...

        def try_out(self, fault: Fault, _: str) -> Result:
            return next(each for each in outcomes if each.id == fault.id)

        def run(self, tests: list[str], **_: object) -> Run:
            assert tests == sorted({each.test for each in outcomes if each.test})
            return sound

    monkeypatch.setattr(command, "Tree", Tree)
    return command.main(["--only", ",".join(each.id for each in outcomes), *more])


def test_the_results_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The results of the project can be read, and its faults need no result."""
    monkeypatch.undo()
    assert recorded.stored()
    assert recorded.untried({}) == [fault.id for fault in faults()]


def test_results_of_removed_faults_are_not_written() -> None:
    """A result whose fault is gone is left out of the file, also one with an unknown tier."""
    gone = Result("gone", "core", KILLED, "", 1.0)
    recorded.write({"gone": gone, SECOND.id: result(SECOND, "ci"), FIRST.id: result(FIRST, "")})
    assert list(recorded.stored().values()) == [result(FIRST, ""), result(SECOND, "ci")]
    assert '"tier": ""' not in recorded.FILE.read_text(encoding="utf-8")


def test_a_killed_fault_ends_with_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If all are killed, the exit code is 0; the number is printed, and each fault that has no result yet."""
    assert run(monkeypatch, [result(FIRST, "quick")], "--save") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2] == "1 of 1 killed (100 %) by tests of the tier quick"
    assert lines[-1].startswith(f"not tried yet: {SECOND.id} ")
    assert recorded.stored() == {FIRST.id: result(FIRST, "quick")}


@pytest.mark.parametrize("test", ["tests/core/test_it.py", "tests/core/test_it.py::test_gone"])
def test_a_killer_that_kills_nothing_ends_with_2(
    test: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A killer that is not there without a fault, or fails, is named, also a file that cannot be collected."""
    killed = replace(result(FIRST, "quick"), test=test)
    assert run(monkeypatch, [killed, result(SECOND, "")], sound=Run("not found", test)) == 2
    assert f"{test}: not found without a fault" in capsys.readouterr().err


def test_a_survivor_ends_with_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A survivor without a recorded killer, or with one of a tier that has run, is named; the exit code is 1."""
    recorded.write({SECOND.id: result(SECOND, "quick")})
    assert run(monkeypatch, [result(FIRST, ""), result(SECOND, "")], "--save") == 1
    out = capsys.readouterr().out
    assert "0 of 2 killed (0 %)" in out
    assert f"survived: {FIRST.id}: {FIRST.what} No killer is recorded." in out
    assert f"survived: {SECOND.id}: {SECOND.what} Recorded killer, of the tier quick: tests/core" in out
    assert recorded.stored()[SECOND.id].verdict == SURVIVED


def test_a_survivor_that_a_higher_tier_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    """A survivor with a recorded killer of a higher tier keeps it, and is no failure; in that tier it is one."""
    recorded.write({FIRST.id: result(FIRST, "ci")})
    assert run(monkeypatch, [result(FIRST, "")], "--save") == 0
    assert recorded.stored() == {FIRST.id: result(FIRST, "ci")}
    assert run(monkeypatch, [result(FIRST, "")], "--save", "--tier", "ci") == 1
    assert recorded.stored() == {FIRST.id: result(FIRST, "")}


def test_faults_of_changed_files_and_new_faults() -> None:
    """Chosen are the faults of files that differ, and faults without a result."""
    other = next(fault for fault in faults() if fault.file != FIRST.file)
    found = [FIRST, other, faults()[-1]]
    assert arguments.of_files(found, {FIRST.file}, {FIRST.id, other.id}) == [FIRST, faults()[-1]]


def test_a_part_is_drawn_by_its_seed() -> None:
    """A part of the faults is rounded up; the same seed draws the same faults, in their order."""
    part = arguments.drawn(faults(), Fraction(1, 10), "20261231")
    assert len(part) == -(-len(faults()) // 10)
    assert part == arguments.drawn(faults(), Fraction(1, 10), "20261231")
    assert part == [fault for fault in faults() if fault in part]
    assert part != arguments.drawn(faults(), Fraction(1, 10), "20270101")
    assert len(arguments.drawn(faults()[:3], Fraction(1, 10), "0")) == 1


def test_a_number_of_faults_is_drawn() -> None:
    """`--most` draws that many, or takes all if there are fewer."""
    for most, expected in ((3, 3), (10**6, len(faults()))):
        options, files = arguments.read(["--most", str(most)])
        found, undrawn = arguments.chosen(options, files, ())
        assert len(found) == expected
        assert undrawn == len(faults()) - expected


def test_faults_that_are_not_drawn_are_counted() -> None:
    """The summary has the number of faults that fitted, and were not drawn; none if all were."""
    assert "7 more faults fitted the options" in command.summary([result(FIRST, "quick")], {}, "quick", 7)
    assert "fitted" not in command.summary([result(FIRST, "quick")], {}, "quick", 0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--only", "none"], "there is no fault none"),
        (["--fraction", "3/2"], "3/2 is no part of 1"),
        (["--fraction", "1/0"], "1/0 is no part of 1"),
        (["--most", "0"], "0 is no number of faults"),
        (["--changed", "no-such-revision"], "--changed: fatal"),
    ],
)
def test_wrong_arguments_end_with_2(given: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong argument is named, and nothing is planted."""
    with pytest.raises(SystemExit, match="2"):
        command.main(given)
    assert said in capsys.readouterr().err
