"""Packages that some tests need, and that the extra `test` does not have: all are in the extra `test-all`."""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NoReturn

import pytest

__all__ = ["missing", "need", "skip_or_fail"]

# The package and the smallest extra that has it, where these are not the name of the module and `test-all`.
ELSEWHERE = {"proton": ("python-qpid-proton", "amqp")}


def need(module: str) -> Any:
    """Return a module. Without its package skip the test (or the tests of a file), or fail if packages are required."""
    __tracebackhide__ = True
    if reason := missing(module):
        skip_or_fail(reason)
    return import_module(module)


def missing(*modules: str) -> str | None:
    """Return why tests that need these modules cannot run here, or None."""
    roots = [module.partition(".")[0] for module in modules]
    absent = [ELSEWHERE.get(name, (name, "test-all")) for name in roots if find_spec(name) is None]
    if not absent:
        return None
    if len(absent) == 1:
        return "{} is not installed (the extra {})".format(*absent[0])
    return f"{', '.join(package for package, _ in absent)} are not installed (the extra test-all)"


def skip_or_fail(reason: str) -> NoReturn:
    """Skip because a package is missing; fail if REDELIVERY_REQUIRE_BROKERS is `1`, or names `packages`."""
    __tracebackhide__ = True
    names = {name.strip() for name in os.environ.get("REDELIVERY_REQUIRE_BROKERS", "").lower().split(",")}
    if names & {"1", "true", "yes", "all", "packages"}:
        pytest.fail(f"REDELIVERY_REQUIRE_BROKERS asks for all packages, but: {reason}", pytrace=False)
    pytest.skip(reason, allow_module_level=True)
