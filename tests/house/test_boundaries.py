"""Who may import whom, how long things may be, and what the package says of itself."""

from __future__ import annotations

import ast
import functools
import importlib.util
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import redelivery

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
CORE = ROOT / "client" / "redelivery" / "core"
SOURCE_ROOTS = ("client", "adapters")
WAITING = {"asyncio", "logging", "queue", "random", "selectors", "socket", "ssl", "threading", "time"}
ADAPTERS = {path.name for path in (ROOT / "adapters").iterdir() if (path / "__init__.py").exists()}
LOWER = {"stomp": "redelivery_stomp", "proton": "redelivery_amqp"}


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py") if path.is_file())


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@functools.cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a file: several tests go through them."""
    return tuple(ast.walk(tree(path)))


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


@functools.cache
def imported(path: Path, *, lazy: bool = True) -> tuple[str, ...]:
    """Return the modules that a file imports at run time; `lazy`: also those inside functions."""
    return tuple(imports(tree(path), lazy=lazy))


def imports(node: ast.AST, *, lazy: bool) -> Iterator[str]:
    """Go through what is imported below a node."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            continue  # an expression imports nothing
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield "." * child.level + (child.module or "")
        elif _is_type_checking(child) or (
            not lazy and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        ):
            continue
        else:
            yield from imports(child, lazy=lazy)


def found(paths: list[Path], forbidden: set[str], *, lazy: bool = True) -> list[str]:
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in paths
        for name in imported(path, lazy=lazy)
        if name.partition(".")[0] in forbidden
    ]


def test_core_imports_nothing_that_waits() -> None:
    """The core reads no clock, starts no thread, opens no socket, writes no log and draws no random number."""
    assert found(sorted(CORE.rglob("*.py")), WAITING) == []


def test_core_imports_nothing_from_outside() -> None:
    """At load time the core needs the standard library, itself and the errors only."""
    for path in sorted(CORE.rglob("*.py")):
        for name in imported(path, lazy=False):
            top = name.partition(".")[0]
            inside = name.startswith("redelivery.core") or name == "redelivery.errors"
            assert inside or top in sys.stdlib_module_names, f"{path.name} imports {name}"


def test_client_never_imports_an_adapter() -> None:
    """The library finds adapters by entry point; only its testing package imports one, at first use."""
    paths = [path for path in sources("client") if "testing" not in path.parts]
    assert found(paths, ADAPTERS) == []
    testing = [path for path in sources("client") if "testing" in path.parts]
    assert found(testing, ADAPTERS, lazy=False) == []


@pytest.mark.parametrize("library", LOWER)
def test_a_protocol_library_stays_below_its_adapter(library: str) -> None:
    """Nothing but its own adapter imports a protocol's library."""
    paths = [path for path in sources(*SOURCE_ROOTS) if LOWER[library] not in path.parts]
    assert found(paths, {library}) == []


def test_adapters_do_not_import_each_other() -> None:
    """Each adapter package stands by itself, but for the thin module by which Spark finds its source."""
    for name in ADAPTERS - {"pyspark_redelivery"}:
        assert found(sources(f"adapters/{name}"), ADAPTERS - {name}) == []


def test_files_are_short() -> None:
    """No file is longer than 300 lines."""
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in sources(*SOURCE_ROOTS, "tests", "integration", "examples", "benchmarks")
    }
    assert {name: length for name, length in lengths.items() if length > 300} == {}


def test_functions_are_short() -> None:
    """No function is longer than 50 lines, its docstring included."""
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in sources(*SOURCE_ROOTS, "tests", "integration", "examples", "benchmarks")
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= 50
    ]
    assert long == []


def test_tests_do_not_sleep() -> None:
    """No test waits for real time to pass."""
    naps = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sources("tests")
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and (node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", ""))
        == "sleep"
    ]
    assert naps == []


def test_each_test_says_what_it_shows() -> None:
    """Every test has a docstring."""
    silent = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in sources("tests")
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]
    assert silent == []


def test_exports() -> None:
    """`redelivery.__all__` is sorted, each of its names is there, and what is loaded says it is of `redelivery`."""
    assert list(redelivery.__all__) == sorted(redelivery.__all__)
    for name in redelivery.__all__:
        assert getattr(redelivery, name) is not None
    public = {name for name in vars(redelivery) if not name.startswith("_")}
    modules = {name for name in public if isinstance(getattr(redelivery, name), type(sys))}
    allowed = set(redelivery.__all__) | {"annotations", "import_module", "TYPE_CHECKING", "Any"}
    assert public - modules - allowed == set()


def test_wheel_has_all_packages() -> None:
    """The wheel's packages are the package folders of the source roots, each with its typed marker."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = config["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    folders = {
        f"{folder}/{path.name}"
        for folder in SOURCE_ROOTS
        for path in (ROOT / folder).iterdir()
        if (path / "__init__.py").exists()
    }
    assert set(listed) == folders
    assert [name for name in listed if not (ROOT / name / "py.typed").exists()] == []


def test_entry_points_can_be_loaded() -> None:
    """Every adapter, script and plugin that the package names is there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [*project["entry-points"].values(), project["scripts"]]
    missing = {adapter for library, adapter in LOWER.items() if importlib.util.find_spec(library) is None}
    for target in (target for group in groups for target in group.values()):
        module, _, name = target.partition(":")
        if module in missing:
            continue
        loaded = importlib.import_module(module)
        assert not name or getattr(loaded, name) is not None
