"""Libraries that adapters need and that this environment may not have: the documentation is built without them."""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["missing"]

_LIBRARIES = ("proton", "cproton", "pyspark", "pyarrow", "pandas", "fsspec", "s3fs")


def missing() -> list[str]:
    """Return the libraries that are not installed."""
    return [name for name in _LIBRARIES if find_spec(name) is None]
