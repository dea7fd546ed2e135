"""Public names of the package."""

from __future__ import annotations

import redelivery_spark


def test_process_is_a_function_each_time() -> None:
    """`process` is a function, also after its module of the same name was imported."""
    for _ in range(2):
        for name in redelivery_spark.__all__:
            assert callable(getattr(redelivery_spark, name)), name
