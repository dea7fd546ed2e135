"""Every block of code in the documentation runs, and prints the output that the page shows."""

from __future__ import annotations

import logging
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.docs.pages import PAGES, ROOT
from tests.fast_clock import FastClock, fast
from tests.matrix import some

from redelivery import registry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LATER = pytest.mark.ci("pages: each block, link and generated part")

__all__ = ["fast"]

NOT_RUN = ROOT / "tests" / "docs" / "not_run.txt"
"""Pages, each with the number of its blocks that are not run. May only shrink."""
BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^\n]*?) -->\n\s*)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
FILE = re.compile(r"(?:<!--|#) ([\w-]+\.(?:xml|toml))\b")
NUMBER = re.compile(r"\d+(?:\.\d+)?")
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
ENVIRONMENT = 2  # the README's first blocks of shell make an environment, which is there already


@dataclass
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    kind: str
    text: str
    reason: str | None
    """Reason why the block is not run, or None."""
    output: str | None = None
    """Output that the page shows, or None."""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page, each with the output that follows it."""
    found: list[Block] = []
    text = page.read_text(encoding="utf-8")
    shells = 0
    for match in BLOCK.finditer(text):
        kind, reason = match["kind"], match["reason"]
        if kind == "output":
            assert found, f"{page.name}: an output of nothing"
            found[-1].output = match["text"]
            continue
        shells += kind == "sh"
        if page.name == "README.md" and page.parent == ROOT and kind == "sh" and shells <= ENVIRONMENT:
            reason = "it makes an environment"
        line = text.count("\n", 0, match.start("text"))
        found.append(Block(page, line, kind, match["text"], reason))
    return found


def commands(block: Block) -> Iterator[list[str]]:
    """Yield the words of each `redelivery` command in a block of shell."""
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        if words[:1] == ["redelivery"]:
            yield words[1:]


def needs_a_broker(words: list[str]) -> bool:
    """True if a command would connect to a broker outside this process."""
    return words[0] not in ("policy", "demo") and not any(word.startswith("memory://") for word in words)


def write_files(page: Path, folder: Path) -> None:
    """Write the files of a page: blocks of XML or TOML whose first line is a comment with a file's name."""
    for block in ALL:
        named = FILE.match(block.text) if block.kind in ("xml", "toml") else None
        if block.page == page and named is not None:
            (folder / named[1]).write_text(block.text, encoding="utf-8")


ALL = [block for page in PAGES if page.exists() for block in blocks(page)]
PYTHON = {page: [block for block in ALL if block.page == page and block.kind == "python"] for page in PAGES}
SPARK = {page for page in PAGES if page.parent.name == "spark"}
"""Pages whose programs need Spark and a broker: `integration/test_spark_pages.py` runs them."""
SHELL = [block for block in ALL if block.kind in ("console", "sh")]


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """Restore the logging that the command line has changed."""
    loggers = [logging.getLogger(name) for name in ("redelivery", "redelivery.wire", "stomp.py", None)]
    before = [(logger, logger.level, [*logger.handlers]) for logger in loggers]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


@pytest.mark.parametrize(
    "page",
    some(
        [page for page in PAGES if PYTHON[page] and page not in SPARK],
        PAGES[:1],
        why="pages: the blocks of each",
    ),
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_python(
    page: Path,
    fast: FastClock,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """A page's blocks run in order, in one namespace, and print the output that the page shows."""
    monkeypatch.chdir(tmp_path)
    write_files(page, tmp_path)
    monkeypatch.setattr(sys, "argv", [page.name])
    monkeypatch.setattr(registry, "_registered", {**registry._registered})  # what a page registers is its own
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in PYTHON[page]:
        if block.reason is None:
            source = "\n" * block.line + block.text  # so that a traceback names the page's own line
            exec(compile(source, str(page), "exec"), namespace)
            printed = capsys.readouterr().out
            if block.output is not None:
                assert printed == block.output, str(block)


@LATER
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any("def test_" in block.text for block in PYTHON[page])],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_functions_of_pytest(page: Path, tmp_path: Path) -> None:
    """The test functions that a page shows pass, each after the page's blocks before it."""
    run = [block.text for block in PYTHON[page] if block.reason is None]
    written = tmp_path / "test_page.py"
    written.write_text("\n".join(run), encoding="utf-8")
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(written),
    ]
    ended = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert f"{sum(text.count('def test_') for text in run)} passed" in ended.stdout, ended.stdout


@LATER
@pytest.mark.parametrize("block", [block for block in ALL if block.kind in ("", "text")], ids=str)
def test_text_is_no_program(block: Block) -> None:
    """A block of Python is not shown as text: it would not be run."""
    assert not re.search(
        r"^(import \w|from \w+ import|(async )?def \w+\(|class \w+[:(]|@\w)", block.text, re.MULTILINE
    )


