"""Modules that are loaded by an import, in a new interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.ci("rules of the house: the whole code is read")

LOADED = "import json, sys; import redelivery; print(json.dumps(sorted(sys.modules)))"
READS = """
import sys
from redelivery.core.policy.policy_map import RedeliveryPolicyMap
assert "redelivery.importers" not in sys.modules
print(RedeliveryPolicyMap.from_toml(sys.argv[1]).policy_for("orders").maximum_redeliveries)
"""
OURS = {
    "redelivery",
    "redelivery.core",
    "redelivery.core.policy",
    "redelivery.core.policy.file_reader",
}


def run(code: str, *arguments: str) -> str:
    """Return the output of a new interpreter."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def test_the_package_loads_nothing_that_is_not_used() -> None:
    """`import redelivery` loads the package and the hook of the policy files, and no other package."""
    before = set(json.loads(run("import json, sys; print(json.dumps(sorted(sys.modules)))")))
    loaded = set(json.loads(run(LOADED))) - before
    assert {name for name in loaded if name.partition(".")[0] == "redelivery"} == OURS
    outside = {name.partition(".")[0] for name in loaded} - {"redelivery"}
    assert {name for name in outside if name not in sys.stdlib_module_names} == set()


def test_a_policy_map_alone_reads_files(tmp_path: Path) -> None:
    """A program that imports only the module of the policy map can read a file, which loads the importers."""
    file = tmp_path / "policies.toml"
    file.write_text("[default]\nmaximumRedeliveries = 3\n", encoding="utf-8")
    assert run(READS, str(file)).strip() == "3"
