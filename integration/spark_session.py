"""A Spark session for tests, and addresses for executors: without credentials, which are in a file."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import TYPE_CHECKING
from urllib.parse import urlencode

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from integration.brokers import Broker

__all__ = ["address", "credentials", "explained"]


def address(broker: Broker, protocol: str, **options: object) -> str:
    """Return the URI of a broker without credentials; `options` as in `Broker.uri`."""
    where = broker.uri(protocol=protocol).partition("?")[0]
    query = urlencode({name.replace("__", "."): str(value) for name, value in options.items()})
    return f"{where}?{query}" if query else where


def credentials(broker: Broker, folder: Path) -> str:
    """Return a file with the credentials of a broker."""
    file = folder / f"{broker.name}.toml"
    file.write_text(f'user = "{broker.user}"\npassword = "{broker.password}"\n', encoding="utf-8")
    return str(file)


def explained(df: DataFrame) -> str:
    """Return the output of `explain(True)`."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        df.explain(True)
    return printed.getvalue()
