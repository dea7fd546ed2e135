"""Forbidden bases of decisions: the text of an error, a condition used as a number, an event that changes."""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.house.source import (
    SOURCE_ROOTS,
    Function,
    compared,
    functions,
    name_of,
    nodes,
    place_of,
    shown,
    sources,
    text,
    tree,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

pytestmark = pytest.mark.ci("rules of the house: the whole code is read")

ON_TEXT = {
    # Python errors come through the JVM as text only.
    "adapters/redelivery_spark/api/run.py run",
    # Only its text shows what a broker's ERROR is about; the patterns are in the profiles.
    "adapters/redelivery_stomp/disconnect_cause.py StompDisconnectCause.unclaimed",
    "adapters/redelivery_stomp/subscribing.py Subscribing._reason",
    # RabbitMQ 3 says in its text only that it has no such queue.
    "client/redelivery/cli/checks/destination_check.py _is_absent",
    # tomllib gives the line of an error in its text only (in attributes since Python 3.14).
    "client/redelivery/importers/toml_policies.py read_toml",
}
ARITHMETIC: set[str] = set()
MUTATED: set[str] = set()
TRAILING: dict[str, int] = {}
"""Number of comments behind code that are too long, by folder."""

ERRORS = {"cause", "error", "exc", "exception", "failure", "reason"}
"""Names of errors that no `except` binds."""
SENTENCES = {"busy", "why"}
"""Names of texts for people: comparing two of them is not a decision, searching one is."""
SEARCHES = {"endswith", "find", "fullmatch", "index", "match", "search", "startswith"}
LONGEST_TRAILING = 30
_DIRECTIVE = re.compile(r"\s*(?:noqa|type:|pragma|pyright:|mypy:|fmt:|ruff:)")


# Rule 8: no logic on the text of a message.


def on_text(function: Function) -> bool:
    """True if a function compares or searches the text of an error."""
    found = list(ast.walk(function))
    errors = ERRORS | {node.name for node in found if isinstance(node, ast.ExceptHandler) and node.name}
    texts = {
        name_of(node.targets[0])
        for node in found
        if isinstance(node, ast.Assign) and _is_text(node.value, errors, set())
    }
    return any(_decides(node, errors, texts) for node in found)


def _is_text(node: ast.AST, errors: set[str], texts: set[str]) -> bool:
    """True if an expression is the text of an error, or begins with it: `str(error).lower()`."""
    if isinstance(node, ast.Name):
        return node.id in texts
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in ("str", "repr") and node.args:
            return name_of(node.args[0]).lstrip("_") in errors
        return isinstance(node.func, ast.Attribute) and _is_text(node.func.value, errors, texts)
    return False


def _has_text(call: ast.Call, errors: set[str]) -> bool:
    return any(_is_text(each, errors, set()) for each in call.args)


def _decides(node: ast.AST, errors: set[str], texts: set[str]) -> bool:
    if isinstance(node, ast.Compare):
        if any(isinstance(each, ast.In | ast.NotIn) for each in node.ops):
            return any(_is_text(each, errors, texts | {"why"}) for each in node.comparators)
        return any(_is_text(each, errors, texts) for each in (node.left, *node.comparators))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SEARCHES:
        return any(_is_text(each, errors, texts | SENTENCES) for each in (node.func.value, *node.args))
    # A function that gets the text may search it; a text that is logged or shown is not searched.
    return (
        isinstance(node, ast.Call) and name_of(node.func) in {"accused", "names"} and _has_text(node, errors)
    )


# Rule 10: no boolean arithmetic, no change of an event.


def is_arithmetic(node: ast.AST) -> bool:
    """True if a node counts with a condition: `+= a and b`, `items[a == b :]`, `n * (a < b)`."""
    if isinstance(node, ast.AugAssign):
        return _is_condition(node.value)
    if isinstance(node, ast.Slice):
        return any(_is_condition(each) for each in (node.lower, node.upper, node.step) if each is not None)
    if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.BitAnd | ast.BitOr | ast.BitXor):
        return any(_is_number_of(each) for each in (node.left, node.right))
    if isinstance(node, ast.Subscript):
        return _is_number_of(node.slice)
    if isinstance(node, ast.Call) and name_of(node.func) == "int":
        return any(map(_is_number_of, node.args))
    if isinstance(node, ast.Call) and name_of(node.func) == "sum":
        return any(isinstance(each, ast.GeneratorExp) and _is_number_of(each.elt) for each in node.args)
    return (
        isinstance(node, ast.Call)
        and name_of(node.func) == "isinstance"
        and isinstance(node.args[0], ast.Subscript)
        and isinstance(node.args[0].slice, ast.UnaryOp)
    )


def _is_number_of(node: ast.AST) -> bool:
    """True if a node is a condition and not a default: `a or 0` is a number."""
    return _is_condition(node) and not (isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or))


def _is_condition(node: ast.AST) -> bool:
    negated = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    return negated or isinstance(node, ast.BoolOp | ast.Compare)


