"""The size of functions, and rules for every test."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest
from tests.house.source import ALL_ROOTS, functions, name_of, nodes, shown, sources

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.house.source import Function

pytestmark = pytest.mark.ci("rules of the house: the whole code is read")

LONGEST_FUNCTION = 50


def long_ones(found: Iterable[Function]) -> list[str]:
    """Return the functions that are longer than the limit."""
    return [node.name for node in found if (node.end_lineno or 0) - node.lineno >= LONGEST_FUNCTION]


def test_functions_are_short() -> None:
    """No function has more than 50 lines, including its docstring."""
    long = [f"{shown(path)} {name}" for path in sources(*ALL_ROOTS) for name in long_ones(functions(path))]
    assert long == []


def test_a_long_function_is_seen() -> None:
    """A method of 51 lines is too long, one of 50 is not."""
    for extra, expected in ((49, []), (50, ["f"])):
        code = "class A:\n    def f(self):\n" + "        self.x = 1\n" * extra
        found = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef)]
        assert long_ones(found) == expected


def naps(found: Iterable[ast.AST]) -> list[int]:
    """Return the lines that call a function named `sleep`, or wait for an event that was just made."""
    return [
        node.lineno
        for node in found
        if isinstance(node, ast.Call)
        and (
            name_of(node.func) == "sleep"
            or (
                isinstance(node.func, ast.Attribute)
                and node.func.attr == "wait"
                and isinstance(node.func.value, ast.Call)
                and name_of(node.func.value.func) == "Event"
                and node.args
            )
        )
    ]


def test_tests_do_not_sleep() -> None:
    """No test waits for real time to pass."""
    found = [f"{shown(path)}:{line}" for path in sources("tests") for line in naps(nodes(path))]
    assert found == []
    code = "import time\ntime." + "sleep" + "(1)"
    assert naps(ast.walk(ast.parse(code))) == [2]
    assert naps(ast.walk(ast.parse("threading.Event().wait(5)"))) == [1]


def silent(found: Iterable[Function]) -> list[str]:
    """Return the tests without a docstring."""
    return [node.name for node in found if node.name.startswith("test_") and not ast.get_docstring(node)]


def test_each_test_says_what_it_shows() -> None:
    """Every test has a docstring."""
    found = [f"{shown(path)} {name}" for path in sources("tests") for name in silent(functions(path))]
    assert found == []
    planted = ast.parse("def test_x():\n    pass\ndef helper():\n    pass").body
    assert silent([node for node in planted if isinstance(node, ast.FunctionDef)]) == ["test_x"]
