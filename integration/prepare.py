"""Fetches and compiles all that the tests need on a new machine: `python -m integration.prepare`.

`--spark` also makes the archive of Spark's classes: a minute of processor time, which saves 7 s of each start of Spark.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tests.needs import required

from integration.availability import CANNOT_BE_HAD
from integration.brokers import ALL_BROKERS
from integration.brokers.toolchain import progress
from integration.java_client import JavaClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["prepare"]


def prepare(names: Iterable[str], failed: Callable[[str, Exception], None]) -> None:
    """Fetch brokers and compile their Java clients, one after the other; `failed` is called with what cannot be had."""
    for name in names:
        kind = ALL_BROKERS[name]
        reason = kind.unavailable()
        if reason is not None:
            progress(f"{name}: {reason}")
            continue
        try:
            kind.obtain()
        except CANNOT_BE_HAD as error:
            failed(name, error)
            continue
        for client in kind.java_clients:
            try:
                JavaClient.prepare(client)
            except CANNOT_BE_HAD as error:
                failed(f"{name}'s Java client {client}", error)


def main() -> None:
    """Fetch all brokers and Java clients, and compile."""

    def failed(what: str, error: Exception) -> None:
        if required(what.partition("'")[0]):
            raise error
        progress(f"{what}: {error}")

    prepare(ALL_BROKERS, failed)
    if "--spark" not in sys.argv[1:]:
        return
    try:
        from integration.spark_jvm import make_archive  # noqa: PLC0415 -- Spark may be missing
    except ImportError as error:
        progress(f"Spark: {error}")
    else:
        make_archive()


if __name__ == "__main__":
    main()
