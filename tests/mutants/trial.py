"""Trials of faults, in a temporary copy of the tree: which test fails, and does it fail because of the fault?"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.mutants.faults import AREAS, ROOT

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

    from tests.mutants.faults import Fault

__all__ = ["KILLED", "SURVIVED", "TIME_LIMIT", "Result", "Run", "Tree"]

PASSED, FAILED, TIME_LIMIT, KILLED, SURVIVED = "passed", "failed", "time limit", "killed", "survived"
NOT_FOUND = "not found"
NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv*", ".*_cache", ".cache", ".hypothesis", "__pycache__", "build", "dist", "*.egg-info"
)
SHOWN = 2000  # characters of the output of a pytest that ended before the first test
UNSTABLE = 3  # most tests that are left out, one by one, because they fail together with others but not alone
NO_TESTS = 5  # exit code of pytest: all tests are of higher tiers
UNKNOWN = re.compile(r"^ERROR: (?:not found|file or directory not found): (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Result:
    """Result of one fault. `test` failed, or ran when the time was over or its process ended.

    `tier`: the tier of that test; empty: it is not known.
    """

    id: str
    area: str
    verdict: str
    test: str
    seconds: float
    tier: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the result for JSON, without a tier that is not known."""
        return {name: value for name, value in asdict(self).items() if name != "tier" or value}


class Run(NamedTuple):
    """End of a run of tests (passed, failed, time limit or not found), and its last test with the tier of that."""

    end: str
    test: str = ""
    tier: str = ""


class Tree:
    """A copy of the project, in which one fault at a time is planted."""

    def __init__(self, path: Path, limit: float, root: Path = ROOT, *, tier: str = "quick") -> None:
        """Copy the project to `path`. A run of pytest may take `limit` seconds, and has the tests of this tier."""
        self.path = path / "tree"
        self._limit = limit
        self._tier = tier
        self._watch = path / "watch"
        shutil.copytree(root, self.path, ignore=NOT_COPIED)

    @contextmanager
    def planted(self, fault: Fault) -> Generator[None]:
        """Plant the fault in the copy for the time of the block."""
        file = self.path / fault.file
        text = file.read_text(encoding="utf-8")
        try:
            self._write(file, fault.planted(text))
            yield
        finally:
            self._write(file, text)

    @staticmethod
    def _write(file: Path, text: str) -> None:
        """Write a module, and remove its compiled form, which may have the same second and the same size."""
        file.write_text(text, encoding="utf-8")
        for compiled in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
            compiled.unlink()

    def run(self, tests: Sequence[str], without: Sequence[str] = (), *, limits: float = 1) -> Run:
        """Run tests until the first failure. `limits`: the factor of the time limit.

        Raises:
            RuntimeError: pytest ended before the first test.
        """
        self._watch.write_text("", encoding="utf-8")
        command = [
            *(sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "--hypothesis-seed=0"),
            *("-p", "tests.mutants.watch", *tests, *(f"--deselect={test}" for test in without)),
        ]
        python_path = os.pathsep.join(str(self.path / each) for each in ("client", "adapters"))
        environment = {
            **os.environ,
            "PYTHONPATH": python_path,
            "MUTANTS_WATCH": str(self._watch),
            "REDELIVERY_TIER": self._tier,
            "REDELIVERY_ALL_OF": "",
        }
        with (
            (self.path.parent / "output").open("w+", encoding="utf-8") as output,
            subprocess.Popen(
                command,
                cwd=self.path,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ) as process,
        ):
            try:
                code = process.wait(limits * self._limit)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(process)
        at, _, tier = self._watch.read_text(encoding="utf-8").partition("\n")
        if code is None:
            return Run(TIME_LIMIT, at, tier)
        if code == 0 or (code == NO_TESTS and not at):
            return Run(PASSED)
        if at:
            return Run(FAILED, at, tier)
        said = (self.path.parent / "output").read_text(encoding="utf-8")
        if unknown := UNKNOWN.search(said):  # pytest has run none of the others
            return Run(NOT_FOUND, unknown[1].removeprefix(f"{self.path.resolve()}/"))
        raise RuntimeError(
            f"pytest ended with {code} before the first test: {' '.join(command)}\n{said[-SHOWN:]}"
        )

    def try_out(self, fault: Fault, known: str = "") -> Result:
        """Plant one fault and run the tests of its area, then related ones. `known`: the test to try first."""
        began = time.monotonic()
        with self.planted(fault):
            verdict, run = self._judged(fault, known)
        seconds = round(time.monotonic() - began, 1)
        return Result(fault.id, fault.area, verdict, run.test, seconds, run.tier)

    def _judged(self, fault: Fault, known: str) -> tuple[str, Run]:
        area = AREAS[fault.area]
        for tests in ((known,) if known else (), area.own, area.related):
            unstable: list[str] = []
            while tests and len(unstable) < UNSTABLE:
                run = self.run(tests, unstable)
                if run.end == PASSED or (run.end == NOT_FOUND and tests == (known,)):
                    break
                if run.end == NOT_FOUND:
                    raise RuntimeError(f"{run.test}, of the area {fault.area}, is not there")
                again = run.end if not run.test or tests == (run.test,) else self.run((run.test,)).end
                if again not in (PASSED, NOT_FOUND):
                    return (TIME_LIMIT if run.end == TIME_LIMIT == again else KILLED), run
                unstable.append(run.test)
        return SURVIVED, Run(PASSED)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the processes that a run has started and left."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
