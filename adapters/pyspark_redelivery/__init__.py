"""The module by which Spark finds the data source: it looks for `pyspark_*` and takes their `DefaultSource`."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource

__all__ = ["DefaultSource"]

try:
    from redelivery_spark import RedeliveryDataSource as DefaultSource
except ImportError as missing:
    # Spark passes over a module that cannot be imported, and would say that there is no such source.
    _why = str(missing)

    class DefaultSource(DataSource):  # type: ignore[no-redef]
        """Says what is missing."""

        def __init__(self, options: dict[str, Any]) -> None:
            """Raises ImportError."""
            super().__init__(options)
            raise ImportError(_why) from None

        @classmethod
        def name(cls) -> str:
            """Return what `format` takes."""
            return "redelivery"
