"""Limits of files and functions, and rules for every test."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from tests.house.source import ALL_ROOTS, compared, functions, name_of, nodes, shown, sources, text, tree

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.house.source import Function

SOFT = 300
"""Most lines below the imports. A longer file is in a list, with the one idea that needs them."""
HARD = 600
LONGEST_FUNCTION = 50
LONG = {
    "tests/simulator/world.py": "all events of the simulation; their choice, and the truth, have files of their own",
    "tests/simulator/truth.py": "the true state of each message, with the checks that must never fail",
    "adapters/redelivery_memory/server.py": "one lock over queues, subscriptions, connections and delayed messages",
    "client/redelivery/connection.py": "one public class; more than half of the lines are its docstrings",
    "client/redelivery/async_connection.py": "one public class; half of the lines are its docstrings",
    "client/redelivery/message.py": "one public class; half of the lines are its docstrings",
    "client/redelivery/testing/manual_clock.py": "one public class, under one lock; a quarter is its docstrings",
    "client/redelivery/ledger/sqlite_ledger.py": "entries, marks and files of one process, under the same locks",
    "client/redelivery/core/commands.py": "one closed union: the content and the receiver of each command",
    "client/redelivery/core/engine.py": "one decision for each event; its steps share eleven attributes",
    "client/redelivery/core/message_history.py": "the state of each message changes under one lock",
    "client/redelivery/driver/connection/connection_driver.py": "one lock and one condition for both of its halves",
    "client/redelivery/driver/consumer/dispatcher.py": "all of it runs under the consumer's lock",
}


def lines_below_imports(code: ast.Module, length: int) -> int:
    """Return the number of lines of a file below its docstring and its imports."""
    end = 0
    for node in code.body:
        typing = isinstance(node, ast.If) and name_of(node.test) == "TYPE_CHECKING"
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not (typing or docstring or isinstance(node, ast.Import | ast.ImportFrom)):
            break
        end = node.end_lineno or 0
    return length - end


def long_ones(found: Iterable[Function]) -> list[str]:
    """Return the functions that are longer than the limit."""
    return [node.name for node in found if (node.end_lineno or 0) - node.lineno >= LONGEST_FUNCTION]


def test_files_are_short() -> None:
    """No file has more than 300 lines below its imports, except those in the list; none has more than 600."""
    whole = {path: len(text(path).splitlines()) for path in sources(*ALL_ROOTS)}
    # The others are short even with their imports.
    lengths = {
        shown(path): lines_below_imports(tree(path), length)
        for path, length in whole.items()
        if length > SOFT
    }
    assert compared({name for name, length in lengths.items() if length > SOFT}, LONG) == {}
    assert {name for name, length in lengths.items() if length > HARD} == set()


def test_lines_are_counted_below_the_imports() -> None:
    """The docstring and all imports, also for the type checker, are not counted."""
    code = '"""What."""\nimport os\nif TYPE_CHECKING:\n    import ast\n\nx = 1\nimport sys\n'
    assert lines_below_imports(ast.parse(code), 7) == 3


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
