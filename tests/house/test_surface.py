"""The library as users see it changes only on purpose; `python -m tests.house.surface` writes the golden texts."""

from __future__ import annotations

from difflib import unified_diff

import pytest
from tests.house.surface import GOLDEN, SURFACES
from tests.needs import need

pytestmark = pytest.mark.ci("rules of the house: the whole code is read")


@pytest.mark.parametrize("name", SURFACES)
def test_the_surface_is_as_it_was(name: str) -> None:
    """Public names, options, the command line's output and log lines equal the golden text."""
    if name == "api":
        need("proton")
    golden = (GOLDEN / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    changes = "\n".join(
        unified_diff(golden, SURFACES[name]().splitlines(), "before", "now", lineterm="", n=0)
    )
    assert not changes, f"if this is on purpose, run python -m tests.house.surface\n{changes}"
