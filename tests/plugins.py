"""Plugins of pytest for all tests: `tests/conftest.py` and `integration/conftest.py` name them."""

from __future__ import annotations

import pytest

__all__ = ["pytest_plugins"]

pytest_plugins = [
    "tests.tiers",
    "tests.limits",
    "tests.children",
    "tests.processes",
    "tests.processor_time",
    "tests.progress",
]

# Modules of conftest files import some of them before pytest does.
pytest.register_assert_rewrite(*pytest_plugins)
