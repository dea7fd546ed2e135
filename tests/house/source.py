"""The code for the checks of this folder: files, syntax trees, and imports with the time at which they happen."""

from __future__ import annotations

import ast
import functools
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

__all__ = [
    "ADAPTERS",
    "ALL_ROOTS",
    "ROOT",
    "SOURCE_ROOTS",
    "Function",
    "Import",
    "circles",
    "compared",
    "functions",
    "graph",
    "imports_in",
    "imports_of",
    "module_of",
    "modules",
    "name_of",
    "nodes",
    "place_of",
    "shown",
    "sources",
    "statements",
    "text",
    "tree",
]

ROOT = Path(__file__).parents[2]
SOURCE_ROOTS = ("client", "adapters")
ALL_ROOTS = (*SOURCE_ROOTS, "tests", "integration", "examples", "benchmarks")
ADAPTERS = {path.name for path in (ROOT / "adapters").iterdir() if (path / "__init__.py").exists()}

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Import(NamedTuple):
    """One import of a module: `when` is load, lazy (inside a function) or typing (for the type checker only)."""

    name: str
    when: str
    line: int


@functools.cache
def _files(folder: str) -> tuple[Path, ...]:
    return tuple(path for path in sorted((ROOT / folder).rglob("*.py")) if path.is_file())


def sources(*folders: str) -> list[Path]:
    """Return the Python files below folders of the repository, sorted."""
    return sorted(path for folder in folders for path in _files(folder))


@functools.cache
def text(path: Path) -> str:
    """Return the text of a file."""
    return path.read_text(encoding="utf-8")


@functools.cache
def tree(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(text(path), str(path))


@functools.cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a file, cached: several checks read them."""
    return tuple(ast.walk(tree(path)))


def shown(path: Path) -> str:
    """Return the name of a file below the root of the repository."""
    return path.relative_to(ROOT).as_posix()


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements below a node, without their expressions, which is four times as fast."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            yield from statements(child)


@functools.cache
def functions(path: Path) -> tuple[Function, ...]:
    """Return the functions and methods of a file."""
    return tuple(node for node in statements(tree(path)) if isinstance(node, Function))


def name_of(node: ast.AST) -> str:
    """Return the last name of an expression such as `a.b.Name[T]`, or an empty text."""
    if isinstance(node, ast.Subscript):
        node = node.value
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def place_of(code: ast.Module, node: ast.AST) -> str:
    """Return the name of the innermost function or class around a node, or an empty text."""
    line = getattr(node, "lineno", 0)
    around = [
        each
        for each in statements(code)
        if isinstance(each, Function | ast.ClassDef) and each.lineno <= line <= (each.end_lineno or 0)
    ]
    return ".".join(each.name for each in around)


def module_of(path: Path) -> str:
    """Return the dotted name of a file of the library or of an adapter."""
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def modules() -> dict[str, Path]:
    """Return the modules of the library and of the adapters, by dotted name."""
    return {module_of(path): path for path in sources(*SOURCE_ROOTS)}


# Imports.


def imports_in(
    code: ast.Module, known: Collection[str] = (), module: str = "", *, package: bool = False
) -> list[Import]:
    """Return the imports of a tree. `known`: modules, so that `from folder import module` is an import of the module.

    A package with `__getattr__` loads the names under TYPE_CHECKING at their first use: these imports are lazy.
    """
    loads_by_name = any(
        isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in code.body
    )
    above = module.split(".") if package else module.split(".")[:-1]
    found: list[Import] = []
    for node, when in _timed(code, "load"):
        real = "lazy" if when == "typing" and loads_by_name else when
        found += [Import(name, real, node.lineno) for name in _named(node, known, above)]
    return found


def _timed(node: ast.AST, when: str) -> Iterator[tuple[ast.stmt | ast.Call, str]]:
    """Yield the imports below a node, each with the time at which it happens."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, when
        elif isinstance(child, ast.Call):
            yield child, when
            yield from _timed(child, when)
        elif (
            isinstance(child, ast.If)
            and isinstance(child.test, ast.Name)
            and child.test.id == "TYPE_CHECKING"
        ):
            yield from _timed(child, "typing")
        elif isinstance(child, Function) and when == "load":
            yield from _timed(child, "lazy")
        elif not isinstance(child, ast.expr_context | ast.operator | ast.Constant | ast.Name | ast.arguments):
            yield from _timed(child, when)


def _named(node: ast.stmt | ast.Call, known: Collection[str], above: list[str]) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            base = ".".join([*above[: len(above) - node.level + 1], *([base] if base else [])])
        inner = [f"{base}.{alias.name}" for alias in node.names]
        found = [name for name in inner if name in known]
        return found if len(found) == len(inner) else [base, *found]
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in ("import_module", "__import__"):
            return [str(node.args[0].value)]
    return []


@functools.cache
def imports_of(path: Path) -> tuple[Import, ...]:
    """Return the imports of a file."""
    inside = path.is_relative_to(ROOT / "client") or path.is_relative_to(ROOT / "adapters")
    name = module_of(path) if inside else ""
    return tuple(imports_in(tree(path), modules(), name, package=path.stem == "__init__"))


@functools.cache
def graph(*when: str) -> dict[str, set[str]]:
    """Return the modules of the library and the adapters that each one imports at those times."""
    return {
        name: {each.name for each in imports_of(path) if each.when in when and each.name in modules()}
        - {name}
        for name, path in modules().items()
    }


def circles(edges: Mapping[str, Collection[str]]) -> list[tuple[str, ...]]:
    """Return the circles of a graph: its strongly connected components of two and more, each sorted (Tarjan)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[tuple[str, ...]] = []

    def visit(name: str) -> None:
        order[name] = lowest[name] = len(order)
        stack.append(name)
        for other in edges.get(name, ()):
            if other not in order:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in stack:
                lowest[name] = min(lowest[name], order[other])
        if lowest[name] == order[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(tuple(sorted(stack[at:])))
            del stack[at:]

    for name in sorted(edges):
        if name not in order:
            visit(name)
    return sorted(found)


# Lists of exceptions.


def compared(found: Collection[str], allowed: Collection[str]) -> dict[str, list[str]]:
    """Return the findings that are not in the list of exceptions, and the exceptions without a finding."""
    forbidden, needless = sorted(set(found) - set(allowed)), sorted(set(allowed) - set(found))
    return ({"forbidden": forbidden} if forbidden else {}) | ({"needless": needless} if needless else {})