@LATER
@pytest.mark.parametrize("block", [block for page in sorted(SPARK) for block in PYTHON[page]], ids=str)
def test_programs_with_spark_are_python(block: Block) -> None:
    """A program of a page on Spark can be compiled, and one test runs those of its page."""
    compile(block.text, str(block), "exec")
    tests = (ROOT / "integration" / "test_spark_pages.py").read_text(encoding="utf-8")
    assert f'"{block.page.name}"' in tests


@pytest.mark.usefixtures("fast")
def test_the_log_that_the_readme_shows(caplog: pytest.LogCaptureFixture) -> None:
    """The first program logs the lines that the README shows below it, except for the ids."""
    program = PYTHON[PAGES[0]][0]
    shown = next(block for block in ALL if block.page == PAGES[0] and block.kind == "text")
    exec(compile(program.text, str(program), "exec"), {"__name__": "__main__"})
    logged = "".join(f"{record.getMessage()}\n" for record in caplog.records if record.levelname == "WARNING")
    assert UUID.sub("", logged) == UUID.sub("", shown.text)


@LATER
@pytest.mark.parametrize("block", [block for block in ALL if block.reason], ids=str)
def test_not_run(block: Block) -> None:
    """A block that is not run is skipped with its reason, which `pytest -rs` lists."""
    pytest.skip(f"{block}: {block.reason}")


@LATER
def test_blocks_that_are_not_run_are_few() -> None:
    """Each page with blocks that are not run is listed with their number; both only shrink."""
    listed = dict(line.split() for line in NOT_RUN.read_text(encoding="utf-8").splitlines())
    counts = {
        page: len(re.findall(r"^<!-- not run: ", page.read_text(encoding="utf-8"), re.MULTILINE))
        for page in PAGES
    }
    found = {page.relative_to(ROOT).as_posix(): str(count) for page, count in counts.items() if count}
    assert found == listed


@LATER
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_reasons_stand_above_blocks(page: Path) -> None:
    """A comment that says why a block is not run stands directly above that block."""
    text = page.read_text(encoding="utf-8")
    reasons = re.findall(r"^<!-- not run: ", text, re.MULTILINE)
    assert len(reasons) == len(re.findall(r"^<!-- not run: [^\n]+ -->\n\s*```", text, re.MULTILINE))


@LATER
@pytest.mark.parametrize("block", [block for block in SHELL if not block.reason], ids=str)
@pytest.mark.usefixtures("logging_as_before")
def test_shell(
    block: Block,
    fast: FastClock,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """A `redelivery` command succeeds, and prints the output that the page shows, except for numbers."""
    app = pytest.importorskip("redelivery.cli.app", reason="the command line is an extra")
    monkeypatch.chdir(tmp_path)
    write_files(block.page, tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    capfd.readouterr()
    for words in commands(block):
        if needs_a_broker(words):
            pytest.skip(f"{block}: needs a broker")
        # 3: the broker of this process has no dead letters.
        assert app.run(words) in ((0, 3) if words[0] == "dlq" else (0,)), words
    sys.stdout.flush()
    printed = capfd.readouterr().out
    if block.output is not None:
        assert NUMBER.sub("0", printed) == NUMBER.sub("0", block.output)


@LATER
def test_there_is_something_to_run() -> None:
    """The pages are found, and their fences are closed."""
    assert PYTHON[PAGES[0]], "the README shows no program"
    for page in PAGES:
        if page.exists():
            fences = re.findall(r"^```", page.read_text(encoding="utf-8"), re.MULTILINE)
            assert len(fences) % 2 == 0, page.name


@LATER
def test_the_tests_that_the_requirements_name_are_there() -> None:
    """Each of the 48 requirements names tests that exist, or a reason why there is none."""
    page = (ROOT / "docs" / "requirements.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:4] for line in page.splitlines() if line.startswith("| ") and line[2].isdigit()]
    assert [int(number) for number, _, _ in rows] == list(range(1, 49))
    for number, shown, remark in rows:
        named = re.findall(r"`([^`]+)`", shown)
        assert named or remark.strip(), f"{number}: neither a test nor a reason"
        for path, _, name in (each.partition("::") for each in named):
            assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8") or not name, f"{path}::{name}"


@LATER
def test_the_tests_that_the_invariants_of_the_spark_source_name_are_there() -> None:
    """Each invariant of the Spark source names tests that exist."""
    page = (ROOT / "docs" / "spark" / "invariants.md").read_text(encoding="utf-8")
    named = re.findall(r"`(integration/|)(test_\w+\.py)::(\w+)`", page)
    assert len(named) > 20
    for folder, file, name in named:
        path = ROOT / (folder or "tests/spark") / file
        assert f"def {name}(" in path.read_text(encoding="utf-8"), f"{file}::{name}"
