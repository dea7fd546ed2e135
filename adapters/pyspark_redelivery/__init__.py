"""Module by which Spark finds the data source: Spark looks for `pyspark_*` modules and takes their `DefaultSource`."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource

__all__ = ["DefaultSource"]


class _Missing(DataSource):
    """Stands in for a source that cannot be imported. Without it Spark would ignore this module and know no such
    source.
    """

    why = ""

    def __init__(self, options: dict[str, Any]) -> None:
        """Raises ImportError."""
        super().__init__(options)
        raise ImportError(self.why)

    @classmethod
    def name(cls) -> str:
        """Return the name that `format` takes."""
        return "redelivery"


def _found() -> type[DataSource]:
    try:
        from redelivery_spark import RedeliveryDataSource  # noqa: PLC0415 - it may not be possible
    except ImportError as error:
        _Missing.why = str(error)
        return _Missing
    return RedeliveryDataSource


DefaultSource = _found()
