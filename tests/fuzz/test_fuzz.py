"""The corpus and some hundred mutations of each target find nothing; each kind of planted fault is found."""

from __future__ import annotations

import functools
import gc
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest
from tests.fuzz.__main__ import main
from tests.fuzz.campaign import Campaign
from tests.fuzz.catalogue import targets
from tests.fuzz.child import run_in_child
from tests.fuzz.inputs import CORPUS, Inputs
from tests.fuzz.target import Target
from tests.matrix import some
from tests.needs import need

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.fuzz.campaign import Outcome

SEED = 20250101
TARGETS = targets()


@pytest.fixture(scope="module", autouse=True)
def _keep() -> None:
    """Freeze the objects of earlier tests: the garbage collector runs often in these tests."""
    gc.collect()
    gc.freeze()


def quick(target: Target) -> Campaign:
    """Return the corpus of a target and its quick mutations."""
    campaign = Campaign(target, SEED, 0)
    campaign.last = len(campaign.inputs.corpus) + target.quick
    return campaign


def said(outcome: Outcome) -> list[str]:
    """Return the findings, each with its input."""
    return [f"{found.kind}: {found.what}: {found.data[:300]!r}" for found in outcome.findings.values()]


@pytest.mark.parametrize("name", [name for name, target in TARGETS.items() if not target.isolated])
def test_a_target_keeps_its_promises(name: str) -> None:
    """No input of the corpus, and none of some hundred mutations, is a finding."""
    assert said(quick(TARGETS[name]).run()) == []


@pytest.mark.ci("child processes: 0.6 s")
def test_isolated_targets_keep_their_promises() -> None:
    """In a child process, no input of a corpus, and no mutation of it, is a finding."""
    campaigns = [quick(target) for target in TARGETS.values() if target.isolated]
    outcomes = run_in_child(campaigns)
    assert [said(outcome) for outcome in outcomes] == [[] for _ in campaigns]
    assert [outcome.inputs for outcome in outcomes] == [campaign.last for campaign in campaigns]


def test_each_corpus_has_its_target() -> None:
    """Each folder of the corpus belongs to a target: none remains of a renamed one. One target needs proton."""
    folders = {path.name for path in CORPUS.iterdir() if path.is_dir()} if CORPUS.is_dir() else set[str]()
    need("proton")
    assert folders - TARGETS.keys() == set()


def test_inputs_depend_on_the_seed_alone() -> None:
    """The same seed and number make the same input, in any order; another seed makes others."""
    target = Target(name="x", check=nothing, seeds=lambda: [b"one 1", b"two 22"], dictionary=[b"<", b"999"])
    first = [Inputs(target, 7).number(number) for number in range(500)]
    again = Inputs(target, 7)
    assert [again.number(number) for number in reversed(range(500))] == first[::-1]
    assert first != [Inputs(target, 8).number(number) for number in range(500)]
    assert len(set(first)) > 400
    assert max(map(len, first)) <= target.longest


def nothing(data: bytes) -> None:
    """Return without a fault."""


def planted(kind: str, data: bytes) -> None:
    """Fail if the input has two bytes, which one token and few mutations of it have."""
    if b"<!" not in data:
        return
    match kind:
        case "exception":
            raise KeyError(data)
        case "slow":
            until = time.process_time() + 0.03
            while time.process_time() < until:
                pass
        case "memory":
            assert len(bytearray(b"x") * (24 << 20))
        case "hang":
            while True:
                pass
        case _:
            os.kill(os.getpid(), signal.SIGSEGV)


def fault(kind: str, *, isolated: bool = False) -> Target:
    """Return a target with a planted fault."""
    return Target(
        name=f"planted-{kind}", check=functools.partial(planted, kind), seeds=lambda: [b"seed"],
        dictionary=[b"<!"], isolated=isolated, seconds=0.02 if kind == "slow" else 1.0, memory_mb=12,
 patience=0.2 if kind == "hang" else 20.0,
    )  # fmt: skip


def run(target: Target, folder: Path, options: Sequence[str] = ()) -> int:
    """Run the command with one target until it has found the fault; return its exit code."""
    given = ["--inputs", "12", "--seed", "3", "--save", str(folder), *options]
    return main(given, {target.name: target})


