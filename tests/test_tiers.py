"""Tiers, limits, progress and budgets of the tests themselves."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests import processes, processor_time, tiers
from tests.changed_kinds import FOLDERS, kinds_of
from tests.limits import seconds_of
from tests.progress import MOST, Progress, is_whole, table

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]


class Item:
    """A collected test as far as tiers look at it."""

    def __init__(self, name: str, *marks: pytest.MarkDecorator, file: str = "tests/core/test_a.py") -> None:
        """A test with these markers."""
        self.nodeid, self.path = f"{file}::{name}", Path(file)
        self._marks = {each.name: each.mark for each in marks}
        self.callspec = SimpleNamespace(marks=[])

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        """Return its marker."""
        return self._marks.get(name)


CI, FULL = pytest.mark.ci("long"), pytest.mark.full("longer")
ITEMS: list[Any] = [
    Item("quick"), Item("long", CI), Item("longest", CI, FULL),
    Item("night", FULL, file="integration/test_spark_cuts.py"),
]  # fmt: skip


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`choose(tier, kinds)`: run with this tier, and with all tests of these kinds."""

    def chosen(tier: str, kinds: str = "") -> None:
        monkeypatch.setenv(tiers.VARIABLE, tier)
        monkeypatch.setenv(tiers.ALL_OF, kinds)

    return chosen


def names(tier: str, choose: Callable[..., None], kinds: str = "") -> dict[str, str]:
    """Return what is left out, by the names of the tests."""
    choose(tier, kinds)
    return {name.partition("::")[2]: why for name, why in tiers.left_out(ITEMS).items()}


def test_a_tier_leaves_out_the_higher_ones(choose: Callable[..., None]) -> None:
    """Each test that is left out has its reason; of two markers the higher one counts."""
    assert names("quick", choose) == {
        "long": "long (ci)", "longest": "longer (full)", "night": "longer (full)"
    }  # fmt: skip
    assert names("ci", choose) == {"longest": "longer (full)", "night": "longer (full)"}
    assert names("full", choose) == {}


def test_all_of_a_kind_run(choose: Callable[..., None]) -> None:
    """`--all-of spark` takes Spark's tests of the nights, and no others."""
    assert "night" not in names("ci", choose, "site,spark")
    assert names("ci", choose, "stomp") == names("ci", choose)


def test_a_marker_without_a_reason_is_refused() -> None:
    """A marker needs one reason in words."""
    mark = pytest.mark.ci
    for wrong in (mark(), mark(1), mark(""), mark("a", "b"), mark(why="a")):
        item: Any = Item("x", wrong)
        with pytest.raises(pytest.UsageError, match="needs one reason"):
            tiers.tier_of(item)


def test_a_number_grows_with_the_tier(choose: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """A number has a value for each tier; another one when all of its kind run; the environment overrides it."""
    found = []
    for tier in tiers.TIERS:
        choose(tier)
        found.append(tiers.amount("REDELIVERY_TEST", quick=1, ci=20, full=300, all_of=("schedules", 50)))
    assert found == [1, 20, 300]
    choose("ci", "schedules")
    assert tiers.amount("REDELIVERY_TEST", quick=1, ci=20, full=300, all_of=("schedules", 50)) == 50
    assert tiers.amount("REDELIVERY_TEST", quick=1, ci=20, full=300) == 20
    monkeypatch.setenv("REDELIVERY_TEST", "7")
    assert tiers.amount("REDELIVERY_TEST", quick=1, ci=20, full=300) == 7


def test_limits_by_kind() -> None:
    """A unit test has a minute, one with brokers five, one with Spark ten."""
    files = ("tests/spark/test_a.py", "integration/test_kill.py", "integration/test_spark_killed.py")
    assert [seconds_of(ROOT / name) for name in files] == [60, 300, 600]


def test_a_budget() -> None:
    """A slow test is listed, a very slow one fails the run, and so does a tier that takes too long."""
    found = processor_time.exceeded({"a": 0.4, "b": 0.6, "c": 2.5}, 90.0)
    assert [(each.what, each.fails) for each in found] == [
        ("all quick unit tests", False), ("c", True), ("b", False)
    ]  # fmt: skip
    assert processor_time.exceeded({"a": 0.4}, 99.0) == []
    assert [each.fails for each in processor_time.exceeded({}, 101.0)] == [False]
    assert [each.fails for each in processor_time.exceeded({}, 131.0)] == [True]


def test_a_line_of_progress() -> None:
    """The line has what is done, what failed, how long the rest takes, and a test that runs for long."""
    progress = Progress(str)
    progress._all = 10
    for name in ("a", "b"):
        progress.pytest_runtest_logstart(name)
    progress.pytest_runtest_logfinish("a")
    crash = SimpleNamespace(path="/home/me/test_a.py", lineno=3, message="assert 1 == 2\n +  where 1 = a")
    progress.pytest_runtest_logreport(
        pytest.TestReport("a", ("test_a.py", 3, "a"), {}, "failed", SimpleNamespace(reprcrash=crash), "call")  # type: ignore[arg-type]
    )
    line = progress.line(time.monotonic() + 45)
    assert line.splitlines() == [
        "1 of 10 tests in 45 s, about 405 s left, 1 FAILED; for 45 s: b",
        "FAILED a - test_a.py:3: assert 1 == 2",
    ]
    assert "\n" not in progress.line(time.monotonic() + 75)


@pytest.mark.ci("pytest in a child process: a second")
def test_a_run_says_its_tier_and_ends_a_test_that_hangs(tmp_path: Path) -> None:
    """A run shows its tier, leaves out what is of a higher one, and ends a test that hangs."""
    (tmp_path / "conftest.py").write_text(
        'pytest_plugins = ["tests.tiers", "tests.limits", "tests.progress"]\n'
    )
    (tmp_path / "test_it.py").write_text(
        "import pytest, threading\n"
        "def test_a(): pass\n"
        "@pytest.mark.ci('long')\ndef test_b(): pass\n"
        "@pytest.mark.timeout(1)\ndef test_c(): threading.Event().wait()\n"
    )
    options = ("-p", "no:cacheprovider", "--tier", "quick", "--rootdir", str(tmp_path), str(tmp_path))
    command = [sys.executable, "-m", "pytest", *options]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert "tier quick: " in ended.stdout
    assert "without slow tests" in ended.stdout
    assert "1 failed, 1 passed, 1 deselected" in ended.stdout
    assert "Timeout" in ended.stdout


@pytest.mark.ci("pytest in a child process, in which a test hangs: 10 s")
@pytest.mark.parametrize("more", [(), ("-p", "no:faulthandler")])
def test_a_test_that_hangs_in_c_ends_its_process(tmp_path: Path, more: tuple[str, ...]) -> None:
    """A test that no signal ends is a failure with its stack, also in its teardown; the other tests run."""
    (tmp_path / "conftest.py").write_text(
        "from tests import limits\nlimits.GRACE = 1\n"
        'pytest_plugins = ["tests.tiers", "tests.limits", "tests.progress"]\n'
    )
    (tmp_path / "test_it.py").write_text(
        "import pytest, signal, time\n"
        "def hang():\n    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})\n    time.sleep(600)\n"
        "@pytest.mark.timeout(1)\ndef test_a(): hang()\n"
        "def test_b(): pass\n"
        "@pytest.fixture\ndef slow():\n    yield\n    hang()\n"
        "@pytest.mark.timeout(timeout=1)\ndef test_c(slow): assert False\n"
        "def test_d(): pass\n"
    )
    options = ("-n", "1", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path), *more)
    command = [sys.executable, "-m", "pytest", *options]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    for name in ("a", "c"):
        assert f"crashed while running 'test_it.py::test_{name}'" in ended.stdout
    assert "2 passed" in ended.stdout
    assert ended.stderr.count("in hang\n") == 2


