"""The table of a delivery's states: each row happens, and nothing else does (each test checks that, see conftest)."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

import pytest
from tests.core.model import Arrival, Letter

from redelivery.core.delivery import Delivery, State
from redelivery.core.transitions import TRANSITIONS, enter

CORE = Path(__file__).parents[2] / "client" / "redelivery" / "core"


def test_the_table_knows_each_state_and_no_other() -> None:
    """Every state is reached, but for the first one, and all but the last ones are left."""
    assert {row.after for row in TRANSITIONS} == {*get_args(State)} - {"ready"}
    assert {row.before for row in TRANSITIONS} == {*get_args(State)} - {"settled", "lost"}
    pairs = [(row.before, row.after) for row in TRANSITIONS]
    assert len(pairs) == len(set(pairs))


def test_a_transition_that_is_not_in_the_table_fails_a_test() -> None:
    """What is settled stays settled."""
    delivery = Arrival(Letter(0), 1, counts=False)
    enter(delivery, "running")
    enter(delivery, "settled")
    with pytest.raises(AssertionError, match="settled -> running"):
        enter(delivery, "running")


def test_one_place_changes_a_state() -> None:
    """Nothing in the core but `enter` assigns a delivery's state, after its constructor."""
    writers = [
        f"{path.name}:{node.lineno}"
        for path in sorted(CORE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "state" and isinstance(node.ctx, ast.Store)
    ]
    assert [writer.partition(":")[0] for writer in writers] == ["delivery.py", "transitions.py"]
    assert Delivery.__init__.__code__.co_filename.endswith("delivery.py")
