"""Packages and brokers that tests need: skipped without them, or failed where a run requires them."""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["BROKERS", "asks", "missing", "need", "required", "skip_or_fail"]

BROKERS = ("activemq", "artemis", "brokerj", "rabbitmq", "rabbitmq4")
# Not brokers, but may be required like them: Spark, the browser, and the packages of tests.
OTHERS = ("spark", "chromium", "packages")

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


def required(name: str) -> bool:
    """True if REDELIVERY_REQUIRE_BROKERS (`1`, or names with commas) forbids to skip tests of this broker or other."""
    return asks("REDELIVERY_REQUIRE_BROKERS", name, (*BROKERS, *OTHERS))


def asks(variable: str, name: str, known: Collection[str]) -> bool:
    """True if an environment variable, which is `1` or names with commas, has this name.

    Raises:
        pytest.UsageError: It has a name that is not known: a misspelt one would silently ask for nothing.
    """
    value = os.environ.get(variable, "").strip().lower()
    if value in {"", "0", "false", "no"}:
        return False
    if value in {"1", "true", "yes", "all"}:
        return True
    names = {part.strip() for part in value.split(",")} - {""}
    unknown = names - set(known)
    if unknown:
        raise pytest.UsageError(f"{variable} names {sorted(unknown)}; known: {sorted(known)}")
    return name in names


def skip_or_fail(reason: str) -> NoReturn:
    """Skip because a package is missing; fail if REDELIVERY_REQUIRE_BROKERS is `1`, or names `packages`."""
    __tracebackhide__ = True
    if required("packages"):
        pytest.fail(f"REDELIVERY_REQUIRE_BROKERS asks for all packages, but: {reason}", pytrace=False)
    pytest.skip(reason, allow_module_level=True)
