"""Spark Structured Streaming over redelivery policies: `spark.readStream.format("redelivery")`.

Names are loaded at first use: most of what is here runs without Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redelivery_spark.guard import foreach_batch
    from redelivery_spark.process import process
    from redelivery_spark.sink import write_once
    from redelivery_spark.source import RedeliveryDataSource
    from redelivery_spark.supervisor import run

__all__ = ["RedeliveryDataSource", "foreach_batch", "process", "run", "write_once"]

_PLACES = {
    "RedeliveryDataSource": "source",
    "foreach_batch": "guard",
    "process": "process",
    "run": "supervisor",
    "write_once": "sink",
}


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{place}"), name)
    globals()[name] = found  # the import has put the module `process` where its function is looked for
    return found
