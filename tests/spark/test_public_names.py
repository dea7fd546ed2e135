"""What the package offers."""

from __future__ import annotations

import pytest

import redelivery_spark


def test_process_is_a_function_each_time() -> None:
    """Also when its module, which has the same name, has been imported."""
    pytest.importorskip("pyspark")
    for _ in range(2):
        for name in redelivery_spark.__all__:
            assert callable(getattr(redelivery_spark, name)), name