def mutates(node: ast.AST) -> bool:
    """True if a node sets an attribute of an event."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return any(
        isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "event"
        for each in targets
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
    )


# Rule 9: comments above the line.


def long_trailing(content: str, found: Iterable[ast.AST]) -> list[int]:
    """Return the lines with a comment behind code that is longer than 30 characters."""
    inside = {
        line
        for node in found
        if isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno != node.lineno
        for line in range(node.lineno, node.end_lineno or 0)
    }
    lines: list[int] = []
    for number, line in enumerate(content.splitlines(), 1):
        code, mark, comment = line.rpartition("  # ")
        if not mark or not code.strip() or number in inside or _DIRECTIVE.match(comment):
            continue
        if len(comment) > LONGEST_TRAILING:
            lines.append(number)
    return lines


def places(kind: Callable[[ast.AST], bool]) -> set[str]:
    """Return the functions that have a node of that kind."""
    return {
        f"{shown(path)} {place_of(tree(path), node)}"
        for path in sources(*SOURCE_ROOTS)
        for node in nodes(path)
        if kind(node)
    }


def test_no_decision_depends_on_the_text_of_an_error() -> None:
    """No code compares or searches `str(error)`, unless the error exists only as text."""
    found = {
        f"{shown(path)} {place_of(tree(path), function)}"
        for path in sources(*SOURCE_ROOTS)
        for function in functions(path)
        if on_text(function)
    }
    assert compared(found, ON_TEXT) == {}


def test_no_condition_is_counted_with() -> None:
    """No condition is a summand, a factor or a bound of a slice; no decision checks the type of the last command."""
    assert compared(places(is_arithmetic), ARITHMETIC) == {}


def test_events_do_not_change() -> None:
    """No attribute of an event is set."""
    assert compared(places(mutates), MUTATED) == {}


def test_comments_stand_above_the_line() -> None:
    """A comment behind code has at most 30 characters; a list has the number of longer ones in each folder."""
    found: Counter[str] = Counter()
    for path in sources(*SOURCE_ROOTS):
        if "  # " in text(path):
            found[shown(path.parent)] += len(long_trailing(text(path), nodes(path)))
    counted = {f"{name}: {number}" for name, number in found.items() if number}
    assert compared(counted, {f"{name}: {number}" for name, number in TRAILING.items()}) == {}


@pytest.mark.parametrize(
    ("code", "decides"),
    [
        ("try: pass\nexcept OSError as why_not:\n  return 'full' in str(why_not)", True),
        ("return str(error).lower().startswith('no space')", True),
        ("text = str(cause)\nreturn text == 'gone'", True),
        ("return re.search('x', repr(error))", True),
        ("return busy.endswith('runs')", True),
        ("return 'not yet' not in why", True),
        ("return why == busy", False),
        ("return self.search(str(self._error))", True),
        ("return names(str(event.error), 'q')", True),
        ("return error.code == 7 and log(str(error))", False),
        ("return name.endswith('.db')", False),
    ],
)
def test_logic_on_a_text_is_seen(code: str, *, decides: bool) -> None:
    """Comparing and searching a text are found, also in a variable; showing it is not a decision."""
    body = "\n".join(f"    {line}" for line in code.splitlines())
    (function,) = ast.parse(f"def f(self, event, error, cause, busy, why, name):\n{body}").body
    assert isinstance(function, ast.FunctionDef)
    assert on_text(function) == decides


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("n += a and b", True),
        ("n += not a", True),
        ("n += a == b", True),
        ("x = items[a != b :]", True),
        ("x = n * (a < b)", True),
        ("x = n + (a and b)", True),
        ("x = items[a == b]", True),
        ("x = int(a < b)", True),
        ("x = sum(a in b for a in c)", True),
        ("x = int(a or 0)", False),
        ("x = isinstance(items[-1], Stop)", True),
        ("n += 1 if a else 0", False),
        ("x = items[1:]", False),
        ("x = a < b", False),
    ],
)
def test_boolean_arithmetic_is_seen(code: str, *, expected: bool) -> None:
    """A condition as a summand, a factor or a bound of a slice is found; a conditional expression is not."""
    assert any(is_arithmetic(node) for node in ast.walk(ast.parse(code))) == expected


def test_a_changed_event_is_seen() -> None:
    """Setting an attribute of an event is found, reading one is not."""
    for code, expected in (("event.stop = 1", True), ("event.n += 1", True), ("stop = event.stop", False)):
        assert any(mutates(node) for node in ast.walk(ast.parse(code))) == expected


def test_a_long_comment_is_seen() -> None:
    """A long comment behind code is found; above the line, in a string or as a directive it is not."""
    long = "why this is so, in many more words than fit"
    code = f'x = 1  # {long}\n# {long}\ny = 2  # s\nz = 3  # noqa: E501 {long}\nt = """\na  # {long}\n"""\n'
    assert long_trailing(code, ast.walk(ast.parse(code))) == [1]
