"""What tests of Spark need, or a reason to leave them out; where every broker must be there, so must this."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from integration.brokers.choice import required
from integration.brokers.toolchain import missing_java
from integration.delta_lake import no_release, unavailable

__all__ = ["need_delta_lake", "need_spark"]


def need_spark(*more: str) -> None:
    """Skip a module without pyspark, these packages, or Java; fail where REDELIVERY_REQUIRE_BROKERS asks for Spark."""
    absent = [name for name in ("pyspark", *more) if find_spec(name) is None]
    reason = f"{', '.join(absent)} not installed (the extra spark-test)" if absent else missing_java()
    if reason is None:
        return
    if required("spark"):
        pytest.fail(f"REDELIVERY_REQUIRE_BROKERS asks for Spark, but: {reason}", pytrace=False)
    pytest.skip(f"Spark: {reason}", allow_module_level=True)


def need_delta_lake() -> None:
    """Skip a module where Delta Lake has no release for this Spark; fail where Spark is asked for and it is missing."""
    reason = no_release()
    if reason is None:
        reason = unavailable()
        if reason is not None and required("spark"):
            pytest.fail(f"REDELIVERY_REQUIRE_BROKERS asks for Spark, but: {reason}", pytrace=False)
    if reason is not None:
        pytest.skip(reason, allow_module_level=True)
