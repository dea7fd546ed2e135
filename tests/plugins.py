"""Plugins of pytest for all tests. The conftest file that pytest reads first names them.

That is `tests/conftest.py` or `integration/conftest.py`, by the folders of the run. With `pytest .`, as editors run it
to find tests, the other one is read when the options are fixed, and may name none.
"""

from __future__ import annotations

import pytest

__all__ = ["PLUGINS", "REGISTERED"]

PLUGINS = [
    "tests.tiers",
    "tests.limits",
    "tests.children",
    "tests.processes",
    "tests.processor_time",
    "tests.progress",
]
REGISTERED: list[str] = []
"""The plugins, once pytest has their options."""

# Modules of conftest files import some of them before pytest does.
pytest.register_assert_rewrite(*PLUGINS)