def test_a_change_adds_kinds_of_tests() -> None:
    """The changed files decide which tests are taken whole; other files add nothing."""
    assert kinds_of(["adapters/redelivery_stomp/frames.py", "client/redelivery/core/engine.py", "x.py"]) == [
        "schedules", "stomp"
    ]  # fmt: skip
    assert kinds_of(["client/redelivery/testing/suite.py"]) == ["amqp", "stomp"]
    assert kinds_of(["integration/test_ten_places.py"]) == ["dead-letters"]
    assert kinds_of(["client/redelivery/cli/app.py", "tests/core/test_engine.py"]) == []
    assert all(kind in tiers.KINDS for kinds in FOLDERS.values() for kind in kinds)
    assert [name for name in FOLDERS if not [*ROOT.glob(f"{name.rstrip('/')}*")]] == []


@pytest.mark.parametrize(
    ("asked", "changes", "expected"),
    [
        (["tests"], {}, processes.UNIT),
        (["./tests/"], {}, processes.UNIT),
        (["tests", "integration"], {}, None),
        (["tests/core"], {}, None),
        (["tests"], {"numprocesses": 3}, 3),
        (["tests"], {"usepdb": True}, None),
        (["tests"], {"capture": "no"}, None),
        (["tests"], {"worker": True}, None),
    ],
)
def test_processes_of_a_run(asked: list[str], changes: dict[str, Any], expected: int | None) -> None:
    """A run of all unit tests takes two processes, but not with a debugger; a process that xdist started takes none."""
    option = SimpleNamespace(numprocesses=None, dist="no", usepdb=False, capture="fd", collectonly=False)
    vars(option).update(changes)
    config: Any = SimpleNamespace(args=asked, option=option)
    if vars(option).pop("worker", False):
        config.workerinput = {}
    processes.pytest_cmdline_main(config)
    assert option.numprocesses == expected


def test_reasons_are_counted() -> None:
    """The most frequent reasons have a line each, the others one together."""
    lines: list[str] = []
    reporter: Any = SimpleNamespace(section=lines.append, line=lines.append)
    counts = Counter({f"reason {number}": 100 - number for number in range(MOST + 2)})
    table(reporter, "left out", counts)
    assert lines[:2] == ["left out", "   100 reason 0"]
    assert lines[-1] == f"{100 - MOST + 99 - MOST:6} for 2 other reasons"
    assert len(lines) == MOST + 2


def test_a_whole_run() -> None:
    """A run of whole folders, without a choice by names, has a known length, and says what it leaves out."""
    for asked, keyword, expected in (
        (["tests"], "", True),
        (["tests/core"], "", False),
        (["tests"], "a", False),
    ):
        option = SimpleNamespace(keyword=keyword, markexpr="")
        config: Any = SimpleNamespace(args=asked, option=option)
        assert is_whole(config) is expected


def test_all_of_a_kind_run_in_the_cases_of_the_tier(choose: Callable[..., None]) -> None:
    """A case of all nights stays one, also of a kind that is taken whole."""
    item: Any = Item("case", FULL, file="integration/test_spark_cuts.py")
    item.callspec.marks = [FULL.mark]
    choose("ci", "spark")
    assert tiers.left_out([item]) == {item.nodeid: "longer (full)"}
