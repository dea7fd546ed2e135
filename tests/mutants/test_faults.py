"""The list of planted faults fits the code, and the runner separates killed faults from surviving ones."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from tests.mutants import trial
from tests.mutants.faults import AREAS, ROOT, Area, Fault, faults, lines_of
from tests.mutants.trial import Tree

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.ci("planted faults: each quotes the code; the runner starts pytest")


@pytest.mark.parametrize("fault", faults(), ids=lambda fault: fault.id)
def test_a_fault_fits_the_code(fault: Fault) -> None:
    """Each old text occurs exactly once in its file; with the new text the file is a different, valid module."""
    text = (ROOT / fault.file).read_text(encoding="utf-8")
    planted = fault.planted(text)
    assert planted != text
    compile(planted, fault.file, "exec", dont_inherit=True)


def test_a_fault_is_found_by_name() -> None:
    """The file of a fault is that of its function; the text is looked for there only, decorators included."""
    fault = Fault("C99", "core", "Engine.feed", "", "What it is.", ((" = 1", " = 2"),))
    assert fault.file == "client/redelivery/core/engine.py"
    text = (
        "x = 1\n\nclass Engine:\n    y = 1\n\n    @cache\n    def feed(self):\n        z = 1\n\n    a = 1\n"
    )
    first, last = lines_of(text, "Engine.feed")
    assert text[first:last] == "    @cache\n    def feed(self):\n        z = 1\n"
    assert fault.planted(text) == text.replace("z = 1", "z = 2")


@pytest.mark.parametrize(
    ("at", "text", "message"),
    [
        (
            "Engine.feed",
            "class Engine:\n    def feed(self):\n        pass\n",
            "Engine.feed .* has the old text 0 times",
        ),
        ("Engine.feed", "class Engine:\n    pass\n", "the file has no Engine.feed"),
        ("Engine.fed", "", "Engine.fed is in 0 files, not in one"),
    ],
)
def test_a_name_that_leads_nowhere_is_told(at: str, text: str, message: str) -> None:
    """A name that is nowhere, or whose code has no such text, is an error that says which."""
    fault = Fault("C99", "core", at, "", "What it is.", ((" = 1", " = 2"),))
    with pytest.raises(ValueError, match=message):
        _ = fault.file, fault.planted(text)


def test_each_fault_has_its_own_id() -> None:
    """No two faults have one id."""
    assert len({fault.id for fault in faults()}) == len(faults())


@pytest.mark.parametrize("area", AREAS)
def test_the_tests_of_an_area_are_there(area: str) -> None:
    """Each area names folders and files that exist, and no test of the house style."""
    named = [*AREAS[area].own, *AREAS[area].related]
    assert [name for name in named if not (ROOT / name).exists() or "house" in name] == []


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """Return a copy of a project with one function and one test."""
    project = tmp_path / "project"
    mutants = project / "tests" / "mutants"
    mutants.mkdir(parents=True)
    for module in ("tests/plugins.py", "tests/tiers.py", "tests/mutants/watch.py"):
        shutil.copyfile(ROOT / module, project / module)
    (project / "double.py").write_text("def double(number):\n    return number + number\n")
    (project / "test_double.py").write_text(
        "import double\n\n\ndef test_double():\n    assert double.double(3) == 6\n"
    )
    monkeypatch.setitem(AREAS, "core", Area(("test_double.py",), ()))
    return Tree(tmp_path / "copy", 60, project)


def planted(new: str) -> Fault:
    """Return a fault of that project."""
    return Fault("C99", "core", "double", "double.py", "What it is.", (("number + number", new),))


def test_a_trial(tree: Tree) -> None:
    """A fault is killed by a test that fails because of it, and survives if no test fails."""
    killed = tree.try_out(planted("number"))
    assert (killed.verdict, killed.test) == (trial.KILLED, "test_double.py::test_double")
    assert killed.tier == "quick"
    assert tree.try_out(planted("2 * number")).verdict == trial.SURVIVED


def test_a_killer_that_is_not_there(tree: Tree) -> None:
    """A run with an unknown test is none, and has its name; a recorded killer that is gone does not save a fault."""
    known, gone = "test_double.py::test_double", "test_double.py::test_gone"
    assert tree.run((known, gone)) == trial.Run(trial.NOT_FOUND, gone)
    assert tree.run((known, "test_gone.py")) == trial.Run(trial.NOT_FOUND, "test_gone.py")
    assert tree.try_out(planted("number"), gone).test == known


def test_a_trial_that_takes_too_long(tree: Tree) -> None:
    """A fault whose tests do not end within the limit is killed, with the verdict "time limit"."""
    tree._limit = 0
    assert tree.try_out(planted("number")).verdict == trial.TIME_LIMIT
