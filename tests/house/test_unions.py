"""Each `match` on a closed union names all of its members."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from tests.house.source import ROOT, compared, modules, name_of, nodes, place_of, shown, tree

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

HOMES = {
    "Command": "client/redelivery/core/commands.py",
    "AdapterCommand": "client/redelivery/core/commands.py",
    "Event": "client/redelivery/core/events.py",
    "AdapterEvent": "client/redelivery/adapter.py",
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


def open_matches(code: ast.Module, found: Iterable[ast.AST], union: Collection[str]) -> list[str]:
    """Return the places of a `match` on members of a union without `assert_never` in its last case."""
    return [
        place_of(code, node)
        for node in found
        if isinstance(node, ast.Match) and _named(node) & set(union) and not _is_closed(node)
    ]


def _named(node: ast.Match) -> set[str]:
    patterns = [each for case in node.cases for each in ast.walk(case.pattern)]
    return {name_of(each.cls) for each in patterns if isinstance(each, ast.MatchClass)}


def _is_closed(node: ast.Match) -> bool:
    last = node.cases[-1]
    calls = [each for line in last.body for each in ast.walk(line) if isinstance(each, ast.Call)]
    return last.guard is None and any(name_of(call.func) == "assert_never" for call in calls)


def test_each_match_on_a_closed_union_ends_in_assert_never() -> None:
    """Each `match` on a union ends in `assert_never`: the type checker then finds each place without a new member."""
    union = set().union(*(members(tree(ROOT / home), name) for name, home in HOMES.items()))
    assert union > {"Accept", "Dispatch", "Arrived"}
    found = [
        f"{shown(path)} {place}"
        for path in modules().values()
        for place in open_matches(tree(path), nodes(path), union)
    ]
    assert len(found) == len(set(found))
    assert compared(found, OPEN) == {}


def test_an_open_match_is_seen() -> None:
    """A `match` without `assert_never` in its last case is found, one with it is not."""
    start = "def f(command):\n    match command:\n        case Accept(): pass\n        case _: "
    for end, expected in (("pass", ["f"]), ("assert_never(command)", [])):
        code = ast.parse(start + end)
        assert open_matches(code, ast.walk(code), {"Accept", "Stop"}) == expected
    assert members(ast.parse("Command = Accept | Stop"), "Command") == {"Accept", "Stop"}