@pytest.mark.parametrize(
    ("kind", "isolated"),
    some(
        [("exception", False), ("exception", True), ("slow", False), ("memory", False), ("crash", True)],
        [("exception", False), ("memory", False)],
        why="faults planted in a target, to test the fuzzer: 0.5 s each",
        spread=True,
    ),
)
def test_a_planted_fault_is_found(
    kind: str, isolated: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each kind of fault is found: its input is saved as found and shortened to two bytes; the exit code is 1."""
    target = fault(kind, isolated=isolated)
    assert run(target, tmp_path) == 1
    (short,) = (tmp_path / target.name).glob(f"{kind}-????????")
    assert short.read_bytes() == b"<!"
    assert b"<!" in short.with_suffix(".found").read_bytes()
    out = capsys.readouterr().out
    assert f"{target.name}: 12 inputs" in out
    assert str(short) in out


def test_memory_is_found_after_tests_that_took_more(tmp_path: Path) -> None:
    """Memory that earlier tests of the process have taken and given back does not hide what one input takes."""
    large = bytearray(b"x") * (64 << 20)
    pieces = [bytearray(64 << 10) for _ in range(300)]
    del large
    # What is left between the freed pieces keeps the allocator from giving them back by itself.
    del pieces[::2]
    assert run(fault("memory"), tmp_path) == 1


def test_a_planted_hang_is_found(tmp_path: Path) -> None:
    """An input that never ends is interrupted and is the finding; the inputs after it are tried."""
    target = fault("hang")
    outcome = Campaign(target, 3, 0)
    outcome.inputs.corpus = [b"<!", b"x"]
    outcome.last = 2
    found = outcome.run()
    assert (found.inputs, [finding.kind for finding in found.findings.values()]) == (2, ["hang"])


@pytest.fixture
def alarm() -> Iterator[None]:
    """Fail at SIGALRM, as pytest-timeout does, and have its timer run; both are as before afterwards."""

    def over(*_: object) -> None:
        pytest.fail("Timeout")

    handler = signal.signal(signal.SIGALRM, over)
    timer = signal.setitimer(signal.ITIMER_REAL, 1000)
    yield
    signal.setitimer(signal.ITIMER_REAL, *timer)
    signal.signal(signal.SIGALRM, handler)


@pytest.mark.usefixtures("alarm")
def test_the_time_limit_of_a_test_is_no_finding() -> None:
    """The time limit of a test ends it in the middle of an input; it is not taken for a fault of that input."""
    trials = signal.getsignal(signal.SIGPROF)
    target = Target(name="late", check=lambda _: signal.raise_signal(signal.SIGALRM))
    with pytest.raises(pytest.fail.Exception, match="Timeout"):
        Campaign(target, 1, 2).run()
    assert (signal.getsignal(signal.SIGPROF), signal.getitimer(signal.ITIMER_PROF)) == (trials, (0, 0))
    Campaign(Target(name="well", check=nothing), 1, 2).run()
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 0


@pytest.mark.usefixtures("alarm")
def test_the_time_limit_of_a_test_ends_a_child(tmp_path: Path) -> None:
    """The time limit of a test, while a child tries inputs, ends the child, too."""
    child = tmp_path / "child"

    def wait(_: bytes) -> None:
        child.write_text(f"{os.getpid()}\n")
        signal.pause()

    def over(*_: object) -> None:
        if child.exists() and child.read_text().endswith("\n"):
            signal.raise_signal(signal.SIGALRM)

    with pytest.raises(pytest.fail.Exception, match="Timeout"):
        run_in_child([Campaign(Target(name="waits", check=wait, isolated=True), 1, 2)], over)
    with pytest.raises(ProcessLookupError):
        os.kill(int(child.read_text()), 0)


def test_a_planted_leak_is_found() -> None:
    """Memory that inputs keep, each a little, is a finding above the target's limit."""
    kept: list[bytes] = []
    target = Target(name="leak", check=lambda data: kept.append(bytes(16384)), memory_mb=8)
    found = Campaign(target, 1, 4000).run()
    assert [(finding.kind, finding.place) for finding in found.findings.values()] == [("memory", "held")]


def test_nothing_found_is_exit_code_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a finding the exit code is 0 and no file is saved; `--list` tries no input."""
    target = Target(name="well", check=nothing)
    assert run(target, tmp_path) == 0
    assert list(tmp_path.iterdir()) == []
    assert "well: 12 inputs" in capsys.readouterr().out
    assert run(target, tmp_path, ["--list"]) == 0
    assert capsys.readouterr().out == "well\n"
