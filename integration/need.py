"""Checks of the packages that tests of Spark need: missing ones skip the tests, or fail if Spark is required."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from integration.availability import had
from integration.brokers.toolchain import BrokerError, missing_java
from integration.delta_lake import no_release, unavailable

__all__ = ["need_delta_lake", "need_spark"]


def need_spark(*more: str) -> None:
    """Skip a module without pyspark, these packages, or Java; fail if REDELIVERY_REQUIRE_BROKERS requires Spark."""
    absent = [name for name in ("pyspark", *more) if find_spec(name) is None]
    reason = f"{', '.join(absent)} not installed (the extra test-all)" if absent else missing_java()
    _skip("Spark", reason)


def need_delta_lake() -> None:
    """Skip a module if no Delta Lake is released for this Spark; fail if it is missing and Spark is required."""
    reason = no_release()
    if reason is not None:
        pytest.skip(reason, allow_module_level=True)
    _skip("Delta Lake", unavailable())


def _skip(what: str, reason: str | None) -> None:
    def get() -> None:
        if reason is not None:
            raise BrokerError(reason)

    had("spark", what, get)
