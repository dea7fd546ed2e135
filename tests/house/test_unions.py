"""Each `match` on a closed union names all of its members."""

from __future__ import annotations

import ast
import functools
from typing import TYPE_CHECKING

import pytest
from tests.house.source import compared, modules, name_of, nodes, place_of, shown, tree

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

pytestmark = pytest.mark.ci("rules of the house: the whole code is read")

# The union, and the module that lists its members.
HOMES = {
    "Command": "redelivery.core.commands",
    "AdapterCommand": "redelivery.core.commands",
    "LedgerCommand": "redelivery.core.commands",
    "Event": "redelivery.core.events",
    "AdapterEvent": "redelivery.adapter",
}
OPEN: set[str] = set()


def members(code: ast.Module, union: str) -> set[str]:
    """Return the classes of a union, as its module lists them."""
    for node in code.body:
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(value, ast.BinOp) and target is not None and name_of(target) == union:
            return {name_of(each) for each in ast.walk(value)} - {""}
    return set()


def origins(found: Iterable[ast.AST]) -> dict[str, str]:
    """Return what the imports of a module bind, by local name: the dotted name of a module, or of a name in one."""
    bound: dict[str, str] = {}
    for node in found:
        if isinstance(node, ast.ImportFrom):
            bound |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            # `import a.b` binds `a`.
            first = {alias.name.partition(".")[0] for alias in node.names if not alias.asname}
            bound |= {name: name for name in first}
            bound |= {alias.asname: alias.name for alias in node.names if alias.asname}
    return bound


def resolved(node: ast.AST, module: str, bound: Mapping[str, str]) -> str:
    """Return the dotted name of a class that a module names as `Name`, `module.Name` or `Outer.Name`."""
    if isinstance(node, ast.Attribute):
        return f"{resolved(node.value, module, bound)}.{node.attr}"
    name = name_of(node)
    return bound.get(name, f"{module}.{name}")


@functools.cache
def home(name: str) -> str:
    """Return the dotted name of a class where it is defined, if another module imports it from there."""
    module, _, last = name.rpartition(".")
    if module not in modules():
        return name
    other = origins(nodes(modules()[module])).get(last, name)
    return name if other == name else home(other)


def open_matches(
    code: ast.Module,
    found: Iterable[ast.AST],
    union: Collection[str],
    module: str,
    at: Callable[[str], str] = home,
) -> list[str]:
    """Return the places of a `match` on members of a union, given by their dotted names, that may be left open.

    Such a `match` has no `assert_never` in its last case. `at` returns the dotted name of a class where it is defined.
    """
    found = list(found)
    bound = origins(found)
    return [
        place_of(code, node)
        for node in found
        if isinstance(node, ast.Match)
        and {at(resolved(each, module, bound)) for each in _classes(node)} & set(union)
        and not _is_closed(node)
    ]


def _classes(node: ast.Match) -> list[ast.expr]:
    patterns = [each for case in node.cases for each in ast.walk(case.pattern)]
    return [each.cls for each in patterns if isinstance(each, ast.MatchClass)]


def _is_closed(node: ast.Match) -> bool:
    last = node.cases[-1]
    calls = [each for line in last.body for each in ast.walk(line) if isinstance(each, ast.Call)]
    return last.guard is None and any(name_of(call.func) == "assert_never" for call in calls)


def closed_unions() -> set[str]:
    """Return the dotted names of all members of the closed unions."""
    return {
        home(f"{module}.{name}")
        for union, module in HOMES.items()
        for name in members(tree(modules()[module]), union)
    }


def test_each_match_on_a_closed_union_ends_in_assert_never() -> None:
    """Each `match` on a union ends in `assert_never`: the type checker then finds each place without a new member."""
    union = closed_unions()
    assert union > {f"redelivery.core.commands.{name}" for name in ("Accept", "Dispatch")}
    assert union > {"redelivery.core.events.Arrived", "redelivery.adapter.Sent"}
    found = [
        f"{shown(path)} {place}"
        for module, path in modules().items()
        for place in open_matches(tree(path), nodes(path), union, module)
    ]
    assert len(found) == len(set(found))
    assert compared(found, OPEN) == {}


def found_in(imports: str, case: str, end: str = "pass") -> list[str]:
    """Return the open matches on the closed unions in a new module of the library."""
    code = ast.parse(
        f"{imports}\ndef f(it):\n    match it:\n        case {case}: pass\n        case _: {end}\n"
    )
    return open_matches(code, ast.walk(code), closed_unions(), "redelivery.new")


def test_an_open_match_is_seen() -> None:
    """A `match` without `assert_never` in its last case is found, one with it is not."""
    imports = "from redelivery.core.commands import Accept"
    assert found_in(imports, "Accept()") == ["f"]
    assert found_in(imports, "Accept()", "assert_never(it)") == []
    assert members(ast.parse("Command = Accept | Stop"), "Command") == {"Accept", "Stop"}


@pytest.mark.parametrize(
    ("imports", "case"),
    [
        ("from redelivery.core.commands import BreakerChanged", "BreakerChanged()"),
        ("from redelivery.core.commands import BreakerChanged as Changed", "Changed()"),
        ("from redelivery.core import commands", "commands.BreakerChanged()"),
        ("import redelivery.core.commands", "redelivery.core.commands.BreakerChanged()"),
        ("import redelivery.core.commands as core", "core.BreakerChanged() | None"),
    ],
)
def test_a_member_is_recognised_by_its_module(imports: str, case: str) -> None:
    """However a module imports a member of a union, a `match` on it is found."""
    assert found_in(imports, case) == ["f"]


@pytest.mark.parametrize(
    ("imports", "case"),
    [
        ("from redelivery.events import BreakerChanged", "BreakerChanged()"),
        ("from redelivery import BreakerChanged", "BreakerChanged()"),
        ("import redelivery", "redelivery.BreakerChanged()"),
        ("class BreakerChanged: pass", "BreakerChanged()"),
    ],
)
def test_a_class_of_the_same_name_is_not_a_member(imports: str, case: str) -> None:
    """A `match` on a public event is not one on the command or event of the core that has its name."""
    assert found_in(imports, case) == []
