"""Spark data source `format("redelivery")`: reads and writes messages, in streams and in batches.

Names are imported at first use: most modules of this package run without Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redelivery_spark.api.foreach_batch import foreach_batch
    from redelivery_spark.api.process import process
    from redelivery_spark.api.run import run
    from redelivery_spark.api.write_once import write_once
    from redelivery_spark.options.credentials import with_credentials
    from redelivery_spark.source import RedeliveryDataSource

__all__ = ["RedeliveryDataSource", "foreach_batch", "process", "run", "with_credentials", "write_once"]

_PLACES = {
    "RedeliveryDataSource": "source",
    "foreach_batch": "api.foreach_batch",
    "process": "api.process",
    "run": "api.run",
    "with_credentials": "options.credentials",
    "write_once": "api.write_once",
}


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{place}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pyspark", "pyarrow"):
            raise
        raise ImportError(
            f"{__name__}.{name} needs {error.name}, which is not installed here: pip install 'redelivery[spark]'",
            name=error.name,
        ) from None
    return getattr(module, name)
