"""Libraries of Spark, which this environment may not have: the documentation is built without them."""

from __future__ import annotations

import contextlib
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

__all__ = ["missing", "replaced"]

_LIBRARIES = ("pyspark", "pyarrow", "pandas", "fsspec", "s3fs")


def missing() -> list[str]:
    """Return the libraries that are not installed."""
    return [name for name in _LIBRARIES if find_spec(name) is None]


def replaced() -> AbstractContextManager[None]:
    """Return a context in which the missing libraries can be imported: each of their names is an empty object."""
    if not missing():
        return contextlib.nullcontext()
    from sphinx.ext.autodoc import mock  # noqa: PLC0415 - the extra `docs`

    replacement: AbstractContextManager[None] = mock(missing())
    return replacement
