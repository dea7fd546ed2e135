"""The examples run unchanged, and the example of a test passes."""

from __future__ import annotations

import ast
import importlib.util
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.fast_clock import FastClock, fast

if TYPE_CHECKING:
    from types import ModuleType

pytestmark = pytest.mark.ci("pages: each block, link and generated part")

__all__ = ["fast"]

FOLDER = Path(__file__).parents[2] / "examples"
NO_MORE = (
    ", ".join(
        f"{name}=0"
        for name in [
            "discarded",
            "released",
            "stale",
            "deduplicated",
            "deferred",
            "set_aside",
            "spared",
            "running",
            "unconfirmed",
        ]
    )
    + ")"
)
PROGRAMS = {
    "first_consumer.py": [
        "42 delivery 1",
        "forty-two delivery 1",
        "43 delivery 1",
        "forty-two delivery 2",
        f"Report(accepted=2, redelivered=1, poisoned=1, {NO_MORE}",
    ],
    "orders.py": [
        "queue://orders.web: 2 bolt, delivery 1",
        f"Report(accepted=1, redelivered=3, poisoned=2, {NO_MORE}",
    ],
    "asynchronous.py": [
        "ONE",
        "TWO",
        "THREE",
        f"Report(accepted=6, redelivered=0, poisoned=0, {NO_MORE}",
    ],
    "per_destination.py": [
        "payments.card queue://payments.> [50, 100, 200]",
        "payments.cash queue://payments.cash []",
        "letters queue://> [100]",
        f"Report(accepted=0, redelivered=4, poisoned=3, {NO_MORE}",
    ],
}

SPARK = {"spark_monitor.py", "spark_stream.py", "spark_triage.py"}


def _module(name: str) -> ModuleType:
    """Import an example by its plain name, as in its own folder."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _example_tests() -> dict[str, Any]:
    """Return the fixtures and tests of `examples/test_orders.py`."""
    try:
        _module("orders")
        return {
            name: value
            for name, value in vars(_module("test_orders")).items()
            if name.startswith("test_") or name == "orders_running"
        }
    finally:
        sys.modules.pop("orders", None)
        sys.modules.pop("test_orders", None)


globals().update(_example_tests())  # collected and run here as tests of this file


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(
    name: str, fast: FastClock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An example ends on its own, with the broker in this process, and prints the expected output."""
    monkeypatch.setattr(sys, "argv", [name])
    runpy.run_path(str(FOLDER / name), run_name="__main__")
    *printed, last = capsys.readouterr().out.splitlines()
    if name == "asynchronous.py":  # its handlers overtake each other
        printed.sort(key=PROGRAMS[name].index)
    assert [*printed, last] == PROGRAMS[name]


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_takes_a_url(
    name: str, fast: FastClock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An example connects to the broker of `--url`."""
    monkeypatch.setattr(sys, "argv", [name, "--url", "memory://elsewhere?redelivery.nonsense=1"])
    with pytest.raises(ValueError, match="nonsense"):
        runpy.run_path(str(FOLDER / name), run_name="__main__")


def test_every_example_is_told_of() -> None:
    """The folder's README has a paragraph for each file, and each file is tested here or in integration/."""
    files = {path.name for path in FOLDER.glob("*.py")}
    # These need Spark: integration/ runs them.
    assert files == {*PROGRAMS, "test_orders.py", *SPARK}
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert {name for name in files if f"**[{name}]({name})**" in text} == files


def test_examples_are_short() -> None:
    """An example is short, and its docstring says what it shows."""
    for path in FOLDER.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 50, path.name
        assert ast.get_docstring(ast.parse(text))
