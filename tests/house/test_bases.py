"""Base classes: each is used on its own, or is an interface; no subclass uses private names of its base."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.house.source import Function, compared, modules, name_of, nodes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

pytestmark = pytest.mark.ci("rules of the house: the whole code is read")

DECLARED = {"ABC", "NamedTuple", "Protocol", "TypedDict"}
"""Bases that make a class an interface."""
SUITE = "redelivery.testing.conformance."
"""Each class of this file is one topic of tests: pytest instantiates the classes that inherit from it."""
BARE: Collection[str] = ()
PRIVATE = {
    # Two halves of one class, which share state.
    "Blocking": {"_heap", "_ready"},
    "Headers": {"_head", "_read"},
    "LedgerDispatcher": {
        "_clock",
        "_driver",
        "_lock",
        "_route",
        "_throttle",
        "_until",
        "_wait",
        "_wake",
    },
    "LedgerEngine": {"_begin_poison_ack", "_condemn", "_confirms", "_expired", "_policies", "_seq"},
    "NonBlocking": {"_heap", "_ready"},
    # Its events reach the intake first, and its accepts are written like the other settlements.
    "PortDispatcher": {"_driver", "_end_with", "_lock"},
}


class Class(NamedTuple):
    """A class, and the folder that it is in."""

    node: ast.ClassDef
    package: str


def classes_in(trees: Mapping[str, Iterable[ast.AST]]) -> dict[str, Class]:
    """Return the classes of modules, by name: names are unique."""
    return {
        node.name: Class(node, module.rpartition(".")[0])
        for module, found in trees.items()
        for node in found
        if isinstance(node, ast.ClassDef)
    }


def bare_bases(trees: Mapping[str, Iterable[ast.AST]]) -> set[str]:
    """Return the bases that no code uses as a value, and that are neither interfaces nor shared by several classes.

    A base of one class that is used nowhere else is a half of that class.
    """
    classes = classes_in(trees)
    used = {name for found in trees.values() for node in found for name in values_in(node)}
    subclasses: dict[str, list[str]] = {}
    for name, (node, _) in classes.items():
        for base in node.bases:
            subclasses.setdefault(name_of(base), []).append(name)
    return {
        name
        for name, (node, _) in classes.items()
        if name in subclasses
        and name not in used
        and not {name_of(base) for base in node.bases} & DECLARED
        and not _documented(ast.get_docstring(node) or "", subclasses[name])
    }


def _documented(docstring: str, subclasses: Collection[str]) -> bool:
    named = set(re.findall(r"\w+", docstring)) & set(subclasses)
    return "interface" in docstring.lower() or (bool(named) and len(set(subclasses)) > 1)


def values_in(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node uses as values: called, raised, passed, chosen, stored."""
    match node:
        case ast.Call() if name_of(node.func) not in ("isinstance", "issubclass", "cast"):
            given = [node.func, *node.args, *(word.value for word in node.keywords)]
        case ast.Raise(exc=ast.AST() as raised):
            given = [raised]
        case ast.Assign() | ast.Return():
            given = [node.value] if node.value is not None else []
        case ast.IfExp():
            given = [node.body, node.orelse]
        case ast.Dict():
            given = list(node.values)
        case ast.Tuple():
            given = list(node.elts)
        case _:
            given = []
    yield from (name_of(each) for each in given if isinstance(each, ast.Name | ast.Attribute))


def private_uses(trees: Mapping[str, Iterable[ast.AST]]) -> dict[str, set[str]]:
    """Return the private names of its base that each class in the same folder uses, except documented methods."""
    classes = classes_in(trees)
    found: dict[str, set[str]] = {}
    for name, (node, package) in classes.items():
        for base in (classes[name_of(each)] for each in node.bases if name_of(each) in classes):
            names = _used(node) & _defined(base.node) - _hooks(base.node)
            if names and base.package == package:
                found.setdefault(name, set()).update(names)
    return found


def _used(node: ast.ClassDef) -> set[str]:
    """Return the private names that a class reads from itself or from `super()`."""
    return {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute) and _own(each.value) and _is_private(each.attr)
    }


def _own(node: ast.AST) -> bool:
    return name_of(node) in ("self", "cls") or (isinstance(node, ast.Call) and name_of(node.func) == "super")


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _defined(node: ast.ClassDef) -> set[str]:
    """Return the methods of a class, and the attributes that it sets."""
    methods = {each.name for each in ast.walk(node) if isinstance(each, Function)}
    stored = [each for each in ast.walk(node) if isinstance(getattr(each, "ctx", None), ast.Store)]
    return methods | {each.attr if isinstance(each, ast.Attribute) else name_of(each) for each in stored}


def _hooks(node: ast.ClassDef) -> set[str]:
    return {each.name for each in node.body if isinstance(each, Function) and ast.get_docstring(each)}


def _trees() -> dict[str, Iterable[ast.AST]]:
    return {name: nodes(path) for name, path in modules().items()}


def test_each_base_is_used_or_an_interface() -> None:
    """A class that is only a base is abstract by its own bases, or its docstring names its subclasses."""
    trees = _trees()
    topics = {name for name, each in classes_in(trees).items() if f"{each.package}.".startswith(SUITE)}
    assert compared(bare_bases(trees) - topics, BARE) == {}


def test_private_names_stay_in_their_class() -> None:
    """A subclass in the same folder uses no private name of its base, except hooks with a docstring."""
    found = {f"{name}.{each}" for name, names in private_uses(_trees()).items() for each in names}
    listed = {f"{name}.{each}" for name, names in PRIVATE.items() for each in names}
    assert compared(found, listed) == {}


def test_a_bare_base_and_a_private_name_are_seen() -> None:
    """A base that is never instantiated is found, and its private attribute that a subclass uses."""
    base = "class Base:\n    {}\n    def __init__(self): self._x = 1\n    def _hook(self): 'Returns x.'\n"
    sub = "class Sub(Base):\n    def f(self): return self._x, self._hook()\n"
    for docstring, more, bare in (
        ("'A part.'", "", {"Base"}),
        ("'Interface of others.'", "", set()),
        ("'What Sub is.'", "", {"Base"}),
        ("'What Sub and Other share.'", "class Other(Base): pass", set()),
        ("'A part.'", "Base()", set()),
        ("'A part.'", "isinstance(1, Base)", {"Base"}),
    ):
        code = {"p.m": list(ast.walk(ast.parse(base.format(docstring) + sub + more)))}
        assert bare_bases(code) == bare
        assert private_uses(code) == {"Sub": {"_x"}}
