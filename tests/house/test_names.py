"""One name for one thing: classes, modules, and modules that hide a public name."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest
from tests.house.source import compared, modules, name_of, shown, statements, tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

pytestmark = pytest.mark.ci("rules of the house: the whole code is read")

ROLES = {
    "__main__",
    "adapter",
    "connection",
    "delivery",
    "disconnect_cause",
    "profile_base",
    "profiles",
    "rabbitmq_profile",
}
"""Names of modules that repeat, each with one role."""
SAME_CLASSES = {
    # A public event has the name of the engine's command or event for the same thing.
    "BreakerChanged",
    "Connected",
    "ConnectionLost",
    "Drained",
    "Dropped",
    "Paused",
    "PolicyFault",
    "Resumed",
    "Sent",
    "SetAside",
    "TakenBack",
    "Unanswered",
}
HIDING: set[str] = set()


def same_classes(trees: Mapping[str, ast.Module]) -> set[str]:
    """Return the names that several classes have, including private and inner ones."""
    names = [
        node.name for code in trees.values() for node in statements(code) if isinstance(node, ast.ClassDef)
    ]
    return {name for name in names if names.count(name) > 1}


def same_modules(names: Iterable[str], packages: Iterable[str]) -> set[str]:
    """Return the last names that several modules have; folders are not counted."""
    last = [name.rpartition(".")[2] for name in set(names) - set(packages)]
    return {name for name in last if last.count(name) > 1}


def exported(code: ast.Module) -> set[str]:
    """Return the names in the `__all__` of a module."""
    for node in code.body:
        if isinstance(node, ast.Assign) and name_of(node.targets[0]) == "__all__":
            return {each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant)}  # type: ignore[misc]
    return set()


def hiding(names: Iterable[str], exports: Mapping[str, set[str]]) -> set[str]:
    """Return the modules and folders whose name their package or `redelivery` exports."""
    public = exports.get("redelivery", set())
    return {
        name
        for name in names
        if name.rpartition(".")[2] in public | exports.get(name.rpartition(".")[0], set())
    }


def test_class_names_are_unique() -> None:
    """No two classes of the library and the adapters have the same name."""
    found = same_classes({shown(path): tree(path) for path in modules().values()})
    assert compared(found, SAME_CLASSES) == {}


def test_module_names_are_unique() -> None:
    """No two modules have the same name, except names of a role."""
    packages = [name for name, path in modules().items() if path.stem == "__init__"]
    assert compared(same_modules(modules(), packages), ROLES) == {}


def test_no_module_hides_a_public_name() -> None:
    """No module or folder has a name that its package or `redelivery` exports: it would replace that."""
    packages = {name: path for name, path in modules().items() if path.stem == "__init__"}
    exports = {name: exported(tree(path)) for name, path in packages.items()}
    assert exports["redelivery"] > {"connect", "dead_letters"}
    assert compared(hiding(modules(), exports), HIDING) == {}


def test_names_that_repeat_are_seen() -> None:
    """Repeated names of inner classes and of modules are found, and modules with the name of an export."""
    files = {"a": "class A: ...\nclass B:\n    class C: ...", "b": "def f():\n    class C: ..."}
    assert same_classes({name: ast.parse(code) for name, code in files.items()}) == {"C"}
    assert same_modules(["p", "p.reader", "q", "q.reader", "q.p"], ["p", "q"]) == {"reader"}
    exports = {"redelivery": {"connect"}, "redelivery.importers": {"read"}}
    names = ["redelivery.core.connect", "redelivery.importers.read", "redelivery.core.read"]
    assert hiding(names, exports) == {"redelivery.core.connect", "redelivery.importers.read"}
    assert exported(ast.parse("__all__ = ['a', 'b']")) == {"a", "b"}
