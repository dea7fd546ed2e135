"""The package's metadata: its exports, its wheel, its entry points."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from typing import Any

from tests.house.source import ROOT, SOURCE_ROOTS

import redelivery

LOWER = {"stomp": "redelivery_stomp", "proton": "redelivery_amqp"}


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_exports() -> None:
    """`redelivery.__all__` is sorted, each of its names exists, and `__module__` of each is `redelivery`."""
    assert list(redelivery.__all__) == sorted(redelivery.__all__)
    for name in redelivery.__all__:
        assert getattr(redelivery, name) is not None
    public = {name for name in vars(redelivery) if not name.startswith("_")}
    modules = {name for name in public if isinstance(getattr(redelivery, name), type(sys))}
    allowed = set(redelivery.__all__) | {"annotations", "import_module", "TYPE_CHECKING", "Any"}
    assert public - modules - allowed == set()


def test_wheel_has_all_packages() -> None:
    """The wheel's packages are the package folders of the source roots, each with its typed marker."""
    listed = project()["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    folders = {
        f"{folder}/{path.name}"
        for folder in SOURCE_ROOTS
        for path in (ROOT / folder).iterdir()
        if (path / "__init__.py").exists()
    }
    assert set(listed) == folders
    assert [name for name in listed if not (ROOT / name / "py.typed").exists()] == []


def test_entry_points_can_be_loaded() -> None:
    """Every adapter, script and plugin that the package names can be loaded."""
    declared = project()["project"]
    groups = [*declared["entry-points"].values(), declared["scripts"]]
    missing = {adapter for library, adapter in LOWER.items() if importlib.util.find_spec(library) is None}
    for target in (target for group in groups for target in group.values()):
        module, _, name = target.partition(":")
        if module in missing:
            continue
        loaded = importlib.import_module(module)
        assert not name or getattr(loaded, name) is not None
