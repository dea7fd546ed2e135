"""The package's metadata: its exports, its wheel, its entry points."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
import tomllib
from typing import Any

import pytest
from tests.house.source import ROOT, SOURCE_ROOTS

import redelivery

pytestmark = pytest.mark.ci("rules of the house: the whole code is read")

# SHA-256 of https://www.apache.org/licenses/LICENSE-2.0.txt.
APACHE_2 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
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


def test_licence_is_in_the_package() -> None:
    """The licence is the text of Apache-2.0, unchanged, and is named as a file of sdist and wheel."""
    declared = project()["project"]
    assert (declared["license"], declared["license-files"]) == ("Apache-2.0", ["LICENSE"])
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE_2


def test_extras_name_extras_that_exist() -> None:
    """`all` is without Spark, `everything` is with it, and each extra that another one names is declared."""
    extras = project()["project"]["optional-dependencies"]
    named = {
        extra
        for needed in extras.values()
        for line in needed
        for brackets in re.findall(r"^redelivery\[([\w,-]+)\]$", line)
        for extra in brackets.split(",")
    }
    assert named - set(extras) == set()
    assert "spark" not in "".join(extras["all"])
    assert extras["everything"] == ["redelivery[all,spark-s3]"]


def test_project_pages_are_in_the_sdist() -> None:
    """The sdist has the pages of the project."""
    pages = set(project()["tool"]["hatch"]["build"]["targets"]["sdist"]["include"])
    assert {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"} <= pages
    assert [name for name in pages if not (ROOT / name).exists()] == []


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
