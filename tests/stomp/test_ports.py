"""The parts of a connection import its protocols, not the connection."""

from __future__ import annotations

import ast
from pathlib import Path

import redelivery_stomp

FOLDER = Path(redelivery_stomp.__file__).parent
PACKAGE = FOLDER.name


def uses() -> dict[str, set[str]]:
    """Return the modules of the package that each one imports, including those for the type checker only."""
    modules = {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.py")}
    return {
        name: {
            node.module.removeprefix(f"{PACKAGE}.")
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{PACKAGE}.")
            if node.module is not None
        }
        for name, tree in modules.items()
    }


def test_no_part_imports_the_connection() -> None:
    """Only the adapter imports the connection, also under TYPE_CHECKING."""
    assert {name for name, used in uses().items() if "connection" in used} == {"adapter"}


def test_there_is_no_import_circle() -> None:
    """Imports have no circle: modules can be removed one by one, each when no remaining one imports it."""
    left = uses()
    while free := [name for name in left if not any(name in used for used in left.values())]:
        for name in free:
            del left[name]
    assert left == {}
