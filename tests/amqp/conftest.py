"""Tests of AMQP need python-qpid-proton."""

from __future__ import annotations

from tests.needs import need


def pytest_pycollect_makemodule() -> None:
    """Skip all modules of this folder if they cannot be imported."""
    need("proton")
