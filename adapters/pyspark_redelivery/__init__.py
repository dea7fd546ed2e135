"""The module by which Spark finds the data source: it looks for `pyspark_*` and takes their `DefaultSource`."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource

__all__ = ["DefaultSource"]


class _Missing(DataSource):
    """Says what is missing: Spark passes over a module that cannot be imported, and knows no such source then."""

    why = ""

    def __init__(self, options: dict[str, Any]) -> None:
        """Raises ImportError."""
        super().__init__(options)
        raise ImportError(self.why)

    @classmethod
    def name(cls) -> str:
        """Return what `format` takes."""
        return "redelivery"


def _found() -> type[DataSource]:
    try:
        from redelivery_spark import RedeliveryDataSource  # noqa: PLC0415 - it may not be possible
    except ImportError as error:
        _Missing.why = str(error)
        return _Missing
    return RedeliveryDataSource


DefaultSource = _found()
